"""Mail, conversations and questions: the Owner may see all, and reads and answers their own."""

from __future__ import annotations

from typing import Any

from multi_agent_mcp.domain.entity import fields_of
from multi_agent_mcp.domain.message import Message
from multi_agent_mcp.errors import InvalidArguments, MessageNotFound, Unauthorized
from multi_agent_mcp.services.questions import as_answer
from multi_agent_mcp.services.turn.reading import Query
from multi_agent_mcp.services.validation import Draft, require_words
from multi_agent_mcp.web.request import ApiRequest
from multi_agent_mcp.web.serializers import (
    conversation_head,
    message_head,
    message_whole,
    messages_whole,
    shown_text,
    task_card,
)

BOXES = ("inbox", "sent", "all")


def list_messages(call: ApiRequest) -> dict[str, Any]:
    """Messages, newest first: `?box=inbox|sent|all`, `?between=A,B` for a thread, `?agent=` for one agent's mail, and
    `?before=` with a message id for the next page. Marks nothing read."""
    found = call.services.mail_search.page(**_filters(call), before=call.parameter("before"), limit=call.limit)
    progress = call.services.tracking.progress(found.messages)
    return {
        "messages": [
            message_head(message) | {"state": way["state"]}
            for message, way in zip(found.messages, progress, strict=True)
        ],
        "more": found.more,
        "unread": call.services.unread_mail_count(call.me.id),
    }


def show_message(call: ApiRequest) -> dict[str, Any]:
    """One message with its content, the verdict on its signature, the delivery steps of each copy, the conversation
    that an answer would belong to, and the task that it names. Marks nothing read."""
    message = call.services.mail_search.get(call.path["message_id"])
    verdict = call.services.signatures.verdict(message)
    conversation = call.services.conversations.of_mail(call.me.id, message)
    return {
        "message": message_whole(message) | {"signature": verdict},
        "copies": call.services.tracking.trace(message.id),
        "conversation": conversation_head(conversation) if conversation else None,
        "task": task_card(call.features, tasks[0])
        if (tasks := call.services.board.existing([_task_id(message)]))
        else None,
    }


def _words(call: ApiRequest) -> str:
    """What is to be sent. Raises `InvalidArguments` for blank text."""
    content = call.text("content")
    require_words("content", content)
    return content


def send(call: ApiRequest) -> dict[str, Any]:
    """Sends a message as the Owner, to all agents if `receiver_id` is null."""
    draft = Draft(
        content=_words(call),
        receiver_id=call.optional_text("receiver_id"),
        message_type=call.optional_text("message_type") or None,
        subject=call.optional_text("subject") or "",
        priority=call.optional_text("priority") or "normal",
        idempotency_key=call.optional_text("idempotency_key"),
    )
    return call.services.messages.send(call.me, draft).as_answer()


def reply(call: ApiRequest) -> dict[str, Any]:
    """Answers a message to the Owner: in its conversation if it has one, else as mail to its sender."""
    sent, conversation = call.services.human_conversations.reply(
        call.me, call.path["message_id"], _words(call), call.optional_text("idempotency_key")
    )
    return {**sent.as_answer(), "conversation_id": conversation.id if conversation else None}


def mark_read(call: ApiRequest) -> dict[str, Any]:
    """Marks a message to the Owner read; reading an awaited answer ends the wait."""
    message_id = call.path["message_id"]
    _require_mine(call, call.services.mail_search.get(message_id))
    query = Query(message_id=message_id, whole=True, polling=False)
    answer = call.services.reading.read(call.me, query)
    return {"message_id": message_id, "unread": answer["unread_remaining"]}


def mark_all_read(call: ApiRequest) -> dict[str, Any]:
    """Marks the `count` oldest unread messages to the Owner read: as many as the page has seen, not what came since."""
    count = call.whole_number("count")
    answer = call.services.reading.read(call.me, Query(limit=count, whole=True, polling=False)) if count else {}
    return {"marked": answer.get("count", 0), "unread": call.services.unread_mail_count(call.me.id)}


def _filters(call: ApiRequest) -> dict[str, Any]:
    between = call.parameter("between")
    if between is not None:
        one, comma, other = between.partition(",")
        if not comma:
            raise InvalidArguments("no_pair")
        return {"between": (one, other)}  # the sender of a hand-written file need not be an agent
    box = call.parameter("box") or "inbox"
    if box not in BOXES:
        raise InvalidArguments("no_such_choice", name="box", value=f"{box!r:.60}", allowed=", ".join(BOXES))
    whose = call.agent_id("agent") or call.me.id
    return {"inbox": {"receiver_id": whose}, "sent": {"sender_id": whose}, "all": {}}[box]


def _task_id(message: Message) -> str | None:
    named = message.metadata.get("task_id")
    return named if isinstance(named, str) else None


def _require_mine(call: ApiRequest, message: Message) -> None:
    if message.receiver_id != call.me.id:
        raise Unauthorized("not_own_mailbox", agent_id=message.receiver_id)


def list_conversations(call: ApiRequest) -> dict[str, Any]:
    """The conversations, newest first, and the delegations that have no conversation yet; `?agent=` selects one
    agent's conversations."""
    services = call.services
    found, total = services.conversations.page(
        call.agent_id("agent"), offset=call.number("offset", 0), limit=call.limit
    )
    shown = ("agent_id", "target_agent_id", "purpose", "task_id", "created_at")
    delegations = [
        {"delegation_id": item.id, **fields_of(item, *shown)}
        for agent_id in services.agents.all()
        for item in services.delegations.unstarted(agent_id)
    ]
    return {"conversations": [conversation_head(item) for item in found], "total": total, "delegations": delegations}


def show_conversation(call: ApiRequest) -> dict[str, Any]:
    """One conversation with its newest messages, oldest first, the ids of those that the Owner has not read, its
    delegation's context and its task. Marks nothing read."""
    services = call.services
    conversation = services.conversations.get(call.path["conversation_id"])
    shown, total = services.conversations.newest(conversation.id, call.limit)
    delegation = services.delegations.of(conversation)
    tasks = services.board.existing([conversation.task_id])
    return {
        "conversation": conversation_head(conversation),
        "messages": messages_whole(shown),
        "total": total,
        "unread": services.reading.unread_among(call.me.id, shown),
        "context": shown_text(delegation.context) if delegation else None,
        "task": task_card(call.features, tasks[0]) if tasks else None,
    }


def start_conversation(call: ApiRequest) -> dict[str, Any]:
    """Starts a conversation as the Owner."""
    conversation, sent = call.services.human_conversations.start(
        call.me,
        call.text("target_agent_id"),
        _words(call),
        call.optional_text("purpose"),
        call.optional_text("task_id"),
    )
    return {"conversation": conversation_head(conversation), **sent.as_answer()}


def say(call: ApiRequest) -> dict[str, Any]:
    """Sends a message in a conversation of the Owner."""
    draft = Draft(content=_words(call), idempotency_key=call.optional_text("idempotency_key"))
    return call.services.conversations.say(call.me, call.path["conversation_id"], draft).as_answer()


def end_conversation(call: ApiRequest) -> dict[str, Any]:
    """Ends a conversation of the Owner; the other participant gets mail."""
    conversation_id, words = call.path["conversation_id"], call.optional_text("final_message")
    return {"conversation": conversation_head(call.services.conversations.end(call.me, conversation_id, words))}


def show_message_of_conversation(call: ApiRequest) -> dict[str, Any]:
    """One message of a conversation with its content."""
    conversation = call.services.conversations.get(call.path["conversation_id"])
    wanted = call.path["message_id"]
    for found in call.services.conversations.messages_of(conversation.id):
        if found.id == wanted:
            return {"message": message_whole(found)}
    raise MessageNotFound(message_id=wanted)


def list_questions(call: ApiRequest) -> dict[str, Any]:
    """Questions, open ones first, then those closed last. `?to=` and `?from=` select by agent, `?open=1` those that
    wait for an answer, `?limit=` how many."""
    found, more = call.services.questions.listed(
        to_id=call.agent_id("to"),
        asker_id=call.agent_id("from"),
        only_open=call.parameter("open") is not None,
        limit=call.limit,
    )
    return {"questions": [as_answer(question) for question in found], "has_more": more}


def answer_question(call: ApiRequest) -> dict[str, Any]:
    """Answers a question, with a note if one is given."""
    done = call.services.questions.answer(
        call.me, call.path["question_id"], call.text("answer"), call.optional_text("note")
    )
    return {"question": as_answer(done)}
