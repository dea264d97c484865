"""Tools for conversations, delegations, and task operations from a chat session
(docs/protocol.md, Conversations, Delegation, Chat-session operations)."""

from __future__ import annotations

from typing import Any, Literal

from multi_agent_mcp.domain.message import Conversation, Delegation
from multi_agent_mcp.domain.task import TaskPriority, TaskStatus
from multi_agent_mcp.domain.times import format_time
from multi_agent_mcp.errors import TaskNotFound
from multi_agent_mcp.server.calls import CHAT, TASK, Answer, Call, Limit, Tool, written
from multi_agent_mcp.services.answer_budget import clipped
from multi_agent_mcp.services.chat.conversations import PURPOSE_CHARACTERS
from multi_agent_mcp.services.chat.delegations import as_answer, place_of

MESSAGES_LOOKED_AT = 500
"""Of each conversation in a list of them: more than fit."""


def delegate_to_chat_session(call: Call, target_agent_id: str, purpose: str, context: str | None = None) -> Answer:
    """Have your chat session talk to an agent while your task goes on."""
    delegation, instruction = call.services.delegations.delegate(
        call.me, call.session.record, target_agent_id, purpose, context
    )
    return {"delegation_id": delegation.id, "instruction": instruction}


def get_task_conversations(call: Call, task_id: str | None = None, before: str | None = None) -> Answer:
    """The conversations of a task (default: this session's), with their newest messages."""
    wanted = task_id if task_id is not None else call.session.record.task_id
    talks: list[Delegation | Conversation] = []
    if wanted is not None:
        task = call.services.task_changes.get(wanted)
        task.require_reader(call.me.id, call.services.agents.all())
        talks += call.services.delegations.talks_about(task.id)
    if task_id is None:
        talks += call.services.delegations.talks_without_task(call.session.record)
    if wanted is None and not talks:
        raise TaskNotFound("no_talks_in_session")
    rest = talks if before is None else talks[place_of(before, talks) :]
    page = call.services.answer_budget.newest_of_each((_talk(call, item) for item in rest), "messages")
    waiting, begun = ([item for item in page if (item["conversation_id"] is None) is kind] for kind in (True, False))
    answer = {"task_id": wanted, "total_conversations": len(talks), "conversations": waiting + begun[::-1]}
    calls = [_older_messages(item) for item in begun if len(item["messages"]) < item["message_count"]]
    if len(page) < len(rest):
        last = rest[len(page) - 1].id
        calls = [written("get_task_conversations", task_id=task_id, before=last), *calls]
    if not calls:
        return answer
    return {**answer, "truncated": True, "how_to_continue": call.services.texts("more.page", call=", ".join(calls[:4]))}


def _older_messages(shown: Answer) -> str:
    """The call for the messages of a conversation before those shown."""
    first = shown["messages"][0]["id"] if shown["messages"] else None
    return written("get_conversation_messages", conversation_id=shown["conversation_id"], before=first)


def get_conversation_messages(call: Call, conversation_id: str, limit: Limit = 50, before: str | None = None) -> Answer:
    """The newest messages of a conversation of yours, oldest first."""
    service = call.services.conversations
    conversation = service.get(conversation_id)
    service.require_reader(conversation, call.me.id)
    messages, total = service.newest(conversation.id, limit + 1, before)
    name_of = call.services.agents.name_of
    shown = [
        {**service.spoken(conversation, message, call.me.id), "sender_name": name_of(message.sender_id)}
        for message in messages[-limit:]
    ]
    answer = {
        "conversation_id": conversation.id,
        "total_count": total,
        "instruction": call.services.texts("conversation.messages"),
    }

    def next_call(first: Answer) -> str:
        about = {"conversation_id": conversation.id, "limit": limit}
        return written("get_conversation_messages", **about, before=first["id"])

    page = call.page(answer, "messages", shown[::-1], next_call, more=len(messages) > limit)
    return {**page, "messages": page["messages"][::-1]}


def get_pending_delegations(call: Call) -> Answer:
    """Take over what your task session delegated; call start_conversation for each."""
    delegations = call.services.delegations.take(call.session.record)
    whole = call.fitting({}, "delegations", [as_answer(item) for item in delegations])
    if "truncated" not in whole:
        return whole
    share = call.services.answer_budget.share(len(delegations))
    shown = [as_answer(item, share) for item in delegations]
    return call.fitting({}, "delegations", shown, call.services.texts("more.delegations"))


def start_conversation(
    call: Call, target_agent_id: str, initial_message: str, purpose: str | None = None, delegation_id: str | None = None
) -> Answer:
    """Start a conversation; it carries out a pending delegation to that agent."""
    conversation, sent = call.services.delegations.start_conversation(
        call.me, call.session.record, target_agent_id, initial_message, purpose, delegation_id
    )
    return {
        "conversation_id": conversation.id,
        "status": conversation.status,
        "task_id": conversation.task_id,
        "message_id": sent.message_id,
    }


def end_conversation(call: Call, conversation_id: str, final_message: str | None = None) -> Answer:
    """End a conversation; the other participant is notified."""
    conversation = call.services.conversations.end(call.me, conversation_id, final_message)
    return {"conversation_id": conversation.id, "status": conversation.status, "instruction": call.after_talk()}


def start_task_from_chat(call: Call, task_id: str, requester_id: str) -> Answer:
    """Start a task of yours, as a superior (requester_id) asked."""
    task, previous = call.services.chat_task_operations.start(call.me, task_id, requester_id)
    return {
        "task_id": task.id,
        "previous_status": previous,
        "new_status": task.status,
        "requester_id": requester_id,
        "instruction": call.services.texts("chat.task_started"),
    }


def update_task_from_chat(
    call: Call,
    task_id: str,
    requester_id: str,
    title: str | None = None,
    description: str | None = None,
    status: TaskStatus | None = None,
    priority: TaskPriority | None = None,
    blocked_reason: str | None = None,
) -> Answer:
    """Change a task assigned to or created by you, as a superior (requester_id) asked."""
    given = {"title": title, "description": description, "status": status, "priority": priority}
    updates = {name: value for name, value in given.items() if value is not None}
    task, fields = call.services.chat_task_operations.update(call.me, task_id, requester_id, updates, blocked_reason)
    return {
        "task_id": task.id,
        "updated_fields": fields,
        "requester_id": requester_id,
        "instruction": call.services.texts("chat.task_updated"),
    }


def notify_task_session(
    call: Call,
    conversation_id: str,
    message: str | None = None,
    related_task_id: str | None = None,
    priority: Literal["normal", "high"] = "normal",
) -> Answer:
    """Ask your own task session to look at a conversation; priority high interrupts it."""
    if related_task_id is not None:
        call.services.task_changes.get(related_task_id)
    conversation = call.services.conversations.get(conversation_id)
    conversation.require_participant(call.me.id)
    notice = call.services.notifications.from_chat(
        call.me.id, conversation.id, message, related_task_id, interrupting=priority == "high"
    )
    return {
        "notification_id": notice.id,
        "target_agent_id": call.me.id,
        "conversation_id": conversation.id,
        "type": notice.type,
        "instruction": call.services.texts("chat.notified"),
    }


def _talk(call: Call, talk: Delegation | Conversation) -> dict[str, Any]:
    """The entry in `get_task_conversations` of a conversation, or of a delegation that has none yet."""
    entry: dict[str, Any] = {
        "conversation_id": None,
        "status": "pending",
        "target_agent_id": talk.target_agent_id,
        "purpose": clipped(talk.purpose, PURPOSE_CHARACTERS),
        "message_count": 0,
        "messages": [],
        "started_at": None,
        "ended_at": None,
    }
    if isinstance(talk, Delegation):
        return entry
    service = call.services.conversations
    messages, total = service.newest(talk.id, MESSAGES_LOOKED_AT)
    return {
        **entry,
        "conversation_id": talk.id,
        "status": talk.status,
        "message_count": total,
        "messages": [service.spoken(talk, message, call.me.id) for message in messages],
        "started_at": format_time(talk.started_at),
        "ended_at": format_time(talk.ended_at) if talk.ended_at else None,
    }


TOOLS = (
    Tool(delegate_to_chat_session, "Delegate talk", purposes=TASK),
    Tool(get_task_conversations, "Task conversations", purposes=TASK, read_only=True),
    Tool(get_conversation_messages, "Read conversation", purposes=TASK, read_only=True),
    Tool(get_pending_delegations, "Delegations", purposes=CHAT),
    Tool(start_conversation, "Start conversation", purposes=CHAT),
    Tool(end_conversation, "End conversation", purposes=CHAT),
    Tool(start_task_from_chat, "Start task", purposes=CHAT),
    Tool(update_task_from_chat, "Update task", purposes=CHAT),
    Tool(notify_task_session, "Notify task session", purposes=CHAT),
)
