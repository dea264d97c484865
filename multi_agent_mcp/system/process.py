"""Recognises processes by id and start time, so that a reused id is not taken for the process that had it."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path

from multi_agent_mcp.config import child_environment
from multi_agent_mcp.domain.times import format_time, parse_time

ROUNDING = timedelta(seconds=2)
"""Some systems work the start out again from the time since boot whenever they are asked, and round it."""
QUARTER = timedelta(minutes=15)
_LSTART = "%a %b %d %H:%M:%S %Y"
_TIME_OF_DAY = re.compile(r":(?P<minutes>\d\d):(?P<seconds>\d\d)\b")


def started_at(pid: int) -> str | None:
    """The kernel's own start time of a process, an opaque text to compare; None when there is no such process.

    On Linux clock ticks since boot (proc(5), field 22 of `/proc/PID/stat`), which no clock change moves; elsewhere
    what `ps -o lstart` prints, in UTC.
    """
    if pid <= 0:
        return None
    if sys.platform == "linux":
        fields = stat_fields(pid)
        return None if not fields or fields[2] in "ZX" else fields[21]
    printed = " ".join(_ps("lstart=", pid).split())
    try:
        return format_time(datetime.strptime(f"{printed} +0000", f"{_LSTART} %z"))
    except ValueError:  # no such process, or a ps(1) with another format
        return printed or None


def stat_fields(pid: int | str) -> list[str]:
    """`/proc/PID/stat` with its fields where proc(5) counts them, from 0 on; empty for a process that is gone."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    head, _, tail = text.rpartition(")")
    return [str(pid), head.partition("(")[2], *tail.split()]


def is_alive(pid: int, start: str | None) -> bool:
    """Whether the process with this id runs and is the same that had started at `start`."""
    current = started_at(pid)
    return current is not None and (start is None or _is_same(current, start))


def end_of(pid: int) -> int | None:
    """A descriptor that becomes readable when the process ends: pidfd_open(2). None where there is none to be had: on
    other systems, on Linux before 5.3 and in some sandboxes."""
    if sys.platform == "linux":
        with suppress(OSError):
            return os.pidfd_open(pid)
    return None


def _is_same(current: str, noted: str) -> bool:
    """Whether both are the start of one process. Earlier versions noted it in the zone and the language of whoever
    started the server; as zones are quarters of an hour apart, the place within a quarter is compared then."""
    if current == noted:
        return True
    now, then = parse_time(current), parse_time(noted)
    if now is not None and then is not None:
        return abs(now - then) <= ROUNDING
    ours, theirs = _TIME_OF_DAY.search(current), _TIME_OF_DAY.search(noted)
    if ours is None or theirs is None:
        return False
    apart = timedelta(minutes=int(ours["minutes"]) - int(theirs["minutes"]))
    apart += timedelta(seconds=int(ours["seconds"]) - int(theirs["seconds"]))
    return (apart + ROUNDING) % QUARTER <= 2 * ROUNDING


def own_start() -> str | None:
    return started_at(os.getpid())


def start_detached(arguments: Sequence[str], log: Path) -> int:
    """Starts a program that goes on when this process ends, in a session of its own, and returns its id. What it prints
    is added to `log`, private to the user, as all that it makes. It is nobody's child, so nobody has to wait for it."""
    import subprocess  # here and below: what every command imports needs it rarely

    script = 'umask 077; log=$1; shift; "$@" </dev/null >>"$log" 2>&1 & echo $!'
    done = subprocess.run(
        ["sh", "-c", script, "sh", str(log), *arguments],
        stdout=subprocess.PIPE,
        encoding="ascii",
        env=child_environment(),
        start_new_session=True,
        check=True,
    )
    return int(done.stdout)


SHELLS = frozenset({"sh", "bash", "dash", "ash", "zsh", "ksh", "fish", "busybox"})


def host_of(pid: int) -> int:
    """The nearest ancestor that is no shell: hosts start commands through one (`sh -c …`), and some shells replace
    themselves by the command while others stay. 0 when there is none to be known."""
    parent, _ = _parent_and_name(pid)
    while parent > 1:
        above, name = _parent_and_name(parent)
        if name.lstrip("-") not in SHELLS:
            break
        parent = above
    return parent


def _parent_and_name(pid: int) -> tuple[int, str]:
    """From proc(5) or ps(1), as `started_at`."""
    if sys.platform == "linux":
        fields = stat_fields(pid)
        return (int(fields[3]), fields[1]) if fields else (0, "")
    parent, _, command = _ps("ppid=,comm=", pid).strip().partition(" ")
    return int(parent or 0), Path(command.strip()).name


def _ps(wanted: str, pid: int) -> str:
    """ps(1) prints times in the caller's zone and language, and two processes must read the same."""
    import subprocess

    done = subprocess.run(
        ["ps", "-o", wanted, "-p", str(pid)],
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        env=child_environment(LC_ALL="C", TZ="UTC"),
        check=False,
    )
    return done.stdout
