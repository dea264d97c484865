"""Waits until every agent that `up` has opened is ready: a live server, or a screen that waits for a human."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from multi_agent_mcp.bootstrap import Services
from multi_agent_mcp.notify.tmux.client import Tmux
from multi_agent_mcp.notify.tmux.profiles import Profile, load_profiles, recognise
from multi_agent_mcp.notify.tmux.screens import UNKNOWN, classify, dialog_topic
from multi_agent_mcp.notify.tmux.snapshot import PaneSnapshot, take_snapshot
from multi_agent_mcp.notify.tmux.team_panes import last_lines
from multi_agent_mcp.windows.agent_state import (
    DIALOG,
    ENDED,
    NO_SERVER,
    OPEN,
    READY,
    RUNNING,
    STARTING,
    UNKNOWN_SCREEN,
    AgentState,
)

LOOK_AGAIN_SECONDS = 0.3
LASTS_SECONDS = 10.0
"""The time after which an unrecognised screen is reported: a starting host shows many for a moment."""
_UNSETTLED = (STARTING, RUNNING)

Report = Callable[[Sequence[AgentState]], None]


class Readiness:
    """Examines the opened panes repeatedly, without typing anything."""

    def __init__(self, services: Services, opened: Sequence[AgentState]) -> None:
        self.services = services
        self._profiles = load_profiles(services.root / "hosts")
        self._seen = list(opened)
        self._unknown_since: dict[str, float] = {}

    def wait(self, seconds: float, report: Report) -> list[AgentState]:
        """Returns the states once two consecutive looks find all agents settled, after the given seconds, or on Ctrl-C.
        Agents that are then still starting have `no_server` or `unknown_screen`. `report` gets the states of each
        look."""
        end = time.monotonic() + seconds
        try:
            while True:
                before, self._seen = self._seen, [self._look(item) for item in self._seen]
                report(self._seen)
                is_settled = before == self._seen and all(item.state not in _UNSETTLED for item in before)
                if is_settled or time.monotonic() >= end:
                    break
                time.sleep(LOOK_AGAIN_SECONDS)
        except KeyboardInterrupt:
            pass
        return list(map(self._at_the_end, self._seen))

    def _look(self, item: AgentState) -> AgentState:
        if item.pane_id is None or item.socket_path is None:
            return item
        snapshot = take_snapshot(Tmux(item.socket_path), item.pane_id)
        if snapshot == "tmux_timeout":
            return item
        is_agent = item.agent_id in self.services.agents.all()
        is_served = is_agent and self._is_served(item)
        if isinstance(snapshot, str):
            return replace(item, state=READY if is_served else ENDED, last_lines=())
        if snapshot.facts.dead and not is_served:
            return replace(item, state=ENDED, last_lines=last_lines(item.socket_path, item.pane_id))
        state = self._state(item, snapshot, is_served=is_served) if is_agent else OPEN
        return replace(item, state=state, last_lines=())

    def _state(self, item: AgentState, snapshot: PaneSnapshot, *, is_served: bool) -> str:
        """Returns the state of an agent whose program runs. A dialog takes precedence over a live server, which some
        hosts start behind it: the agent does nothing until it is answered."""
        shown = self._shown(item, snapshot)
        if shown == "login":
            return f"{DIALOG}:login"
        if shown is not None and shown.startswith(DIALOG):
            return shown
        if shown == UNKNOWN:
            since = self._unknown_since.setdefault(item.agent_id, time.monotonic())
            return UNKNOWN_SCREEN if time.monotonic() - since >= LASTS_SECONDS else STARTING
        self._unknown_since.pop(item.agent_id, None)
        return READY if is_served else STARTING

    def _shown(self, item: AgentState, snapshot: PaneSnapshot) -> str | None:
        """Returns the state of a known host's screen, with the topic of a dialog; None without a profile for its
        screen, or if it is still blank."""
        agent = self.services.agents.get(item.agent_id)
        profile = recognise(agent, snapshot.facts.pane_pid, self._profiles)
        screen = snapshot.screen
        if not isinstance(profile, Profile) or profile.composer is None or not any(map(str.strip, screen.rows)):
            return None
        state = classify(profile, screen).state
        topic = dialog_topic(profile, screen) if state == DIALOG else None
        return state if topic is None else f"{DIALOG}:{topic}"

    def _is_served(self, item: AgentState) -> bool:
        sessions = self.services.sessions
        if any(session.id not in item.earlier for session in sessions.running(item.agent_id)):
            return True
        return not item.earlier and sessions.alive(item.agent_id)  # it has logged out, and waits for its next call

    def _at_the_end(self, item: AgentState) -> AgentState:
        if item.state not in _UNSETTLED:
            return item
        return replace(item, state=UNKNOWN_SCREEN if item.agent_id in self._unknown_since else NO_SERVER)
