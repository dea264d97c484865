"""Whether a process is still the intended one."""

from __future__ import annotations

import os
import select
import subprocess
import sys
from pathlib import Path

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
def mac(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Simulates a system without /proc: ps(1) is used, whose output depends on the language and time zone of the
    caller."""
    ps = tmp_path / "ps"
    ps.write_text(
        """#!/bin/sh
        shown=$(/usr/bin/env LC_ALL=C /usr/bin/ps "$@")
        german='s/^\\(...\\) \\(...\\)  *\\([0-9]*\\)/So \\3 Mai/'
        case "$2,$LC_ALL" in lstart=,de_*) shown=$(echo "$shown" | sed "$german");; esac
        echo "$shown"
        """
    )
    ps.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(sys, "platform", "darwin")


def test_a_server_that_was_started_in_another_zone_and_language_is_alive(
    mac: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    monkeypatch.setenv("TZ", "Asia/Kathmandu")
    noted = own_start()
    monkeypatch.setenv("LC_ALL", "C")
    monkeypatch.setenv("TZ", "America/New_York")
    assert is_alive(os.getpid(), noted)


@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo", "Asia/Kathmandu", "America/St_Johns"])
@pytest.mark.parametrize("language", ["C", "de_DE.UTF-8"])
def test_what_an_earlier_version_noted_in_its_own_zone_and_language_still_counts(
    mac: None, zone: str, language: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = {**os.environ, "TZ": zone, "LC_ALL": language}
    asked = ["ps", "-o", "lstart=", "-p", str(os.getpid())]
    noted = subprocess.run(asked, capture_output=True, text=True, check=True, env=environment).stdout
    assert is_alive(os.getpid(), " ".join(noted.split()))


@pytest.mark.parametrize("noted", ["Sun Nov 22 10:15:06 1999", "1999-11-22T10:15:06.000000Z", "4711", ""])
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


def test_a_start_that_the_kernel_rounds_anew_is_the_same(mac: None) -> None:
    start = own_start()
    assert start is not None
    second = (int(start[17:19]) + 1) % 60
    earlier = f"{start[:17]}{second:02}{start[19:]}" if second else start
    assert is_alive(os.getpid(), earlier)
