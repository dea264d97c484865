"""The stage of the demos: a separate tmux server with a team of scripted agents."""

from __future__ import annotations

import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Self

from multi_agent_mcp.bootstrap import open_session
from multi_agent_mcp.doorbell.tmux.server import Server
from multi_agent_mcp.doorbell.tmux.team_panes import tmux_session
from multi_agent_mcp.errors import AlreadyExists
from multi_agent_mcp.services.team.setup import add_missing, create_session, read_team
from multi_agent_mcp.system.file_events import Changes, Watch
from multi_agent_mcp.windows.agent_command import examples_directory
from multi_agent_mcp.windows.startup import Startup
from multi_agent_mcp.windows.window_registry import TeamWindows

if TYPE_CHECKING:
    from multi_agent_mcp.wiring import Services

SECONDS = 120.0
LOOK_AGAIN_SECONDS = 0.5
ENDING = (signal.SIGTERM, signal.SIGHUP)


def _leave(number: int, _: object) -> None:
    """Exits so that tmux is stopped, which the signal's default action would not do. Further signals are ignored, so
    that they do not interrupt the clean-up."""
    _ignore_endings()
    raise SystemExit(128 + number)


def _ignore_endings() -> None:
    for number in ENDING:
        signal.signal(number, signal.SIG_IGN)


class Stage:
    """Makes the session in `directory` and a tmux server, with its socket in a short temporary directory (a Unix
    socket's path is limited to about 100 characters). Unless `keep`, the server is stopped at the end, also after a
    signal. With `attach` the panes are shown in this terminal while it waits."""

    def __init__(
        self, directory: Path, team_file: str, language: str, *, keep: bool = False, attach: bool = False
    ) -> None:
        self.root = directory / ".multi-agent-mcp"
        self.language = language
        self.keep = keep
        self.attach = attach
        self._team = read_team(examples_directory() / team_file)
        if (path := self.root / (self._team.session or "demo")).exists():
            raise AlreadyExists(name=path)  # an existing team with its own mail and tasks

    def __enter__(self) -> Self:
        for number in ENDING:
            signal.signal(number, _leave)
        create_session(self.root, self.session, self._team, self.language)
        add_missing(self.services.agents, self._team)
        self._sockets = Path(tempfile.mkdtemp(prefix="mam-", dir="/tmp"))  # last: after a raise nothing removes it
        self.socket = self._sockets / "tmux"
        return self

    def __exit__(self, *_: object) -> None:
        _ignore_endings()
        if not self.keep:
            self.tmux.cmd("kill-server")
            shutil.rmtree(self._sockets, ignore_errors=True)

    @property
    def session(self) -> str:
        return self._team.session or "demo"

    @cached_property
    def services(self) -> Services:
        return open_session(self.root, self.session)

    @property
    def tmux(self) -> Server:
        return Server(self.socket, config_file="/dev/null")

    @property
    def actors(self) -> list[str]:
        """The agents with a command in the team file."""
        return [agent.id for agent in self._team.agents if agent.command is not None]

    @property
    def options(self) -> list[str]:
        """The options with which a command finds the session."""
        return ["--root", str(self.root), "--session", self.session]

    def open_windows(self, *, supervisor: bool = False) -> None:
        """Opens one window per actor. The pane of a finished actor stays, for inspection."""
        windows = TeamWindows(self.services, str(self.socket), "/dev/null")
        Startup(windows).open(supervisor=supervisor, owner=False)

    def wait_for(self, directories: Iterable[str], happened: Callable[[], bool], seconds: float = SECONDS) -> bool:
        """Waits, by file events in directories of the session, until `happened` is true; returns whether it was in
        time."""
        changes = Changes()
        deadline = time.monotonic() + seconds
        with Watch([self.services.path / name for name in directories], lambda _: changes.notify()):
            while True:
                seen = changes.count
                if happened():
                    return True
                if time.monotonic() > deadline:
                    return False
                changes.wait(seen, LOOK_AGAIN_SECONDS)

    def play_until(self, directories: Iterable[str], happened: Callable[[], bool], seconds: float = SECONDS) -> bool:
        """As `wait_for`; with `attach` the panes are shown meanwhile, at most until the human detaches."""
        if not self.attach:
            return self.wait_for(directories, happened, seconds)
        outcome: list[bool] = []

        def wait() -> None:
            outcome.append(self.wait_for(directories, happened, seconds))
            self.tmux.cmd("detach-client", "-s", f"={tmux_session(self.root, self.session)}")

        waiter = threading.Thread(target=wait, daemon=True)  # a signal ends us without it
        waiter.start()
        subprocess.run(["tmux", "-S", str(self.socket), "attach"], check=False)
        waiter.join()
        return outcome[0]

    def screens(self) -> Iterator[str]:
        """Yields the text in the panes, to report a failed demo."""
        for agent in self.services.agents.all().values():
            if agent.pane_id is not None:
                yield f"--- {agent.id}"
                yield from self.tmux.pane(agent.pane_id).capture_pane()
