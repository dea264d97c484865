"""Which processes have something open: a host keeps its conversation in a file, and continuing one that another process
still has open would tear it in two.

What cannot be found out is taken as not open. On Linux everything is read from proc(5), elsewhere psutil is asked.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from multi_agent_mcp.system.process import host_of, is_alive, started_at

POLL_SECONDS = 0.05


def holding(name: str) -> set[int]:
    """The processes of this user that were given a name, such as an id, as an argument (`NAME` or `--option=NAME`), or
    that have a file open for writing whose name contains it. A directory of that name does not count: what a host's
    tools have started, and left running, writes its output there."""
    if sys.platform == "linux":
        return {int(path.name) for path in Path("/proc").glob("[0-9]*") if _holds(path, name)} - {os.getpid()}
    import psutil

    found = set()
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            files = (file.path for file in process.open_files())
            if _is_given(process.cmdline(), name) or any(name in Path(path).name for path in files):
                found.add(process.pid)
    return found - {os.getpid()}


def _holds(process: Path, name: str) -> bool:
    with suppress(OSError):
        if process.stat().st_uid != os.getuid():
            return False
        if _is_given(os.fsdecode((process / "cmdline").read_bytes()).split("\0"), name):
            return True
        return any(name in link.rpartition("/")[2] and _is_written(process, number) for number, link in _links(process))
    return False


def _is_given(arguments: Sequence[str], name: str) -> bool:
    """A tmux server names in one long argument what it was started with."""
    return any(word == name or word.endswith(f"={name}") for word in arguments)


def _is_written(process: Path, number: str) -> bool:
    """Whether a file is open for writing, by the flags of proc_pid_fdinfo(5): an editor or `tail -f` only reads."""
    with suppress(OSError, ValueError, IndexError):
        lines = (process / "fdinfo" / number).read_text(encoding="ascii").splitlines()
        return int(lines[1].split()[1], 8) & os.O_ACCMODE != os.O_RDONLY
    return False


def _links(process: Path) -> Iterator[tuple[str, str]]:
    with suppress(OSError):
        for entry in (process / "fd").iterdir():
            with suppress(OSError):
                yield entry.name, str(entry.readlink())


def noted_by(directory: Path, text: str) -> set[int]:
    """The living processes whose file `{pid}.json` in a directory of a host contains a text."""
    found = set()
    with suppress(OSError):
        for path in directory.glob("*.json"):
            with suppress(OSError, ValueError):
                if text.encode() in path.read_bytes() and started_at(int(path.stem)) is not None:
                    found.add(int(path.stem))
    return found


def has_lost_terminal(pid: int) -> bool:
    """Whether a process had a terminal that is gone: the window that it was started in was closed. Linux only."""
    terminals = [link for _, link in _links(Path(f"/proc/{pid}")) if link.startswith("/dev/pts/")]
    return bool(terminals) and all(link.endswith("(deleted)") for link in terminals)


def is_below(pid: int, ancestors: Collection[int]) -> bool:
    """Whether a process is one of these, or was started by one, directly or by others."""
    while pid > 1:
        if pid in ancestors:
            return True
        pid = host_of(pid)
    return False


def end(pid: int, number: signal.Signals, seconds: float) -> bool:
    """Sends a signal to a process and waits until it has ended; returns whether it has."""
    start, until = started_at(pid), time.monotonic() + seconds
    with suppress(OSError):
        os.kill(pid, number)
    while start is not None and is_alive(pid, start):
        if time.monotonic() >= until:
            return False
        time.sleep(POLL_SECONDS)
    return True
