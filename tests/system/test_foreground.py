"""The process that reads a terminal, determined with proc(5) here, psutil, ps(1) and lsof(8) elsewhere."""

from __future__ import annotations

import os
import pty
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from multi_agent_mcp.system.process import Foreground, Portable, Proc, Process, ProcessTable, foreground
from tests.end_to_end.support import wait_until

TABLES = [
    pytest.param(Proc(), marks=pytest.mark.skipif(sys.platform != "linux", reason="proc(5)")),
    pytest.param(
        Portable(), marks=pytest.mark.skipif(not (shutil.which("ps") and shutil.which("lsof")), reason="ps, lsof")
    ),
]


LOADERS = sorted(map(str, Path("/").glob("lib*/ld-linux*.so.*")))


@contextmanager
def terminal(script: str) -> Iterator[tuple[int, int]]:
    """A session of its own on a pseudo-terminal: the id of its first process, and the human's side."""
    pid, descriptor = pty.fork()
    if pid == 0:
        os.execvp("bash", ["bash", "--norc", "-c", script])  # noqa: S606 - the child of a fork becomes bash
    try:
        yield pid, descriptor
    finally:
        os.killpg(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(descriptor)


def names(seen: Foreground | None) -> tuple[str, list[str]] | None:
    return None if seen is None else (seen.leader.executable, sorted(process.executable for process in seen.readers))


@pytest.mark.parametrize("table", TABLES)
def test_a_process_reads_the_terminal_by_its_standard_input_or_by_opening_it_and_under_any_name(
    table: ProcessTable,
) -> None:
    silent = "sleep 1000 </dev/null & "
    reading = "sleep 1001 3</dev/tty </dev/null & "
    with terminal(f"{silent}{reading}exec -a claude cat") as (pid, _):
        wait_until(lambda: names(foreground(pid, table)) == ("cat", ["cat", "sleep"]), "cat and one sleep read")
        seen = foreground(pid, table)
        assert seen is not None
        assert seen.leader.pid == pid
        assert seen.leader.name == "claude"
        assert {process.program for process in seen.readers} == {None, "1001"}
        assert foreground(pid, table) == seen


@pytest.mark.parametrize("table", TABLES)
def test_a_process_that_replaces_itself_is_another_one(table: ProcessTable) -> None:
    with terminal("read line; exec sleep 1000") as (pid, keyboard):
        wait_until(lambda: names(foreground(pid, table)) == ("bash", ["bash"]), "bash reads")
        before = foreground(pid, table)
        os.write(keyboard, b"go\n")
        wait_until(lambda: names(foreground(pid, table)) == ("sleep", ["sleep"]), "it has become sleep")
        after = foreground(pid, table)
    assert before is not None
    assert after is not None
    assert before.leader.program == ""
    assert before.identities != after.identities


@pytest.mark.parametrize("table", TABLES)
def test_a_process_of_another_session_reads_the_terminal_by_its_standard_input(table: ProcessTable) -> None:
    apart = "import os; os.setsid(); os.execlp('sleep', 'sleep', '{}')"
    own, other = (f'{sys.executable} -c "{apart.format(seconds)}"' for seconds in (61, 62))
    with terminal(f"{own} <&0 & {other} </dev/null & exec cat") as (pid, _):
        wait_until(lambda: names(foreground(pid, table)) == ("cat", ["cat", "sleep"]), "both read")
        seen = foreground(pid, table)
    assert seen is not None
    assert [process.program for process in seen.readers] == [None, "61"]


@pytest.mark.parametrize(
    "script", ["/dev/tty", "/dev/stdin", "/dev/../dev/fd/0", "/proc/self/fd/0", "/proc/1/task/1/fd/0", "-- /dev/pts/3"]
)
def test_a_script_that_is_a_terminal_is_none(script: str) -> None:
    assert Process(1, "", "bash", ("bash", "--norc", *script.split())).program is None
    assert Process(1, "", "bash", ("bash", f"{script.split()[-1]}.sh")).program is not None


@pytest.mark.skipif(sys.platform != "linux" or not LOADERS, reason="no dynamic loader of glibc")
def test_a_program_that_the_dynamic_loader_runs_is_that_program() -> None:
    with terminal(f"exec {LOADERS[0]} --argv0 claude --inhibit-cache {shutil.which('cat')} -") as (pid, _):
        wait_until(lambda: names(foreground(pid)) == ("cat", ["cat"]), "the loader has become cat")
        seen = foreground(pid)
    assert seen is not None
    assert seen.leader.arguments[1:] == ("-",)


@pytest.mark.parametrize("table", TABLES)
def test_nobody_is_in_the_foreground_of_a_terminal_that_is_gone(table: ProcessTable) -> None:
    with terminal("exec cat") as (pid, _):
        wait_until(lambda: foreground(pid, table) is not None, "it runs")
    assert foreground(pid, table) is None
    assert foreground(0, table) is None
