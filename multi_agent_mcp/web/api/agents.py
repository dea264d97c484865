"""The agents as a tree with their sessions, tasks and waits; interrupting and resuming them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from multi_agent_mcp.domain.agent import in_tree_order
from multi_agent_mcp.domain.entity import fields_of
from multi_agent_mcp.services.validation import require_choice
from multi_agent_mcp.web.serializers import handoff_row, moment, task_card

if TYPE_CHECKING:
    from multi_agent_mcp.domain.agent import AgentSession
    from multi_agent_mcp.domain.hosts.limit import Limit
    from multi_agent_mcp.domain.notification import Notification
    from multi_agent_mcp.domain.overview.stuck import Stuck
    from multi_agent_mcp.services.overview.snapshot import AgentRow
    from multi_agent_mcp.web.request import ApiRequest

NOTIFICATIONS_MAX = 20
HAND_OFFS_SHOWN = 5
ACTIONS = ("blocked", "cancel", "pause")


def tree(call: ApiRequest) -> dict[str, Any]:
    """Every agent, each below its superior, with its depth in the tree."""
    return {"agents": call.services.unchanged.get("agents", lambda: _agents(call))}


def _agents(call: ApiRequest) -> list[dict[str, Any]]:
    rows = call.services.snapshots.agents(stuck=call.services.stuck_agents.find())
    return [_agent(call, row) for row in rows]


def show(call: ApiRequest) -> dict[str, Any]:
    """One agent as in the tree, with the ids of the agents directly below it."""
    agent = call.services.agents.get(call.path["agent_id"])
    mine = call.services.snapshots.agent(agent.id, call.services.stuck_agents.find(only=agent.id).get(agent.id))
    below = [other.id for other, _ in in_tree_order(call.services.agents.all()) if other.parent_id == agent.id]
    kept = [handoff_row(item.hand_off) for item in call.services.hand_offs.all(agent.id)[:HAND_OFFS_SHOWN]]
    return {"agent": _agent(call, mine), "subordinates": below, "handoffs": kept}


def interrupt(call: ApiRequest) -> dict[str, Any]:
    """Stops an agent at its next tool call: `blocked` or `cancel` its task, or `pause` it."""
    action = call.text("action")
    require_choice("action", action, ACTIONS)
    notice = call.services.interrupting.interrupt(
        call.me, call.path["agent_id"], action, call.optional_text("task_id"), call.optional_text("reason")
    )
    return _sent(call, notice)


def resume(call: ApiRequest) -> dict[str, Any]:
    """Resumes a paused agent."""
    return _sent(call, call.services.interrupting.resume(call.me, call.path["agent_id"]))


def release(call: ApiRequest) -> dict[str, Any]:
    """Releases an Owner's wait-lock."""
    owner = call.services.agents.get(call.path["agent_id"])
    return call.services.owner_waits.unlock(call.me, owner, call.optional_text("reason"))


def _sent(call: ApiRequest, notice: Notification) -> dict[str, Any]:
    """The answer about a notification. `queued` is why one for another machine's agent still waits here."""
    waits = call.services.tracking.waits(notice)
    queued = {"queued": waits} if waits is not None else {}
    return {"notification_id": notice.id, "action": notice.action, "task_id": notice.task_id, **queued}


def _agent(call: ApiRequest, row: AgentRow) -> dict[str, Any]:
    agent = row.agent
    return {
        **fields_of(agent, "id", "name", "role", "type", "host", "parent_id", "pane_id"),
        **fields_of(row, "depth", "alive", "unread", "interrupts"),
        "sessions": [_session(session) for session in row.running],
        "notifications": _waiting(call, agent.id),
        "paused": row.pause is not None,
        "pause_reason": row.pause.reason if row.pause else None,
        "task": task_card(row.task) if row.task else None,
        "last_activity_at": moment(call.services.sessions.last_activity(agent.id)),
        "wait": fields_of(row.wait, "admin_id", "task_id", "since") if row.wait else None,
        "stuck": _stuck(call, row.stuck) if row.stuck else None,
        "limited": _limited(call, row.limit) if row.limit else None,
        **({"elsewhere": home, "away": row.away} if (home := call.services.agents.elsewhere(agent)) else {}),
    }


def _waiting(call: ApiRequest, agent_id: str) -> list[dict[str, Any]]:
    """The agent's unread notifications, newest first, with their delivery states."""
    waiting = call.services.notifications.waiting(agent_id)[: -NOTIFICATIONS_MAX - 1 : -1]
    return [
        {
            "notification_id": notice.id,
            **fields_of(notice, "type", "action", "sender_id", "created_at"),
            "state": way["state"],
            "reason": way.get("reason"),
        }
        for notice, way in zip(waiting, call.services.tracking.progress(waiting), strict=True)
    ]


def _session(session: AgentSession) -> dict[str, Any]:
    shown = fields_of(session, "purpose", "task_id", "last_activity_at")
    return {"session_id": session.id, "since": moment(session.created_at), **shown}


def _stuck(call: ApiRequest, stuck: Stuck) -> dict[str, Any]:
    return {**fields_of(stuck, "cause", "since"), "what": call.services.stuck_agents.sentence(stuck, titled=True)}


def _limited(call: ApiRequest, limit: Limit) -> dict[str, Any]:
    return {**fields_of(limit, "window", "until"), "what": call.services.limits.sentence(limit)}
