"""Timing: values to be compared are measured alternately, because a machine's speed changes within minutes."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median


def in_turns(rounds: int, *measures: Callable[[], float]) -> list[float]:
    """The median of what each measure returns, taken in turns; every second round goes backwards."""
    found: list[list[float]] = [[] for _ in measures]
    for number in range(rounds):
        order = range(len(measures)) if number % 2 == 0 else reversed(range(len(measures)))
        for index in order:
            found[index].append(measures[index]())
    return [median(values) for values in found]


def seconds(action: Callable[[], object]) -> float:
    """Returns the seconds that one action takes."""
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def clean() -> dict[str, str]:
    """This process's environment without what says that it runs in a pane, or as an agent."""
    return {key: value for key, value in os.environ.items() if not key.startswith(("TMUX", "MULTI_AGENT_MCP_"))}


def command_seconds(command: Sequence[str], given: bytes = b"") -> float:
    """Processor time of a whole command with its children, user and system (wait4(2)). Raises when it fails."""
    with _started(command) as process:
        assert process.stdin is not None
        process.stdin.write(given)
        process.stdin.close()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"exit code {process.returncode}: {command}")
    return usage.ru_utime + usage.ru_stime


def peak_megabytes(command: Sequence[str]) -> float:
    """The most memory that a whole command had, as often as one can look: its `ru_maxrss` would count from what this
    process had when it started it."""
    peak = 0.0
    with _started(command) as process:
        while process.poll() is None:
            peak = status_megabytes(process.pid, "VmHWM") or peak
            time.sleep(0.01)
    return peak


def processor_seconds(pid: int) -> float:
    """Processor time of a process and of its children that have ended, user and system (proc(5))."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def status_megabytes(pid: int, field: str) -> float:
    """`VmRSS` or `VmHWM` of a process, proc(5); 0 for one that is about to go."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return sum(int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith(f"{field}:"))


def _started(command: Sequence[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, env=clean())


def ms(value: float) -> str:
    return f"{value * 1000:.1f} ms"


def wait_until(condition: Callable[[], bool], *, within: float = 15.0, every: float = 0.02) -> None:
    """Looks until it holds; raises TimeoutError after `within` seconds."""
    end = time.monotonic() + within
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"not within {within} s")
        time.sleep(every)
