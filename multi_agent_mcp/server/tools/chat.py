"""Tools for questions, conversations, delegations, and task operations from a chat session
(docs/protocol.md, Questions, Conversations, Delegation, Chat-session operations)."""

from __future__ import annotations

from typing import Any, Literal

from multi_agent_mcp.domain.message import Conversation, Delegation, Message
from multi_agent_mcp.domain.task import TaskPriority, TaskStatus
from multi_agent_mcp.domain.times import format_time
from multi_agent_mcp.errors import InvalidArguments, TaskNotFound
from multi_agent_mcp.server.calls import CHAT, TASK, Answer, Call, Limit, Tool
from multi_agent_mcp.services.answer_budget import clipped
from multi_agent_mcp.services.chat import PURPOSE_CHARACTERS, as_answer
from multi_agent_mcp.services.questions import Asking


def ask(
    call: Call,
    question: str,
    to_id: str | None = None,
    choices: list[str] | None = None,
    default: str | None = None,
    deadline_minutes: float | None = None,
    park: bool = False,
) -> Answer:
    """Ask your superior (or to_id) for a decision. park: your task waits, you get other work.
    default, one of the choices, is taken at the deadline."""
    asking = Asking(
        question=question,
        to_id=to_id,
        choices=choices or (),
        default=default,
        minutes=deadline_minutes,
        park=park,
    )
    asked, instruction = call.services.next_action.ask(call.me, call.session, asking)
    return {"question_id": asked.id, "to_id": asked.to_id, "instruction": instruction}


def answer_question(
    call: Call, question_id: str, answer: str | None = None, note: str | None = None, withdraw: bool = False
) -> Answer:
    """Answer a question to you or an agent below you, or withdraw your own."""
    if withdraw and answer is not None:
        raise InvalidArguments("answer_and_withdraw")
    if withdraw:
        settled = call.services.questions.withdraw(call.me, question_id, note)
    else:
        settled = call.services.questions.answer(call.me, question_id, answer or "", note)
    return {"question_id": settled.id, "status": settled.status}


# Tools for delegation, conversations, and task operations from a chat session
# (docs/protocol.md, Delegation, Conversations, Chat-session operations).


def delegate_to_chat_session(call: Call, target_agent_id: str, purpose: str, context: str | None = None) -> Answer:
    """Have your chat session talk to an agent while your task goes on; the answer says how to await it."""
    delegation, instruction = call.services.delegations.delegate(
        call.me, call.session.record, target_agent_id, purpose, context
    )
    return {"delegation_id": delegation.id, "instruction": instruction}


def get_task_conversations(call: Call, task_id: str | None = None) -> Answer:
    """The conversations of a task (default: this session's), with their newest messages."""
    wanted = task_id if task_id is not None else call.session.record.task_id
    if wanted is None:
        raise TaskNotFound("no_task_in_session")
    task = call.services.task_changes.get(wanted)
    task.require_reader(call.me.id, call.services.agents.all())
    conversations = call.services.conversations.of_task(task.id)
    waiting = call.services.delegations.unstarted_about(task.id)
    shown = [*(_waiting(item) for item in waiting), *(_conversation(call, item) for item in conversations)]
    totals = {"task_id": task.id, "total_conversations": len(shown)}
    call.services.answer_budget.newest_of_each(shown, "messages")
    return call.fitting(totals, "conversations", shown)


def get_conversation_messages(call: Call, conversation_id: str, limit: Limit = 50) -> Answer:
    """The newest messages of a conversation of yours, oldest first."""
    conversation = call.services.conversations.get(conversation_id)
    conversation.require_participant(call.me.id)
    service = call.services.conversations
    messages, total = service.newest(conversation.id, limit)
    name_of = call.services.agents.name_of
    shown = [
        {**service.spoken(conversation, message), "sender_name": name_of(message.sender_id)} for message in messages
    ]
    answer = {
        "conversation_id": conversation.id,
        "total_count": total,
        "instruction": call.services.texts("conversation.messages"),
    }
    fitted = call.fitting(answer, "messages", shown[::-1])
    return {**fitted, "messages": fitted["messages"][::-1], "total_count": total}


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
    return {"conversation_id": conversation.id, "status": conversation.status}


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


def _conversation(call: Call, conversation: Conversation) -> dict[str, Any]:
    messages: list[Message] = call.services.conversations.messages_of(conversation.id)
    return {
        "conversation_id": conversation.id,
        "status": conversation.status,
        "target_agent_id": conversation.target_agent_id,
        "purpose": clipped(conversation.purpose, PURPOSE_CHARACTERS),
        "message_count": len(messages),
        "messages": [call.services.conversations.spoken(conversation, message) for message in messages],
        "started_at": format_time(conversation.started_at),
        "ended_at": format_time(conversation.ended_at) if conversation.ended_at else None,
    }


def _waiting(delegation: Delegation) -> dict[str, Any]:
    """The entry of a delegation without a conversation in `get_task_conversations`."""
    return {
        "conversation_id": None,
        "status": "pending",
        "target_agent_id": delegation.target_agent_id,
        "purpose": clipped(delegation.purpose, PURPOSE_CHARACTERS),
        "message_count": 0,
        "messages": [],
        "started_at": None,
        "ended_at": None,
    }


TOOLS = (
    Tool(ask, "Ask"),
    Tool(answer_question, "Answer question"),
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
