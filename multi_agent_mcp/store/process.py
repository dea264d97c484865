"""Whether a process is still the one that was meant: its id and the time it was started."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def started_at(pid: int) -> str | None:
    """The kernel's own start time of a process, an opaque text to compare; None when there is no such process.

    On Linux clock ticks since boot (proc(5), field 22 of `/proc/PID/stat`), which no clock change moves; elsewhere
    what `ps -o lstart` prints.
    """
    if pid <= 0:
        return None
    if sys.platform == "linux":
        try:
            fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except OSError:
            return None
        return None if fields[0] in "ZX" else fields[19]
    done = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return " ".join(done.stdout.split()) or None


def is_alive(pid: int, start: str | None) -> bool:
    """Whether the process with this id runs and is the same that had started at `start`."""
    current = started_at(pid)
    return current is not None and (start is None or current == start)


def own_start() -> str | None:
    return started_at(os.getpid())


SHELLS = frozenset({"sh", "bash", "dash", "ash", "zsh", "ksh", "fish", "busybox"})


def parent_of(pid: int) -> int:
    """The id of a process's parent; 0 when there is none to be known."""
    return _parent_and_name(pid)[0]


def host_of(pid: int) -> int:
    """The nearest ancestor that is no shell: hosts start commands through one (`sh -c …`), and some shells replace
    themselves by the command while others stay. 0 when there is none to be known."""
    parent = parent_of(pid)
    while parent > 1:
        above, name = _parent_and_name(parent)
        if name.lstrip("-") not in SHELLS:
            break
        parent = above
    return parent


def _parent_and_name(pid: int) -> tuple[int, str]:
    """From proc(5) or ps(1), as `started_at`."""
    if sys.platform == "linux":
        try:
            text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return 0, ""
        head, _, tail = text.rpartition(")")
        return int(tail.split()[1]), head.partition("(")[2]
    done = subprocess.run(["ps", "-o", "ppid=,comm=", "-p", str(pid)], capture_output=True, text=True, check=False)
    parent, _, command = done.stdout.strip().partition(" ")
    return int(parent or 0), Path(command.strip()).name
