"""An agent's server as its host sees it, one life at a time: `serve` over stdio, or a forked seat of the nursery."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.end_to_end.support import COMMAND, REPOSITORY, _runs, wait_until

PATIENCE_SECONDS = 120.0
EXECUTED = "multi-agent-mcp/executed"
PROTOCOL = "2025-06-18"


class Died(Exception):
    """The server's process ended before it answered."""


class Hung(AssertionError):
    """The server neither answered nor ended."""


@dataclass(frozen=True)
class Reply:
    """`answer` None: replaced by an interrupt, and `executed` says whether the call had run."""

    answer: Mapping[str, Any] | None
    executed: bool = True

    @property
    def done(self) -> bool:
        return self.answer is not None and bool(self.answer["success"])

    @property
    def error(self) -> str:
        return "" if self.answer is None else str(self.answer.get("error", ""))


class Life:
    """The common part of both kinds of server: writing requests, reading answers, three ways to end."""

    pid: int
    ends_by_signal = False
    gave_up_closing = False
    """Whether it ended as a server does whose session could not be closed in time, which is by design like a kill."""

    def __init__(self, reading: int, write: Callable[[bytes], Any], close: Callable[[], Any]) -> None:
        self._reading = reading
        self._write = write
        self._close = close
        self._buffer = b""
        self._number = 0

    def call(self, tool: str, **arguments: Any) -> Reply:
        """Returns the reply to a call. Raises `Died`. An answer to a nonsensical request counts as an answer, too."""
        raise NotImplementedError

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def end(self) -> None:
        """A regular end: the host closes the pipe. Returns when the process is gone."""
        with suppress(OSError):
            self._close()
        self.gone()

    def gone(self) -> None:
        wait_until(lambda: not _runs(self.pid), "the process ends")

    def _exchange(self, message: Mapping[str, Any]) -> dict[str, Any]:
        try:
            self._write(json.dumps(message).encode() + b"\n")
        except OSError as error:
            raise Died from error
        return self._line()

    def _line(self) -> dict[str, Any]:
        while b"\n" not in self._buffer:
            if not select.select([self._reading], [], [], PATIENCE_SECONDS)[0]:
                raise Hung(f"no answer within {PATIENCE_SECONDS:.0f} s")
            try:
                data = os.read(self._reading, 1 << 16)
            except OSError as error:
                raise Died from error
            if not data:
                raise Died
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\n")
        message: dict[str, Any] = json.loads(line)
        return message


class Seated(Life):
    """A seat of the nursery."""

    def __init__(self, nursery: Path, root: Path, agent_id: str, purpose: str, *, bell: bool) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(str(nursery))
        super().__init__(self._socket.fileno(), self._socket.sendall, lambda: self._socket.shutdown(socket.SHUT_WR))
        self.pid = self._exchange({"root": str(root), "agent": agent_id, "purpose": purpose, "bell": bell})["pid"]

    def call(self, tool: str, **arguments: Any) -> Reply:
        self.begin(tool, **arguments)
        return self.answer()

    def begin(self, tool: str, **arguments: Any) -> None:
        """Sends a call without waiting for its answer."""
        with suppress(OSError):
            self._write(json.dumps({"tool": tool, "arguments": arguments}).encode() + b"\n")

    def answer(self) -> Reply:
        """Returns the reply to the call sent by `begin`. Raises `Died`."""
        return _reply(self._line())

    def gone(self) -> None:
        super().gone()
        self._socket.close()


class Served(Life):
    """`serve` over stdio, told by `where` whom for. Its standard error goes to a file; `born` is told its pid before
    it has done anything."""

    ends_by_signal = True

    def __init__(
        self,
        env: Mapping[str, str],
        errors: Path,
        where: Sequence[str],
        born: Callable[[int], object] = int,
        command: Sequence[str] = (*COMMAND, "serve"),
    ) -> None:
        with errors.open("a", encoding="utf-8") as file:
            self._process = subprocess.Popen(
                [*command, *where], env=dict(env), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=file
            )
        self.pid = self._process.pid
        born(self.pid)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        stdin = self._process.stdin
        super().__init__(self._process.stdout.fileno(), lambda data: (stdin.write(data), stdin.flush()), stdin.close)
        self._greet()

    def _greet(self) -> None:
        self.initialize(PROTOCOL)

    def initialize(self, version: str) -> dict[str, Any]:
        """The handshake in a version of the protocol; returns the answer."""
        client = {"name": "s", "version": "1"}
        answer = self._request("initialize", protocolVersion=version, capabilities={}, clientInfo=client)
        self._write(b'{"jsonrpc": "2.0", "method": "notifications/initialized"}\n')
        return answer

    def call(self, tool: str, **arguments: Any) -> Reply:
        return _reply(self._request("tools/call", name=tool, arguments=arguments)["result"])

    def gone(self) -> None:
        self.gave_up_closing = self._process.wait(PATIENCE_SECONDS) == 1
        for pipe in (self._process.stdin, self._process.stdout):
            with suppress(OSError):
                pipe.close()  # type: ignore[union-attr]

    def _request(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        message = self._exchange({"jsonrpc": "2.0", "id": self._number, "method": method, "params": params})
        while message.get("id") != self._number:
            message = self._line()
        return message


class Nursery:
    """Starts the nursery's process; use as a context manager."""

    def __init__(self, directory: Path, env: Mapping[str, str]) -> None:
        self.socket = directory / "n"
        with (directory / "nursery.stderr").open("w") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.soak.nursery", str(self.socket)],
                env=dict(env),
                cwd=REPOSITORY,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == b"ready\n"

    def __enter__(self) -> Nursery:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate(timeout=PATIENCE_SECONDS)

    def seat(self, root: Path, agent_id: str, purpose: str = "task", *, bell: bool = False) -> Seated:
        """`bell`: whether it watches its mailbox and rings its pane, as `serve` does."""
        return Seated(self.socket, root, agent_id, purpose, bell=bell)


def _reply(result: Mapping[str, Any]) -> Reply:
    answer = result.get("structuredContent")
    executed = (result.get("_meta") or {}).get(EXECUTED, True)
    return Reply(answer, bool(executed))
