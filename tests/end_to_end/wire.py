"""A host that exchanges raw lines of bytes with `serve`, so that it can send anything and leave answers unread."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.end_to_end.support import Team, wait_until
from tests.soak.lives import Served

PAGE = 4096
SET_PIPE_SIZE = getattr(fcntl, "F_SETPIPE_SZ", 1031)


def request(number: object, method: str = "ping", **params: Any) -> bytes:
    """A request as a line without its end."""
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}).encode()


def call(number: object, tool: str, **arguments: Any) -> bytes:
    return request(number, "tools/call", name=tool, arguments=arguments)


class Wire(Served):
    """The host of one agent's server."""

    @property
    def process(self) -> subprocess.Popen[bytes]:
        return self._process

    def say(self, *lines: bytes) -> None:
        for line in lines:
            self._write(line + b"\n")

    def hear(self) -> dict[str, Any]:
        """The next message. Raises `Died` at the end of output."""
        return self._line()

    def heard_until(self, number: object) -> list[dict[str, Any]]:
        """Returns every message before the answer to this request."""
        heard: list[dict[str, Any]] = []
        while (message := self.hear()).get("id") != number:
            heard.append(message)
        return heard

    def narrow(self) -> None:
        """Reduces the server's output pipe to one page, less than an answer with mail in it."""
        fcntl.fcntl(self._reading, SET_PIPE_SIZE, PAGE)

    def wait_until_full(self) -> None:
        wait_until(lambda: self._lying_there() >= PAGE, "the pipe is full")

    def close_output(self) -> None:
        assert self._process.stdout is not None
        self._process.stdout.close()

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def _lying_there(self) -> int:
        """The number of bytes waiting to be read."""
        return int(struct.unpack("i", fcntl.ioctl(self._reading, termios.FIONREAD, b"\0" * 4))[0])


@contextmanager
def wire(team: Team, agent_id: str = "worker-a") -> Iterator[Wire]:
    """The server of an agent, initialized; killed at the end."""
    with _connected(team, ["--root", str(team.root), "--session", team.session, "--agent", agent_id]) as host:
        yield host


@contextmanager
def wire_to_later(team: Team, clock: Path) -> Iterator[Wire]:
    """A server without an agent, by the clock in this file (tests.end_to_end.later)."""
    command = [sys.executable, "-m", "tests.end_to_end.later"]
    with _connected(team, [str(team.root), team.session, str(clock)], command=command) as host:
        yield host


@contextmanager
def _connected(team: Team, where: Sequence[str], **options: Any) -> Iterator[Wire]:
    """Yields the server's wire; its standard error must not contain a traceback."""
    team.started += 1
    errors = team.base / f"wire-{team.started}.stderr"
    host = Wire(team.env, errors, where, **options)
    try:
        yield host
    finally:
        host.kill()
        host.gone()
    said = errors.read_text(encoding="utf-8")
    assert "Traceback" not in said, said
