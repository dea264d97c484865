"""A relay whose lock's file was removed: it stays the only one, is seen to run, and ends when it is told to."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

from multi_agent_mcp.store.locks import RELAY
from multi_agent_mcp.system.process import is_alive
from tests.hub.support import DESK, Machine, eventually, machines
from tests.hub.test_ending import relay
from tests.hub.test_looking import command, seen


def remove_locks(machine: Machine) -> None:
    shutil.rmtree(machine.path / ".locks")
    assert not machine.sharing.share.relay_runs


def test_a_relay_takes_its_lock_again(tmp_path: Path) -> None:
    with machines(tmp_path) as made:
        desk = made[DESK]
        pid = desk.relay_pid
        for _ in range(2):
            remove_locks(desk)
            eventually(lambda: desk.sharing.share.relay_runs)
            assert seen(desk).exchange == "connected"
        assert command(desk, "relay").returncode == 1
        assert desk.relay_pid == pid
        assert desk.sharing.stop_relay()
        assert not is_alive(pid, None)
        assert not desk.sharing.share.relay_runs


def test_no_second_relay_starts_before_the_first_has_its_lock_again(tmp_path: Path) -> None:
    with machines(tmp_path) as made:
        desk = made[DESK]
        pid = desk.relay_pid
        remove_locks(desk)
        assert not desk.sharing.start_relay()
        shutil.rmtree(desk.path / ".locks", ignore_errors=True)
        assert command(desk, "relay").returncode == 1
        assert desk.relay_pid == pid
        assert is_alive(pid, None)


def test_a_relay_without_lock_and_socket_is_stopped(tmp_path: Path) -> None:
    with machines(tmp_path) as made:
        desk = made[DESK]
        pid = desk.relay_pid
        (desk.path / ".share" / "relay.sock").unlink()
        remove_locks(desk)
        assert desk.sharing.stop_relay()
        assert not is_alive(pid, None)


def test_of_two_relays_the_one_without_the_lock_ends(tmp_path: Path) -> None:
    """The first was held up while the second was started."""
    with machines(tmp_path) as made:
        desk = made[DESK]
        pid = desk.relay_pid
        os.kill(pid, signal.SIGSTOP)
        (desk.path / ".share" / "relay.sock").unlink()
        remove_locks(desk)
        second = relay(desk.root)
        try:
            eventually(lambda: desk.sharing.status()["relay"])
            os.kill(pid, signal.SIGCONT)
            eventually(lambda: not is_alive(pid, None))
            assert "another relay has taken the lock" in (desk.path / ".share" / "relay.log").read_text()
            assert desk.services.workspace.locks.is_held(RELAY)
            assert desk.relay_pid == second.pid
        finally:
            second.terminate()
            try:
                second.wait(60)
            except subprocess.TimeoutExpired:
                second.kill()
                second.wait()
