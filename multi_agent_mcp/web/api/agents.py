"""The team as a tree: who lives, what they do, who waits for whom; and how to stop them."""

from __future__ import annotations

from typing import Any

from multi_agent_mcp.domain.agent import Agent, in_tree_order
from multi_agent_mcp.domain.owner_wait import OwnerWait
from multi_agent_mcp.domain.session import AgentSession
from multi_agent_mcp.errors import InvalidArguments
from multi_agent_mcp.services.validation import require_choice
from multi_agent_mcp.web.request import ApiRequest
from multi_agent_mcp.web.serializers import moment, task_card

ACTIONS = ("blocked", "cancel", "pause")


def tree(ask: ApiRequest) -> dict[str, Any]:
    """Every agent, each below its superior, with its depth in the tree."""
    return {"agents": [_row(ask, agent, depth) for agent, depth in in_tree_order(ask.services.agents.all())]}


def interrupt(ask: ApiRequest) -> dict[str, Any]:
    """Stops an agent at its next tool call: `blocked` or `cancel` its task, or `pause` it."""
    action = ask.text("action")
    require_choice("action", action, ACTIONS)
    notice = ask.services.task_changes.interrupt(
        ask.me, ask.path["agent_id"], action, ask.optional_text("task_id"), ask.optional_text("reason")
    )
    return {"notification_id": notice.id, "action": notice.action, "task_id": notice.task_id}


def release(ask: ApiRequest) -> dict[str, Any]:
    """Takes away an Owner's wait-lock."""
    agent = ask.services.agents.get(ask.path["agent_id"])
    if agent.role != "owner":
        raise InvalidArguments(reason=f"{agent.id} is no owner and waits for nobody")
    return {"owner_id": agent.id, "waiting_before": ask.services.owner_waits.release(agent.id), "waiting_after": False}


def _row(ask: ApiRequest, agent: Agent, depth: int) -> dict[str, Any]:
    services = ask.services
    running = services.sessions.running(agent.id)
    current = services.task_changes.current(agent.id)
    wait = services.owner_waits.of(agent.id) if agent.role == "owner" else None
    return {
        "id": agent.id,
        "name": agent.name,
        "role": agent.role,
        "type": agent.type,
        "host": agent.host,
        "parent_id": agent.parent_id,
        "depth": depth,
        "alive": bool(running),
        "sessions": [_session(session) for session in running],
        "pane_id": agent.pane_id,
        "unread": services.reading.unread_count(agent.id),
        "interrupts": sum(notice.interrupts for _, notice in services.workspace.notices(agent.id).unread()),
        "task": task_card(current) if current else None,
        "last_activity_at": _last_activity(ask, agent.id),
        "wait": _wait(wait) if wait else None,
    }


def _session(session: AgentSession) -> dict[str, Any]:
    return {
        "session_id": session.id,
        "purpose": session.purpose,
        "task_id": session.task_id,
        "since": moment(session.created_at),
        "last_activity_at": moment(session.last_activity_at),
    }


def _last_activity(ask: ApiRequest, agent_id: str) -> str | None:
    """When the agent's server was last called; of ended sessions only the latest is looked at."""
    sessions = ask.services.workspace.sessions
    known = [*sessions.open(agent_id), *sessions.closed(agent_id, limit=1)]
    return moment(max((session.last_activity_at for session in known), default=None))


def _wait(wait: OwnerWait) -> dict[str, Any]:
    return {"admin_id": wait.admin_id, "task_id": wait.task_id, "since": moment(wait.since)}
