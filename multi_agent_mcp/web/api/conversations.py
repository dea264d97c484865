"""Conversations between agents, with the delegation and the task they belong to."""

from __future__ import annotations

from typing import Any

from multi_agent_mcp.errors import MessageNotFound
from multi_agent_mcp.web.request import ApiRequest
from multi_agent_mcp.web.serializers import (
    conversation_head,
    message_whole,
    messages_whole,
    moment,
    shown_text,
    task_card,
)


def page(call: ApiRequest) -> dict[str, Any]:
    """The conversations, newest first, and the delegations that have none yet."""
    services = call.services
    found, total = services.conversations.page(offset=call.number("offset", 0), limit=call.limit)
    delegations = [
        {
            "delegation_id": item.id,
            "agent_id": item.agent_id,
            "target_agent_id": item.target_agent_id,
            "purpose": item.purpose,
            "task_id": item.task_id,
            "created_at": moment(item.created_at),
        }
        for agent_id in services.agents.all()
        for item in services.delegations.unstarted(agent_id)
    ]
    return {"conversations": [conversation_head(item) for item in found], "total": total, "delegations": delegations}


def show(call: ApiRequest) -> dict[str, Any]:
    """One conversation with its newest messages, oldest first, its delegation and its task."""
    services = call.services
    conversation = services.conversations.get(call.path["conversation_id"])
    messages = services.conversations.messages_of(conversation.id)
    delegation = services.delegations.of(conversation)
    tasks = services.board.existing([conversation.task_id])
    return {
        "conversation": conversation_head(conversation),
        "messages": messages_whole(messages[-call.limit :]),
        "total": len(messages),
        "context": shown_text(delegation.context) if delegation else None,
        "task": task_card(tasks[0]) if tasks else None,
    }


def message(call: ApiRequest) -> dict[str, Any]:
    """One message of a conversation with its content."""
    conversation = call.services.conversations.get(call.path["conversation_id"])
    wanted = call.path["message_id"]
    for found in call.services.conversations.messages_of(conversation.id):
        if found.id == wanted:
            return {"message": message_whole(found)}
    raise MessageNotFound(message_id=wanted)
