"""Whether a process is still the intended one."""

from __future__ import annotations

import os
import select
import subprocess
import sys

import psutil
import pytest

from multi_agent_mcp.system.process import end_of, is_alive, own_start, started_at


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


@pytest.mark.skipif(sys.platform != "linux", reason="pidfd_open(2) is Linux's")
def test_the_kernel_tells_when_a_process_ends_even_before_its_parent_has_noticed() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    assert child.stdin is not None
    end = end_of(child.pid)
    assert end is not None
    try:
        assert select.select([end], [], [], 0)[0] == []
        child.stdin.close()
        assert select.select([end], [], [], 30)[0] == [end]
        child.wait()
        assert end_of(child.pid) is None
    finally:
        os.close(end)


def test_no_process_has_number_zero_or_less() -> None:
    assert started_at(0) is None
    assert started_at(-1) is None


@pytest.fixture
def mac(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulates a system without /proc: psutil, which is imported already, is asked."""
    assert psutil.pids()
    monkeypatch.setattr(sys, "platform", "darwin")


@pytest.mark.parametrize("noted", ["1999-11-22T10:15:06.000000Z", "4711", ""])
def test_a_process_that_started_at_another_time_is_another_one(mac: None, noted: str) -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        start = started_at(child.pid)
        assert start is not None
        assert start.endswith("Z")
        seconds = int(start[17:19])
        other = noted.replace(":06", f":{(seconds + 30) % 60:02}")
        assert not is_alive(child.pid, other)
    finally:
        child.communicate()
    assert started_at(child.pid) is None


def test_a_start_that_the_kernel_rounds_again_is_the_same(mac: None) -> None:
    start = own_start()
    assert start is not None
    second = (int(start[17:19]) + 1) % 60
    earlier = f"{start[:17]}{second:02}{start[19:]}" if second else start
    assert is_alive(os.getpid(), earlier)
