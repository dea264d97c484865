"""A tmux server of its own with a team of scripted agents on it: where the demos play."""

from __future__ import annotations

import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Self

from multi_agent_mcp.bootstrap import Services, open_session
from multi_agent_mcp.cli.team import examples_directory, open_team
from multi_agent_mcp.errors import AlreadyExists
from multi_agent_mcp.services.team.setup import add_missing, create_session, read_team
from multi_agent_mcp.system.file_events import Changes, Watch

if TYPE_CHECKING:
    from multi_agent_mcp.notify.tmux.client import Tmux

LOOK_AGAIN_SECONDS = 0.5
ENDING = (signal.SIGTERM, signal.SIGHUP)


def _leave(number: int, _: object) -> None:
    """Python would end at once and leave tmux and its agents behind. A second signal must not cut the tidying short."""
    _ignore_endings()
    raise SystemExit(128 + number)


def _ignore_endings() -> None:
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)


class Stage:
    """Makes the session in `directory`, plays on a socket in a short temporary directory (a Unix socket's path has
    room for about 100 characters), and takes tmux down again unless `keep`: at its end, and when a signal ends it."""

    def __init__(self, directory: Path, team_file: str, *, keep: bool = False) -> None:
        self.root = directory / ".multi-agent-mcp"
        self.keep = keep
        self._team = read_team(examples_directory() / team_file)
        if (path := self.root / (self._team.session or "demo")).exists():
            raise AlreadyExists(name=path)  # somebody's team, with mail and tasks of its own

    def __enter__(self) -> Self:
        for number in ENDING:
            signal.signal(number, _leave)
        session = self._team.session or "demo"
        create_session(self.root, session, self._team, None)
        add_missing(self.services.agents, self._team)
        self._sockets = Path(tempfile.mkdtemp(prefix="mam-", dir="/tmp"))  # last: nobody tidies up for one who raises
        self.socket = self._sockets / "tmux"
        return self

    def __exit__(self, *_: object) -> None:
        _ignore_endings()
        if not self.keep:
            self.tmux.cmd("kill-server")
            shutil.rmtree(self._sockets, ignore_errors=True)

    @cached_property
    def services(self) -> Services:
        return open_session(self.root, self._team.session or "demo")

    @property
    def tmux(self) -> Tmux:
        from multi_agent_mcp.notify.tmux.client import Tmux  # every command would wait for libtmux

        return Tmux(socket_path=str(self.socket), config_file="/dev/null")

    def open_windows(self, *, supervisor: bool = False) -> None:
        """One window per agent, with its command from the team file. A finished pane stays to be looked at."""
        open_team(self.services, str(self.socket), "/dev/null", remain=not supervisor, supervisor=supervisor)

    def wait_until_finished(self, seconds: float) -> bool:
        """Waits until every agent with a command has logged out; whether they all did."""
        return self.wait_for([f"sessions/{agent_id}" for agent_id in self._actors()], self._all_finished, seconds)

    def wait_for(self, directories: str | list[str], happened: Callable[[], bool], seconds: float) -> bool:
        """Waits on file events in directories of the session until something happened; whether it did in time."""
        changes = Changes()
        names = [directories] if isinstance(directories, str) else directories
        deadline = time.monotonic() + seconds
        with Watch([self.services.path / name for name in names], lambda _: changes.notify()):
            while True:
                seen = changes.count
                if happened():
                    return True
                if time.monotonic() > deadline:
                    return False
                changes.wait(seen, LOOK_AGAIN_SECONDS)

    def attach_until_finished(self, seconds: float) -> bool:
        """As `wait_until_finished`, with the panes on this terminal."""
        return self.attach_until([f"sessions/{name}" for name in self._actors()], self._all_finished, seconds)

    def attach_until(self, directories: list[str], happened: Callable[[], bool], seconds: float) -> bool:
        """As `wait_for`, with the panes on this terminal until it happened or the human detaches."""
        outcome: list[bool] = []

        def wait() -> None:
            outcome.append(self.wait_for(directories, happened, seconds))
            self.tmux.cmd("detach-client", "-s", f"={self._tmux_session}")

        waiter = threading.Thread(target=wait, daemon=True)  # a signal ends us without it
        waiter.start()
        subprocess.run(["tmux", "-S", str(self.socket), "attach"], check=False)
        waiter.join()
        return outcome[0]

    @property
    def _tmux_session(self) -> str:
        from multi_agent_mcp.notify.tmux.windows import tmux_session

        return tmux_session(self.root, self.services.session)

    def screens(self) -> Iterator[str]:
        """What stands in the panes, for a demo that went wrong."""
        for agent in self.services.agents.all().values():
            if agent.pane_id is not None:
                yield f"--- {agent.id}"
                yield from self.tmux.cmd("capture-pane", "-p", "-t", agent.pane_id).stdout

    def _actors(self) -> list[str]:
        return [agent.id for agent in self._team.agents if agent.command is not None]

    def _all_finished(self) -> bool:
        return all(
            any(session.ended_at is not None for session in self.services.workspace.sessions.all(agent_id))
            for agent_id in self._actors()
        )
