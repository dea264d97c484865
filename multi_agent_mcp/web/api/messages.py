"""Mail: the Owner may see all messages, and reads and answers their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from multi_agent_mcp.errors import InvalidArguments, Unauthorized
from multi_agent_mcp.services.turn.reading import Query
from multi_agent_mcp.services.validation import Draft
from multi_agent_mcp.web.serializers import conversation_head, message_head, message_whole, task_card

if TYPE_CHECKING:
    from multi_agent_mcp.domain.message import Message
    from multi_agent_mcp.web.request import ApiRequest

BOXES = ("inbox", "sent", "all")


def page(call: ApiRequest) -> dict[str, Any]:
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


def show(call: ApiRequest) -> dict[str, Any]:
    """One message with its content, the verdict on its signature, the delivery steps of each copy, the conversation
    that an answer would belong to, and the task that it names. Marks nothing read."""
    message = call.services.mail_search.get(call.path["message_id"])
    verdict = call.services.signatures.verdict(message)
    conversation = call.services.conversations.of_mail(call.me.id, message)
    return {
        "message": message_whole(message) | {"signature": verdict},
        "copies": call.services.tracking.trace(message.id),
        "conversation": conversation_head(conversation) if conversation else None,
        "task": task_card(tasks[0]) if (tasks := call.services.board.existing([_task_id(message)])) else None,
    }


def send(call: ApiRequest) -> dict[str, Any]:
    """Sends a message as the Owner, to all agents if `receiver_id` is null."""
    draft = Draft(
        content=call.text("content"),
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
        call.me, call.path["message_id"], call.text("content"), call.optional_text("idempotency_key")
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
