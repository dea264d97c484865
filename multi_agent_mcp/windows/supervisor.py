"""The supervisor: opens windows for missing agent sessions, and closes those of sessions that have logged out."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.slot import Slot
from multi_agent_mcp.errors import Refusal
from multi_agent_mcp.services.overview.missing_sessions import Window
from multi_agent_mcp.system.file_events import Changes, Watch
from multi_agent_mcp.windows.agent_command import beginning_of, command_of, end_left_over, has_refused, refuse
from multi_agent_mcp.windows.places import has_place
from multi_agent_mcp.windows.readiness import ENDED, NO_PROGRAM, REFUSED, STARTING
from multi_agent_mcp.windows.up_down import close_panes, open_waiting, register_missing
from multi_agent_mcp.windows.window_registry import TeamWindows

LOOK_AGAIN_SECONDS = 2.0
OPENED_AT_ONCE = 2
"""The most windows that are opened at one look: hosts take seconds of a processor to start."""
WATCHED = ("ipc", "tasks", "delegations", "sessions")


class Supervisor:
    """The supervisor of one session, which `up` runs in a separate pane. It keeps no state between looks except in
    files, so it may be killed and restarted at any time."""

    def __init__(self, windows: TeamWindows) -> None:
        self.services = windows.services
        self.missing_sessions = self.services.missing_sessions
        self.windows = windows
        self.is_wanted = True

    def run(self, report: Callable[[str], None]) -> None:
        """Supervises until `down`, or until the session's directory is gone, and reports every window opened or closed.
        Raises `AlreadyExists` if another process supervises this session."""
        self.services.supervision.begin()
        changes = Changes()
        with Watch(self._directories(), lambda _: changes.notify()), self.services.people_doorbells():
            while self.is_wanted:
                seen = changes.count
                for event in (*self.look(), *self.look_after_agents()):
                    report(event)
                changes.wait(seen, LOOK_AGAIN_SECONDS)

    def look(self) -> list[str]:
        """Closes finished windows and opens missing ones, unless `down` has ended supervision; returns the events."""
        try:
            with self.windows.locked():
                self.is_wanted = self.services.supervision.running() == os.getpid()
                return list(self._act()) if self.is_wanted else [self.services.people("supervisor.down")]
        except Refusal as refusal:  # tmux hangs, another process holds the lock, the disk is full: it may pass
            self.is_wanted = self.services.path.is_dir()
            return [self.services.texts.sentence(refusal)]

    def look_after_agents(self) -> list[str]:
        """Looks at the agents' hosts, notifies the superiors of stuck and limited agents, and ends the reservations of
        those that are gone, unless `down` has ended supervision; returns the events."""
        if not self.is_wanted:
            return []
        try:
            self.services.pane_looks.refresh(self.services.pane_notifier.host, self.services.panes.dialog)
            found = self.services.contributions.each("supervised")
            seen = [line for lines in found for line in lines]
            told = self.services.stuck_agents.tell()
            self.services.contributions.end_expired()
        except Refusal as refusal:
            return [self.services.texts.sentence(refusal)]
        facts = [
            {"agent_id": notice.sender_id, "superior_id": notice.target_agent_id, "what": notice.reason}
            for notice in told
        ]
        events = [self.services.people("supervisor.stuck", **values) for values in facts]
        return seen + events

    def _act(self) -> Iterator[str]:
        for slot, window in self.missing_sessions.windows().items():
            if event := self._check(slot, window):
                yield event
        yield from filter(None, islice(self._openings(), OPENED_AT_ONCE))

    def _openings(self) -> Iterator[str | None]:
        """Opens a window at each step: first of the agents that wait for a place, in the team's order."""
        for agent in self.services.agents.at_home().values():
            if not self.missing_sessions.waits(Slot(agent.id, "task")):
                continue
            if not has_place(self.windows, agent):
                break
            yield self._open_waiting(agent)
        for slot in filter(self._may_fill, self.missing_sessions.needed()):
            yield self._fill(slot)

    def _open_waiting(self, agent: Agent) -> str | None:
        slot, state = Slot(agent.id, "task"), open_waiting(self.windows, agent)
        if state.state in (REFUSED, NO_PROGRAM):
            return self._say("refused", slot, reason=state.note(self.services.people))
        if state.state not in (STARTING, ENDED):
            return None  # it runs already
        began = "continued" if state.beginning.continues else "opened"
        return self._say(began if state.state == STARTING else "ended", slot)

    def _check(self, slot: Slot, window: Window) -> str | None:
        """Closes a window whose session has logged out, and records one that has died with its consecutive failures;
        returns the event."""
        if not window.pane:
            return None  # it failed before and waits for its next attempt
        if any(lost.slot == slot for lost in self.windows.lost):
            return None  # it lives, where nobody can look; `down` needs the record
        if pane := self.windows.living.get(slot):
            if window.stays or not self.missing_sessions.finished(slot, window):
                return None
            close_panes(self.windows, [pane])
            return self._say("closed", slot)
        end_left_over(self.services, slot.agent_id, slot.purpose)
        lines = self.windows.kept_lines(slot) if window.continues else []
        if not window.stays:
            self.windows.close_kept(slot)
        if self.missing_sessions.has_refused(slot, window) and has_refused(self._command(slot), lines):
            refuse(self.services, window.continues or "")
            self.missing_sessions.forget(slot)
            return self._say("refused_conversation", slot)
        failures = 0 if window.stays else self.missing_sessions.failures_after(slot, window)
        if failures:
            self.missing_sessions.record(slot, {}, failures)
            return self._say("died", slot, count=failures)
        self.missing_sessions.forget(slot)
        return self._say("gone", slot)

    def _may_fill(self, slot: Slot) -> bool:
        window = self.missing_sessions.window(slot)
        if window is not None and (window.pane or window.waits or window.rests(self.services.clock())):
            return False
        if self.windows.runs_elsewhere(slot):
            return False
        return has_place(self.windows, self.services.agents.get(slot.agent_id))

    def _fill(self, slot: Slot) -> str | None:
        window = self.missing_sessions.window(slot)
        agent = self.services.agents.get(slot.agent_id)
        failures = window.failures if window is not None else 0
        try:
            self.windows.require_reached(slot)
            beginning = beginning_of(self.services, agent, slot.purpose)
            shell = self.windows.shell_of(slot)
            if (command := command_of(self.services, agent, slot.purpose, beginning, shell)) is None:
                return None
            told = beginning.conversation
            pane = self.windows.open(slot, command, failures=failures, remains=told is not None, continues=told)
        except Refusal as refusal:
            self.missing_sessions.record(slot, {}, failures + 1)
            return self._say("refused", slot, reason=self.services.texts.sentence(refusal))
        if pane is not None and slot.purpose == "task":
            register_missing(self.windows, agent, pane)  # its host may ask something before its server starts
        if pane and beginning.continues:
            return self._say("continued", slot)
        return self._say("opened" if pane else "ended", slot)

    def _command(self, slot: Slot) -> str | None:
        return self.services.agents.get(slot.agent_id).command

    def _say(self, key: str, slot: Slot, **facts: object) -> str:
        return self.services.people(f"supervisor.{key}", agent_id=slot.agent_id, purpose=slot.purpose, **facts)

    def _directories(self) -> list[Path]:
        base = self.services.path
        mine = (base / kind / agent_id for kind in WATCHED for agent_id in self.services.agents.all())
        return [*mine, base / "questions"]
