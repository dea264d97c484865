"""`supervise`: opens a window for agent sessions that are missing, closes those that have logged out.

`up` runs it in a pane of its own. It only watches files: killing and restarting it changes nothing.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from multi_agent_mcp.bootstrap import Services
from multi_agent_mcp.cli.context import Root, Session, say, session_context
from multi_agent_mcp.cli.team import command_of, environment_of
from multi_agent_mcp.config import read_environment
from multi_agent_mcp.errors import InvalidArguments, Refusal
from multi_agent_mcp.services.overview.missing_sessions import Slot, Window
from multi_agent_mcp.services.overview.supervision import Supervision
from multi_agent_mcp.store.files.locks import WINDOWS
from multi_agent_mcp.system.file_events import Changes, Watch

if TYPE_CHECKING:
    from multi_agent_mcp.cli.windows import Windows

LOOK_AGAIN_SECONDS = 2.0
WATCHED = ("ipc", "tasks", "delegations", "sessions")


def supervise(root: Root = None, session: Session = None) -> None:
    """Open windows for missing agent sessions and close finished ones, until `down` or Ctrl-C. Runs inside tmux."""
    from multi_agent_mcp.cli.windows import Windows

    with session_context(root, session) as context:
        here = read_environment().pane
        if here is None:
            raise InvalidArguments(reason="supervise runs in a tmux pane; `up` opens one for it")
        services = context.services
        supervision = Supervision(services.workspace)
        with services.workspace.locks.held(WINDOWS):
            supervision.begin()
        supervisor = Supervisor(services, supervision, Windows(services, here.socket_path))
        changes = Changes()
        with Watch(_directories(services), lambda _: changes.notify()):
            while supervisor.is_wanted:
                seen = changes.count
                for event in supervisor.look():
                    say(f"{time.strftime('%H:%M:%S')} {event}")
                changes.wait(seen, LOOK_AGAIN_SECONDS)


class Supervisor:
    """One look at a time; between looks it knows nothing that does not stand in files."""

    def __init__(self, services: Services, supervision: Supervision, windows: Windows) -> None:
        self.services = services
        self.staffing = services.missing_sessions
        self.supervision = supervision
        self.windows = windows
        self.is_wanted = True

    def look(self) -> list[str]:
        """Closes what is over, opens what is missing; says what it did. After `down` it does neither any more."""
        try:
            with self.windows.looking():
                self.is_wanted = self.supervision.running() == os.getpid()
                return list(self._act()) if self.is_wanted else ["the team is down"]
        except Refusal as refusal:  # tmux hangs, somebody holds the lock, the disk is full: it may pass
            return [self.services.texts.sentence(refusal)]

    def _act(self) -> Iterator[str]:
        for post, window in self.staffing.windows().items():
            if event := self._tend(post, window):
                yield event
        for post in self.staffing.needed():
            if event := self._fill(post):
                yield event

    def _tend(self, post: Slot, window: Window) -> str | None:
        """A window whose session has logged out is closed; one that has died is noted, with the failures in a row."""
        if not window.pane:
            return None  # it failed before and rests
        if pane := self.windows.living.get(post):
            if window.stays or not self.staffing.finished(post, window):
                return None
            self.windows.close(pane)
            return f"{post.agent_id} ({post.purpose}): logged out, window closed"
        failures = 0 if window.stays else self.staffing.failures_after(post, window)
        if failures:
            self.staffing.context(post, {}, failures)
            return f"{post.agent_id} ({post.purpose}): its command died at once, {failures} times in a row"
        self.staffing.closed(post)
        return f"{post.agent_id} ({post.purpose}): its window is gone"

    def _fill(self, post: Slot) -> str | None:
        window = self.staffing.window(post)
        if window is not None and (window.pane or window.rests(self.services.clock())):
            return None
        command = command_of(self.services, self.services.agents.get(post.agent_id))
        if command is None:
            return None
        environment = environment_of(self.services) | {
            "MULTI_AGENT_MCP_AGENT": post.agent_id,
            "MULTI_AGENT_MCP_PURPOSE": post.purpose,
        }
        failures = window.failures if window is not None else 0
        try:
            pane = self.windows.open(post, command, environment, failures=failures)
        except Refusal as refusal:
            self.staffing.context(post, {}, failures + 1)
            return f"{post.agent_id} ({post.purpose}): {self.services.texts.sentence(refusal)}"
        return f"{post.agent_id} ({post.purpose}): window opened" if pane else f"{post.agent_id}: died at once"


def _directories(services: Services) -> list[Path]:
    base = services.path
    return [base / kind / agent_id for kind in WATCHED for agent_id in services.agents.all()]
