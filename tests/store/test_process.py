"""Whether a process is still the one that was meant."""

from __future__ import annotations

import os
import subprocess
import sys

from multi_agent_mcp.store.process import is_alive, own_start, started_at


def test_this_process_is_alive_and_has_a_start() -> None:
    assert own_start() is not None
    assert is_alive(os.getpid(), own_start())
    assert is_alive(os.getpid(), None)


def test_another_process_with_the_same_number_is_not_the_one_that_was_meant() -> None:
    assert not is_alive(os.getpid(), "an earlier start")


def test_a_process_that_ended_is_dead_even_before_its_parent_has_noticed() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    start = started_at(child.pid)
    assert is_alive(child.pid, start)
    assert child.stdin is not None
    child.stdin.close()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert not is_alive(child.pid, start)
    child.wait()
    assert not is_alive(child.pid, start)


def test_no_process_has_number_zero_or_less() -> None:
    assert started_at(0) is None
    assert started_at(-1) is None
