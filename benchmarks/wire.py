"""An MCP server process driven by raw JSON-RPC lines: no client library is between the clock and the pipe."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks.timing import clean, status_megabytes, wait_until

PROTOCOL = "2025-06-18"
RESTING_SECONDS = 0.005


class Server:
    """Starts the process and shakes hands. Use as a context manager; ends it by closing its input, as hosts do."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        self._identity = 0
        self._started = time.perf_counter()
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**clean(), **(environment or {})}
        )
        self.request(
            "initialize",
            protocolVersion=PROTOCOL,
            capabilities={},
            clientInfo={"name": "benchmarks", "version": "1"},
        )
        self._write({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def __enter__(self) -> Server:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    def request(self, method: str, **params: Any) -> Any:
        """The result of one request; raises on an error. Notifications that come first are passed over."""
        self._identity += 1
        self._write({"jsonrpc": "2.0", "id": self._identity, "method": method, "params": params})
        while True:
            answer = self._line()
            if answer.get("id") == self._identity:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]

    def tools(self) -> list[dict[str, Any]]:
        """`tools/list`."""
        tools: list[dict[str, Any]] = self.request("tools/list")["tools"]
        return tools

    def call(self, tool: str, **arguments: Any) -> Any:
        """The structured answer of a tool; raises when it is an error."""
        result = self.request("tools/call", name=tool, arguments=arguments)
        if result.get("isError"):
            raise RuntimeError(f"{tool}: {result['content'][0]['text']}")
        return result.get("structuredContent")

    def timed(self, tool: str, **arguments: Any) -> float:
        """Seconds from the request's first byte to the whole answer."""
        began = time.perf_counter()
        self.call(tool, **arguments)
        return time.perf_counter() - began

    def age(self) -> float:
        """Seconds since just before it was spawned."""
        return time.perf_counter() - self._started

    def settle(self) -> None:
        """Waits until it has nothing left to do in the background: its doorbell's thread watches the mailbox."""
        wait_until(lambda: "inotify" in " ".join(self._open_files()))
        time.sleep(0.3)

    def rest(self) -> None:
        """Waits until it is settled and has used no processor time to speak of for a while: what it does in the
        background when it starts is done."""
        self.settle()
        used = -RESTING_SECONDS
        while (now := self.processor_seconds()) - used >= RESTING_SECONDS:
            used = now
            time.sleep(0.3)

    def processor_seconds(self) -> float:
        """Returns the processor time of the server so far, user and system, of all threads: clock_getcpuclockid(3)."""
        return time.clock_gettime(~self._process.pid << 3 | 2)

    def resident_megabytes(self, *, peak: bool = False) -> float:
        """VmRSS of the process, proc(5), or the most it has been (VmHWM)."""
        return status_megabytes(self._process.pid, "VmHWM" if peak else "VmRSS")

    def _open_files(self) -> Iterator[str]:
        for descriptor in Path(f"/proc/{self._process.pid}/fd").iterdir():
            with suppress(FileNotFoundError):  # closed meanwhile
                yield str(descriptor.readlink())

    def _write(self, message: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        self._process.stdin.flush()

    def _line(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the server ended with exit code {self._process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer
