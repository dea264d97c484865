"""Conversations between agents, with the delegation and the task they belong to."""

from __future__ import annotations

from typing import Any

from multi_agent_mcp.errors import MessageNotFound
from multi_agent_mcp.web.request import ApiRequest
from multi_agent_mcp.web.serializers import conversation_head, letter, letters, moment, shown_text, task_card


def page(ask: ApiRequest) -> dict[str, Any]:
    """The conversations, newest first, and the delegations that have none yet."""
    services = ask.services
    found, total = services.conversations.page(offset=ask.number("offset", 0), limit=ask.limit)
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
    return {
        "conversations": [conversation_head(item) for item in found],
        "total": total,
        "delegations": delegations,
    }


def show(ask: ApiRequest) -> dict[str, Any]:
    """One conversation with its newest messages, oldest first, its delegation and its task."""
    services = ask.services
    conversation = services.conversations.get(ask.path["conversation_id"])
    messages = services.conversations.messages_of(conversation.id)
    delegation = services.delegations.of(conversation)
    tasks = services.board.existing([conversation.task_id])
    return {
        "conversation": conversation_head(conversation),
        "messages": letters(messages[-ask.limit :]),
        "total": len(messages),
        "context": shown_text(delegation.context) if delegation else None,
        "task": task_card(tasks[0]) if tasks else None,
    }


def message(ask: ApiRequest) -> dict[str, Any]:
    """One message of a conversation with its words."""
    conversation = ask.services.conversations.get(ask.path["conversation_id"])
    wanted = ask.path["message_id"]
    for found in ask.services.conversations.messages_of(conversation.id):
        if found.id == wanted:
            return {"message": letter(found)}
    raise MessageNotFound(message_id=wanted)
