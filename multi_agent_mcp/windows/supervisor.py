"""The supervisor: opens a window for agent sessions that are missing, closes those that have logged out.

`up` runs it in a pane of its own. It only watches files: killing and restarting it changes nothing.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from multi_agent_mcp.errors import Refusal
from multi_agent_mcp.services.overview.missing_sessions import Slot, Window
from multi_agent_mcp.system.file_events import Changes, Watch
from multi_agent_mcp.windows.agent_command import command_of
from multi_agent_mcp.windows.up_down import environment_of
from multi_agent_mcp.windows.window_registry import TeamWindows

LOOK_AGAIN_SECONDS = 2.0
WATCHED = ("ipc", "tasks", "delegations", "sessions")


class Supervisor:
    """One look at a time; between looks it knows nothing that is not in files."""

    def __init__(self, windows: TeamWindows) -> None:
        self.services = windows.services
        self.missing_sessions = self.services.missing_sessions
        self.windows = windows
        self.is_wanted = True

    def run(self, report: Callable[[str], None]) -> None:
        """Supervises until `down`, and reports every window that was opened or closed. Raises `AlreadyExists` when
        another process supervises this session."""
        self.services.supervision.begin()
        changes = Changes()
        with Watch(self._directories(), lambda _: changes.notify()):
            while self.is_wanted:
                seen = changes.count
                for event in self.look():
                    report(event)
                changes.wait(seen, LOOK_AGAIN_SECONDS)

    def look(self) -> list[str]:
        """Closes what is over, opens what is missing; returns what it did. After `down` it does neither any more."""
        try:
            with self.windows.locked():
                self.is_wanted = self.services.supervision.running() == os.getpid()
                return list(self._act()) if self.is_wanted else ["the team is down"]
        except Refusal as refusal:  # tmux hangs, another process holds the lock, the disk is full: it may pass
            return [self.services.texts.sentence(refusal)]

    def _act(self) -> Iterator[str]:
        for slot, window in self.missing_sessions.windows().items():
            if event := self._check(slot, window):
                yield event
        for slot in self.missing_sessions.needed():
            if event := self._fill(slot):
                yield event

    def _check(self, slot: Slot, window: Window) -> str | None:
        """A window whose session has logged out is closed; one that has died is noted, with the failures in a row."""
        if not window.pane:
            return None  # it failed before and rests
        if pane := self.windows.living.get(slot):
            if window.stays or not self.missing_sessions.finished(slot, window):
                return None
            self.windows.close(pane)
            return f"{slot.agent_id} ({slot.purpose}): logged out, window closed"
        failures = 0 if window.stays else self.missing_sessions.failures_after(slot, window)
        if failures:
            self.missing_sessions.record(slot, {}, failures)
            return f"{slot.agent_id} ({slot.purpose}): its command died at once, {failures} times in a row"
        self.missing_sessions.forget(slot)
        return f"{slot.agent_id} ({slot.purpose}): its window is gone"

    def _fill(self, slot: Slot) -> str | None:
        window = self.missing_sessions.window(slot)
        if window is not None and (window.pane or window.rests(self.services.clock())):
            return None
        agent = self.services.agents.get(slot.agent_id)
        failures = window.failures if window is not None else 0
        try:
            if (command := command_of(self.services, agent, slot.purpose)) is None:
                return None
            pane = self.windows.open(slot, command, environment_of(self.services, slot), failures=failures)
        except Refusal as refusal:
            self.missing_sessions.record(slot, {}, failures + 1)
            return f"{slot.agent_id} ({slot.purpose}): {self.services.texts.sentence(refusal)}"
        return f"{slot.agent_id} ({slot.purpose}): window opened" if pane else f"{slot.agent_id}: died at once"

    def _directories(self) -> list[Path]:
        base = self.services.path
        return [base / kind / agent_id for kind in WATCHED for agent_id in self.services.agents.all()]
