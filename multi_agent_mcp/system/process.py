"""Identifies processes by id and start time, so that a reused id is not taken for the earlier process."""

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
"""The tolerance for start times: some systems compute them from the time since boot at each call, with rounding."""
QUARTER = timedelta(minutes=15)
_LSTART = "%a %b %d %H:%M:%S %Y"
_TIME_OF_DAY = re.compile(r":(?P<minutes>\d\d):(?P<seconds>\d\d)\b")


def started_at(pid: int) -> str | None:
    """The start time of a process, an opaque text for comparison; None if there is no such process.

    On Linux clock ticks since boot (proc(5), field 22 of `/proc/PID/stat`), independent of the clock; elsewhere the
    output of `ps -o lstart`, in UTC.
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
    """The fields of `/proc/PID/stat` in the order of proc(5), from index 0; empty for a process that has ended."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return []
    head, _, tail = text.rpartition(")")
    return [str(pid), head.partition("(")[2], *tail.split()]


def is_alive(pid: int, start: str | None) -> bool:
    """Whether the process with this id runs and started at `start` (None: at any time)."""
    current = started_at(pid)
    return current is not None and (start is None or _is_same(current, start))


def end_of(pid: int) -> int | None:
    """A descriptor that becomes readable when the process ends (pidfd_open(2)). None where not available: on other
    systems, on Linux before 5.3 and in some sandboxes."""
    if sys.platform == "linux":
        with suppress(OSError):
            return os.pidfd_open(pid)
    return None


def _is_same(current: str, noted: str) -> bool:
    """Whether two start times are those of one process. Earlier versions recorded them in the time zone and language of
    the server's environment; as zones differ by quarters of an hour, the time within a quarter is compared then."""
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
    """Starts a program that outlives this process, in a session of its own, and returns its process id. Its output is
    appended to `log`, which, like all files that it creates, is private to the user. It is not our child, so it need
    not be waited for."""
    import subprocess  # here and below: every command imports this module, few need it

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
    """The process id of the nearest ancestor that is no shell: hosts start commands through one (`sh -c …`), and only
    some shells replace themselves by the command. 0 if it cannot be determined."""
    parent, _ = _parent_and_name(pid)
    while parent > 1:
        above, name = _parent_and_name(parent)
        if name.lstrip("-") not in SHELLS:
            break
        parent = above
    return parent


def _parent_and_name(pid: int) -> tuple[int, str]:
    """The parent's id and the command name of a process, from proc(5) or ps(1)."""
    if sys.platform == "linux":
        fields = stat_fields(pid)
        return (int(fields[3]), fields[1]) if fields else (0, "")
    parent, _, command = _ps("ppid=,comm=", pid).strip().partition(" ")
    return int(parent or 0), Path(command.strip()).name


def _ps(wanted: str, pid: int) -> str:
    """The output of ps(1), in UTC and the C locale: by default it depends on the caller's zone and language."""
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
