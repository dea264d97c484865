"""The agents as a tree with their sessions, tasks and waits; interrupting and resuming them; their files and panes."""

from __future__ import annotations

import hashlib
import json
import shlex
from typing import Any

from multi_agent_mcp.domain.agent import Agent, AgentSession, in_tree_order
from multi_agent_mcp.domain.entity import fields_of
from multi_agent_mcp.domain.notification import Notification
from multi_agent_mcp.domain.stuck import Stuck
from multi_agent_mcp.doorbell.tmux.snapshot import GONE
from multi_agent_mcp.errors import NotAnswered, Unauthorized
from multi_agent_mcp.services.overview.snapshot import AgentRow
from multi_agent_mcp.services.team.limited import Limited
from multi_agent_mcp.services.validation import require_choice
from multi_agent_mcp.web.request import ApiRequest
from multi_agent_mcp.web.serializers import handoff_row, moment, task_card

NOTIFICATIONS_MAX = 20
HAND_OFFS_SHOWN = 5
ACTIONS = ("blocked", "cancel", "pause")


def tree(call: ApiRequest) -> dict[str, Any]:
    """Every agent, each below its superior, with its depth in the tree; the tokens that each of them took today, as far
    as is known."""
    tokens = call.services.contributions.ask("tokens", 1, call.zone) or {}
    return {"agents": call.services.unchanged.get("agents", lambda: _agents(call)), "tokens": tokens}


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
    if notice is None:
        return {"notification_id": None, "action": action, "task_id": call.optional_text("task_id")}
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
        "task": task_card(call.features, row.task) if row.task else None,
        "last_activity_at": moment(call.services.sessions.last_activity(agent.id)),
        "wait": fields_of(row.wait, "admin_id", "task_id", "since") if row.wait else None,
        "stuck": _stuck(call, row.stuck) if row.stuck else None,
        "limited": _limited(row.limit) if row.limit else None,
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


def _limited(limit: Limited) -> dict[str, Any]:
    return {**fields_of(limit, "window", "until"), "what": limit.words}


def files(call: ApiRequest) -> dict[str, Any]:
    """An agent's files, as the features have them: what it has edited and reserved, its worktree."""
    services, agent = call.services, call.services.agents.get(call.path["agent_id"])
    return {
        key: part
        for found in services.contributions.each("of_agent", agent, given=services)
        for key, part in found.items()
    }


def pane(call: ApiRequest) -> dict[str, Any]:
    """The screen of an agent's pane and its dialog. `?seen=` is the `state` that the page already has: if nothing has
    changed, the answer holds only `state`. For an agent of another machine it names only the machine."""
    agent, services = call.services.agents.get(call.path["agent_id"]), call.services
    if (home := services.agents.elsewhere(agent)) is not None:
        return {"state": home, "elsewhere": home, "dialog": None, "attach": None}
    view, dialog = services.panes.look(agent)
    shown: dict[str, Any] = {"reason": view} if isinstance(view, str) else {"screen": vars(view)}
    shown |= {"dialog": dialog and dialog.as_answer()}
    shown["attach"] = None if view in GONE else _attach(agent)
    state = hashlib.sha256(json.dumps(shown).encode()).hexdigest()[:16]
    return {"state": state} if call.parameter("seen") == state else {"state": state, **shown}


def scrollback(call: ApiRequest) -> dict[str, Any]:
    """The screen and the newest rows above it."""
    view, _ = call.services.panes.look(_here(call), scrollback=True)
    return {"reason": view} if isinstance(view, str) else {"screen": vars(view)}


def answer_dialog(call: ApiRequest) -> dict[str, Any]:
    """Presses the key of a choice, if exactly this dialog is still shown. Raises `NotAnswered` and `TmuxTimeout`."""
    agent = _typeable(call)
    came = call.services.panes.answer(agent, call.text("dialog_id"), call.text("choice"), call.me)
    call.services.recent_attention.look_again()
    if came.state == "refused":
        raise NotAnswered(agent_id=agent.id, reason=call.services.people.words_of(came.reason or ""))
    return came.as_answer()


def type_line(call: ApiRequest) -> dict[str, Any]:
    """Types a line into an empty composer and enters it, as the doorbell does; else returns why nothing was typed."""
    return call.services.panes.type_line(_typeable(call), call.text("text"), call.me).as_answer()


def _here(call: ApiRequest) -> Agent:
    return call.services.agents.here(call.path["agent_id"])


def _typeable(call: ApiRequest) -> Agent:
    if not call.services.settings.console_answers:
        raise Unauthorized("console_silent")
    return _here(call)


def _attach(agent: Agent) -> str | None:
    """The command that shows the pane in a terminal."""
    if agent.pane_id is None or agent.socket_path is None:
        return None
    socket, pane = shlex.quote(agent.socket_path), shlex.quote(agent.pane_id)
    return f"tmux -S {socket} attach -t {pane}"
