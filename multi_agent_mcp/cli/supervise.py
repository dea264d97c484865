"""`supervise`: opens a window for agent sessions that are missing, closes those that have logged out.

`up` runs it in a pane of its own. It only watches files: killing and restarting it changes nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from multi_agent_mcp.bootstrap import Services
from multi_agent_mcp.cli.door import Root, Session, desk, say
from multi_agent_mcp.cli.team import command_of, environment_of
from multi_agent_mcp.config import read_environment
from multi_agent_mcp.errors import InvalidArguments, Refusal
from multi_agent_mcp.services.staffing import Post, Window
from multi_agent_mcp.store.watch import Changes, Watch

if TYPE_CHECKING:
    from multi_agent_mcp.notify.panes import Panes

LOOK_AGAIN_SECONDS = 2.0
WATCHED = ("ipc", "tasks", "delegations", "sessions")


def supervise(root: Root = None, session: Session = None) -> None:
    """Open windows for missing agent sessions and close finished ones, until it is stopped. Runs inside tmux."""
    from multi_agent_mcp.notify.panes import Panes

    with desk(root, session) as opened:
        here = read_environment().pane
        if here is None:
            raise InvalidArguments(reason="supervise runs in a tmux pane; `up` opens one for it")
        services = opened.services
        supervisor = Supervisor(services, Panes(services.workspace, here.socket_path))
        changes = Changes()
        with Watch(_directories(services), lambda _: changes.notify()):
            while True:
                seen = changes.count
                for event in supervisor.look():
                    say(f"{time.strftime('%H:%M:%S')} {event}")
                changes.wait(seen, LOOK_AGAIN_SECONDS)


class Supervisor:
    """One look at a time; between looks it knows nothing that does not stand in files."""

    def __init__(self, services: Services, panes: Panes) -> None:
        self.services = services
        self.staffing = services.staffing
        self.panes = panes

    def look(self) -> Iterator[str]:
        """Closes what is over, opens what is missing; yields what it did."""
        windows = self.staffing.windows()
        for post, window in windows.items():
            if event := self._tend(post, window):
                yield event
        for post in self.staffing.needed():
            if event := self._fill(post):
                yield event

    def _tend(self, post: Post, window: Window) -> str | None:
        """A window whose session has logged out is closed; one that has died is noted, with the failures in a row."""
        if not window.pane:
            return None  # it failed before and rests
        if self.panes.is_there(window.pane):
            if not self.staffing.finished(post, window):
                return None
            self.panes.close(window.pane)
            self.staffing.closed(post)
            return f"{post.agent_id} ({post.purpose}): logged out, window closed"
        failures = self.staffing.failures_after(post, window)
        if failures:
            self.staffing.opened(post, {}, failures)
            return f"{post.agent_id} ({post.purpose}): its command died at once, {failures} times in a row"
        self.staffing.closed(post)
        return f"{post.agent_id} ({post.purpose}): its window is gone"

    def _fill(self, post: Post) -> str | None:
        window = self.staffing.window(post)
        if window is not None and (window.pane or window.rests(self.services.clock())):
            return None
        agent = self.services.agents.get(post.agent_id)
        if post.purpose == "task" and agent.pane_id is not None and self._main_window_runs(agent.id):
            return None
        command = command_of(self.services, agent)
        if command is None:
            return None
        name = agent.id if post.purpose == "task" else f"{agent.id}-chat"
        environment = environment_of(self.services) | {
            "MULTI_AGENT_MCP_AGENT": agent.id,
            "MULTI_AGENT_MCP_PURPOSE": post.purpose,
        }
        failures = window.failures if window is not None else 0
        try:
            place = self.panes.open_window(name, command, environment)
        except Refusal as refusal:  # a command may end before tmux has told us about its window
            self.staffing.opened(post, {}, failures + 1)
            return f"{post.agent_id} ({post.purpose}): {refusal}"
        self.staffing.opened(post, place or {}, failures if place else failures + 1)
        return f"{post.agent_id} ({post.purpose}): window opened" if place else f"{post.agent_id}: died at once"

    def _main_window_runs(self, agent_id: str) -> bool:
        """Whether `up` opened a window for this agent that is still there: its session is about to come."""
        agent = self.services.agents.get(agent_id)
        place = {name: getattr(agent, name) for name in ("pane_id", "socket_path", "pane_pid", "tmux_pid")}
        return agent.extra.get("opened_by") == "up" and self.panes.is_there(place)


def _directories(services: Services) -> list[Path]:
    base = services.workspace.path
    return [base / kind / agent_id for kind in WATCHED for agent_id in services.agents.all()]
