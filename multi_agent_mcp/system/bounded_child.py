"""Runs one command within bounds and reports how it ended, as JSON lines on standard output: first `{"pid": …}`, at the
end `{"exit_code": …, "output": …, "failure": …}`.

`bounded_run` starts this file as a program of its own (no package, only the standard library, so it starts in
milliseconds): it is the command's parent, so that the command cannot end or block the server, and it outlives neither
the server nor the bounds. What the command has started and left becomes its child (PR_SET_CHILD_SUBREAPER, prctl(2);
only on Linux) and is killed with it, however it has detached itself.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress

CANCEL = 0
"""Standard input: its end means that the server is gone, or wants this to end."""
LOOK_SECONDS = 0.05
GRACE_SECONDS = 1.0
"""How long after the command its own children may still take to end."""
KILLING_SECONDS = 10.0
TIMED_OUT, NOT_FOUND, NOT_RUN = 124, 127, 126
"""Exit codes as of timeout(1) and the shell."""
PR_SET_CHILD_SUBREAPER = 36


class Bounded:
    """One command, its output's end and its processes."""

    def __init__(self, seconds: float, kept: int, command: list[str]) -> None:
        self.deadline = time.monotonic() + seconds
        self.kept = kept
        self.output = bytearray()
        self.reading, writing = os.pipe()
        os.set_blocking(self.reading, False)
        try:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=writing, stderr=writing, start_new_session=True
            )
        finally:
            os.close(writing)

    def run(self) -> dict[str, object] | None:
        """Waits for the end; returns the report, None if it was cancelled."""
        while self.process.poll() is None:
            if self._look(min(LOOK_SECONDS, max(self.deadline - time.monotonic(), 0.0))):
                self.kill()
                return None
            if time.monotonic() >= self.deadline:
                self.kill()
                return self._report(TIMED_OUT, "timed_out")
        ended = time.monotonic() + GRACE_SECONDS
        while self._others() and time.monotonic() < min(ended, self.deadline):
            if self._look(LOOK_SECONDS):
                self.kill()
                return None
        left = self._others()
        self.kill()
        code = self.process.returncode
        return self._report(code if code >= 0 else 128 - code, "left_processes" if left else None)

    def _report(self, exit_code: int, failure: str | None) -> dict[str, object]:
        self._read()
        return {"exit_code": exit_code, "failure": failure, "output": self.output.decode(errors="replace")}

    def _look(self, seconds: float) -> bool:
        """Reads output that comes within this time; returns whether the run is cancelled."""
        readable, _, _ = select.select([self.reading, CANCEL], [], [], seconds)
        if self.reading in readable and not self._read():
            time.sleep(seconds)  # every writer has closed it, which select(2) reports at once
        return CANCEL in readable and not os.read(CANCEL, 1)

    def _read(self) -> bool:
        """Reads what is there, and keeps the end; returns False once nobody can write any more."""
        with suppress(BlockingIOError):
            for _ in range(256):
                if not (data := os.read(self.reading, 1 << 16)):
                    return False
                self.output += data
                del self.output[: -self.kept]
        return True

    def _others(self) -> list[int]:
        """The processes that the command has left."""
        return [pid for pid in _children() if pid != self.process.pid]

    def kill(self) -> None:
        """Kills the command's process group, and what has left it: each killed parent hands over its children."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        until = time.monotonic() + KILLING_SECONDS
        while (alive := _children()) and time.monotonic() < until:
            _kill(alive)
        self.process.poll()


def _kill(processes: list[int]) -> None:
    for pid in processes:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)
    time.sleep(0.005)


def _children() -> list[int]:
    """The living processes whose parent this one is."""
    mine, found = str(os.getpid()), []
    for name in os.listdir("/proc") if os.path.isdir("/proc/self") else ():  # noqa: PTH112, PTH208 - starts faster
        if not name.isdigit():
            continue
        with suppress(OSError):
            with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as stat:
                state, parent = stat.read().rpartition(")")[2].split()[:2]
            if parent == mine and state not in "ZX":
                found.append(int(name))
    return found


def main() -> None:
    _adopt_orphans()
    runner = os.fork()  # so that a command that kills its parent leaves nothing: we inherit its processes then
    if not runner:
        _adopt_orphans()
        run(sys.argv[1:])
        return
    os.waitpid(runner, 0)
    while alive := _children():
        _kill(alive)


def _adopt_orphans() -> None:
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def run(arguments: list[str]) -> None:
    """Runs the command with these bounds: seconds, bytes of output to keep, command."""
    seconds, kept, *command = arguments
    try:
        bounded = Bounded(float(seconds), int(kept), command)
    except (OSError, ValueError) as error:
        code = NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_RUN
        _say({"exit_code": code, "failure": "not_started", "output": f"{error}\n"})
        return
    _say({"pid": bounded.process.pid})
    report = bounded.run()
    if report is not None:
        _say(report)


def _say(words: dict[str, object]) -> None:
    with suppress(OSError):
        os.write(1, json.dumps(words).encode() + b"\n")


if __name__ == "__main__":
    main()
