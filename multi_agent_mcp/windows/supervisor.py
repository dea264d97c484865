"""The supervisor: opens windows for missing agent sessions, and closes those of sessions that have logged out.

`up` runs it in a separate pane. All its state is in files, so it may be killed and restarted at any time.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from multi_agent_mcp.errors import Refusal
from multi_agent_mcp.system.file_events import Changes, Watch
from multi_agent_mcp.windows.agent_command import command_of
from multi_agent_mcp.windows.continuing import beginning_of, end_left_over, refuse
from multi_agent_mcp.windows.host_looks import HostLooks
from multi_agent_mcp.windows.up_down import register_missing

if TYPE_CHECKING:
    from multi_agent_mcp.services.overview.supervision import Slot, Window
    from multi_agent_mcp.windows.window_registry import TeamWindows

LOOK_AGAIN_SECONDS = 2.0
OPENED_AT_ONCE = 2
"""The most windows that are opened at one look: hosts take seconds of a processor to start."""
WATCHED = ("ipc", "tasks", "delegations", "sessions")


class Supervisor:
    """The supervisor of one session. It keeps no state between looks except in files."""

    def __init__(self, windows: TeamWindows) -> None:
        self.services = windows.services
        self.missing_sessions = self.services.missing_sessions
        self.windows = windows
        self.host_looks = HostLooks(self.services)
        self.is_wanted = True
        self.began = self.services.clock()
        """Windows from before may have gone with their tmux server: their hosts have refused nothing."""

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
            self.services.pane_looks.refresh(self.services.host_in_pane, self.services.panes.dialog)
            limited = list(self.host_looks.look())
            told = self.services.stuck_agents.tell()
            self.services.settle_reservations()
        except Refusal as refusal:
            return [self.services.texts.sentence(refusal)]
        facts = [
            {"agent_id": notice.sender_id, "superior_id": notice.target_agent_id, "what": notice.reason}
            for notice in told
        ]
        events = [self.services.people("supervisor.stuck", **values) for values in facts]
        return [self.services.limits.sentence(limit) for limit in limited] + events

    def _act(self) -> Iterator[str]:
        for slot, window in self.missing_sessions.windows().items():
            if event := self._check(slot, window):
                yield event
        for slot in islice(filter(self._may_fill, self.missing_sessions.needed()), OPENED_AT_ONCE):
            if event := self._fill(slot):
                yield event

    def _check(self, slot: Slot, window: Window) -> str | None:
        """Closes a window whose session has logged out, and records one that has died with its consecutive failures;
        returns the event."""
        if not window.pane:
            return None  # it failed before and waits for its next attempt
        if pane := self.windows.living.get(slot):
            if window.stays or not self.missing_sessions.finished(slot, window):
                return None
            self.windows.close(pane)
            return self._say("closed", slot)
        end_left_over(self.services, slot.agent_id, slot.purpose)
        if window.opened_at >= self.began and self.missing_sessions.has_refused(slot, window):
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
        return window is None or not (window.pane or window.rests(self.services.clock()))

    def _fill(self, slot: Slot) -> str | None:
        window = self.missing_sessions.window(slot)
        agent = self.services.agents.get(slot.agent_id)
        failures = window.failures if window is not None else 0
        try:
            beginning = beginning_of(self.services, agent, slot.purpose)
            if (command := command_of(self.services, agent, slot.purpose, beginning)) is None:
                return None
            pane = self.windows.open(slot, command, failures=failures, continues=beginning.conversation)
        except Refusal as refusal:
            self.missing_sessions.record(slot, {}, failures + 1)
            return self._say("refused", slot, reason=self.services.texts.sentence(refusal))
        if pane is not None and slot.purpose == "task":
            register_missing(self.windows, agent, pane)  # its host may ask something before its server starts
        if pane and beginning.continues:
            return self._say("continued", slot)
        return self._say("opened" if pane else "ended", slot)

    def _say(self, key: str, slot: Slot, **facts: object) -> str:
        return self.services.people(f"supervisor.{key}", agent_id=slot.agent_id, purpose=slot.purpose, **facts)

    def _directories(self) -> list[Path]:
        base = self.services.path
        mine = (base / kind / agent_id for kind in WATCHED for agent_id in self.services.agents.all())
        return [*mine, base / "questions"]
