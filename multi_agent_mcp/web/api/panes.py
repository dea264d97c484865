"""Agents' panes: their screens, their hosts' dialogs, and typing a line into an empty composer."""

from __future__ import annotations

import hashlib
import json
import shlex
from typing import TYPE_CHECKING, Any

from multi_agent_mcp.doorbell.tmux.snapshot import GONE
from multi_agent_mcp.errors import NotAnswered, Unauthorized

if TYPE_CHECKING:
    from multi_agent_mcp.domain.agent import Agent
    from multi_agent_mcp.web.request import ApiRequest


def show(call: ApiRequest) -> dict[str, Any]:
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
    view, _ = call.services.panes.look(_agent(call), scrollback=True)
    return {"reason": view} if isinstance(view, str) else {"screen": vars(view)}


def answer(call: ApiRequest) -> dict[str, Any]:
    """Presses the key of a choice, if exactly this dialog is still shown. Raises `NotAnswered` and `TmuxTimeout`."""
    agent = _typeable(call)
    came = call.services.panes.answer(agent, call.text("dialog_id"), call.text("choice"), call.me)
    call.services.recent_attention.look_again()
    if came.state == "refused":
        raise NotAnswered(agent_id=agent.id, reason=call.services.people.words_of(came.reason or ""))
    return came.as_answer()


def line(call: ApiRequest) -> dict[str, Any]:
    """Types a line into an empty composer and enters it, as the doorbell does; else returns why nothing was typed."""
    return call.services.panes.type_line(_typeable(call), call.text("text"), call.me).as_answer()


def _agent(call: ApiRequest) -> Agent:
    return call.services.agents.here(call.path["agent_id"])


def _typeable(call: ApiRequest) -> Agent:
    if not call.services.settings.console_answers:
        raise Unauthorized("console_silent")
    return _agent(call)


def _attach(agent: Agent) -> str | None:
    """The command that shows the pane in a terminal."""
    if agent.pane_id is None or agent.socket_path is None:
        return None
    socket, pane = shlex.quote(agent.socket_path), shlex.quote(agent.pane_id)
    return f"tmux -S {socket} attach -t {pane}"
