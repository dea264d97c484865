"""Conversations with their delegations and tasks, and the Owner's part in conversations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from multi_agent_mcp.domain.entity import fields_of
from multi_agent_mcp.errors import MessageNotFound
from multi_agent_mcp.services.validation import Draft
from multi_agent_mcp.web.serializers import (
    conversation_head,
    message_whole,
    messages_whole,
    shown_text,
    task_card,
)

if TYPE_CHECKING:
    from multi_agent_mcp.web.request import ApiRequest


def page(call: ApiRequest) -> dict[str, Any]:
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


def show(call: ApiRequest) -> dict[str, Any]:
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
        "task": task_card(tasks[0]) if tasks else None,
    }


def start(call: ApiRequest) -> dict[str, Any]:
    """Starts a conversation as the Owner."""
    conversation, sent = call.services.human_conversations.start(
        call.me,
        call.text("target_agent_id"),
        call.text("content"),
        call.optional_text("purpose"),
        call.optional_text("task_id"),
    )
    return {"conversation": conversation_head(conversation), **sent.as_answer()}


def say(call: ApiRequest) -> dict[str, Any]:
    """Sends a message in a conversation of the Owner."""
    draft = Draft(content=call.text("content"), idempotency_key=call.optional_text("idempotency_key"))
    return call.services.conversations.say(call.me, call.path["conversation_id"], draft).as_answer()


def end(call: ApiRequest) -> dict[str, Any]:
    """Ends a conversation of the Owner; the other participant gets mail."""
    conversation_id, words = call.path["conversation_id"], call.optional_text("final_message")
    return {"conversation": conversation_head(call.services.conversations.end(call.me, conversation_id, words))}


def message(call: ApiRequest) -> dict[str, Any]:
    """One message of a conversation with its content."""
    conversation = call.services.conversations.get(call.path["conversation_id"])
    wanted = call.path["message_id"]
    for found in call.services.conversations.messages_of(conversation.id):
        if found.id == wanted:
            return {"message": message_whole(found)}
    raise MessageNotFound(message_id=wanted)
