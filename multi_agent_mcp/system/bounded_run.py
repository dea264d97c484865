"""Runs a command for a check: without a terminal or standard input, in a process group of its own, bounded in time and
output, killed whole (docs/protocol.md, Checks)."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

from multi_agent_mcp.system.git import plain_environment

CHILD = Path(__file__).with_name("bounded_child.py")
LOOK_SECONDS = 0.1
KILLED = 137
TIMED_OUT = 124
OURS = "MULTI_AGENT_MCP_"
TERMINALS = frozenset({"TMUX", "TMUX_PANE", "STY", "TERM_SESSION_ID"})


@dataclass(frozen=True)
class Ended:
    """How a run ended. `failure` says why it counts as failed whatever its exit code: `timed_out`, `left_processes`
    (killed then), `not_started`, `killed` (with its parent); `output` is the end of what it printed."""

    exit_code: int
    output: str
    failure: str | None = None


def cleaned_environment(**added: str) -> dict[str, str]:
    """The environment of a check: ours without our own variables, which name passkeys and agents, without those of
    terminals, and without those that would lead git elsewhere; `added` are ids."""
    ours = plain_environment().items()
    own = {name: value for name, value in ours if not name.startswith(OURS) and name not in TERMINALS}
    return {**own, **{f"{OURS}{name}": value for name, value in added.items()}}


def run_bounded(
    command: Sequence[str],
    directory: Path,
    environment: Mapping[str, str],
    *,
    seconds: float,
    output_bytes: int,
    cancelled: Callable[[], bool],
) -> Ended | None:
    """Runs the command; returns how it ended, None if it was `cancelled`. It ends with this process, too. Raises
    `OSError` if nothing can be started in this directory."""
    arguments = [sys.executable, "-I", "-S", str(CHILD), str(seconds), str(output_bytes), *command]
    reading, living = os.pipe()  # closed when we end, or cancel: then the parent ends
    try:
        parent = subprocess.Popen(
            arguments,
            cwd=directory,
            env=environment,
            stdin=reading,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError:
        os.close(living)
        raise
    finally:
        os.close(reading)
    with parent:
        try:
            lines = _said(cast("IO[bytes]", parent.stdout), cancelled)
        finally:
            os.close(living)
    if lines is None:
        return None
    if lines and "exit_code" in lines[-1]:
        return Ended(lines[-1]["exit_code"], lines[-1]["output"], lines[-1]["failure"])
    for words in lines:
        _kill_group(words["pid"])
    return Ended(KILLED, "", "killed")


def end_of_output(
    command: Sequence[str], directory: Path, environment: Mapping[str, str], *, seconds: float, kept: int
) -> tuple[int, bytes]:
    """Runs a command of the person's, which may leave processes behind; returns its exit code (`TIMED_OUT` if it took
    longer, and was killed) and the end of what it printed, of at most this many bytes. Raises `OSError`."""
    with subprocess.Popen(
        command,
        cwd=directory,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    ) as running:
        try:
            output, in_time = _last_bytes(running, time.monotonic() + seconds, kept)
        finally:
            if running.poll() is None:
                _kill_group(running.pid)
    return (running.returncode, output) if in_time else (TIMED_OUT, output + b"\ntimed out\n")


def _last_bytes(running: subprocess.Popen[bytes], until: float, kept: int) -> tuple[bytes, bool]:
    """The end of what a process printed, and whether it ended in time. What it has left running is not waited for."""
    printed = cast("IO[bytes]", running.stdout).fileno()
    output, is_open = bytearray(), True
    while time.monotonic() < until:
        has_ended = running.poll() is not None
        if is_open and select.select([printed], [], [], 0 if has_ended else LOOK_SECONDS)[0]:
            data = os.read(printed, 1 << 16)
            is_open = bool(data)
            output += data
            del output[:-kept]
        elif has_ended:
            return bytes(output), True
        elif not is_open:
            with suppress(subprocess.TimeoutExpired):
                running.wait(LOOK_SECONDS)
    return bytes(output), False


def _said(reported: IO[bytes], cancelled: Callable[[], bool]) -> list[dict[str, Any]] | None:
    """What the parent reports until it ends; None if the run is cancelled."""
    lines = bytearray()
    while not cancelled():
        if select.select([reported], [], [], LOOK_SECONDS)[0]:
            data = os.read(reported.fileno(), 1 << 16)
            if not data:
                return [json.loads(line) for line in lines.splitlines()]
            lines += data
    return None


def _kill_group(group: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)
