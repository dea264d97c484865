"""The stage: a separate tmux server, panes with composers, and for each pane a client that types like a human."""

from __future__ import annotations

import fcntl
import os
import pty
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.entity import session_name
from multi_agent_mcp.doorbell.tmux.client import pane_place
from multi_agent_mcp.store.workspace import Workspace
from tests.programs import REPOSITORY, stand_in

SCRIPT = Path(__file__).parent / "pane.sh"


@dataclass
class Seat:
    """One agent: its pane, and the terminal of the human who watches it."""

    agent_id: str
    host: str
    log: Path
    pane_id: str
    keyboard: int


class Stage:
    """Use as a context manager. The directory is a short one: a socket's path holds about a hundred bytes."""

    def __init__(self, panes: int, dialogs: float = 0.06) -> None:
        self.dialogs = dialogs
        self.count = panes
        self.directory = Path(tempfile.mkdtemp(prefix="mam-"))
        self.socket = str(self.directory / "s")
        self.root = self.directory / "root"
        self.workspace = Workspace(self.root, session_name("conformance"))
        self.seats: list[Seat] = []
        self._clients: list[int] = []

    def __enter__(self) -> Stage:
        self.workspace.path.mkdir(parents=True)
        self.workspace.registry.create()
        try:
            self.tmux("new-session", "-d", "-s", "spare", "-x", "100", "-y", "40", "exec sleep 100000")
            for number in range(self.count):
                self.seats.append(self._seat(number))
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.tmux("kill-server", check=False)
        for pid in self._clients:
            os.waitpid(pid, 0)
        for seat in self.seats:
            os.close(seat.keyboard)
        shutil.rmtree(self.directory, ignore_errors=True)

    def tmux(self, *arguments: str, check: bool = True) -> str:
        call = ["tmux", "-u", "-f", os.devnull, "-S", self.socket, *arguments]
        done = subprocess.run(call, capture_output=True, text=True, check=False, timeout=10, cwd=REPOSITORY)
        if check and done.returncode:
            raise RuntimeError(f"{arguments}: {done.stderr}")
        return done.stdout.strip()

    def command(self, seat_host: str, log: Path) -> str:
        script = stand_in(self.directory, seat_host)
        return f"exec bash --norc {SCRIPT} {seat_host} {log} {sys.executable} {self.dialogs} {script}"

    def register(self, agent_id: str, pane_id: str) -> None:
        """Registers the agent as its server does when it starts in the pane."""
        place = pane_place(self.socket, pane_id)
        if place is not None:
            self.workspace.registry.update(agent_id, **place)

    def _seat(self, number: int) -> Seat:
        host = ("claude", "codex")[number % 2]
        agent_id, log = f"{host}-{number}", self.root / f"{host}-{number}.log"
        width = ("100", "40")[number % 4 == 3]
        pane_id = self.tmux(
            "new-session", "-d", "-s", agent_id, "-x", width, "-y", "40", "-P", "-F", "#{pane_id}",
            self.command(host, log),
        )  # fmt: skip
        self.tmux("set-option", "-w", "-t", pane_id, "window-size", "manual")  # not by the client's size
        self.workspace.registry.add(Agent(id=agent_id, host=host))
        seat = Seat(agent_id, host, log, pane_id, self._attached(agent_id))
        self.register(agent_id, pane_id)
        return seat

    def _attached(self, session: str) -> int:
        """A human's terminal: a client on a pseudo-terminal. What it is shown is thrown away."""
        pid, descriptor = pty.fork()
        if pid == 0:
            os.execvpe(  # noqa: S606 - the child of a fork becomes tmux
                "tmux",
                ["tmux", "-u", "-S", self.socket, "attach", "-t", f"={session}"],
                {**os.environ, "TERM": "xterm"},
            )
        fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", 42, 110, 0, 0))
        self._clients.append(pid)
        threading.Thread(target=_drain, args=(descriptor,), daemon=True).start()
        return descriptor


def _drain(descriptor: int) -> None:
    while True:
        try:
            if not os.read(descriptor, 1 << 16):
                return
        except OSError:
            return


def wait_for(seats: list[Seat], stage: Stage, seconds: float = 20.0) -> None:
    """Waits until every composer is on its screen."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        names = [stage.tmux("display-message", "-p", "-t", seat.pane_id, "#{pane_current_command}") for seat in seats]
        if names == [seat.host for seat in seats]:
            return
        time.sleep(0.1)
    raise TimeoutError("the composers did not start")
