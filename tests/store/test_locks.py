"""Locks between processes: one holds, the others wait or are refused, and anybody may ask who."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from multi_agent_mcp.errors import StorageError
from multi_agent_mcp.store import locks as locks_module
from multi_agent_mcp.store.durable_files import Files
from multi_agent_mcp.store.locks import OrderViolated, mutex
from tests.store.support import in_processes, put


@contextmanager
def held_elsewhere(files: Files, name: str) -> Iterator[None]:
    """Holds a lock in another process."""
    lock = files.locks.lock(name)
    with lock:
        yield


def test_a_lock_keeps_others_out_and_is_refused_after_a_while(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks_module, "LOCK_SECONDS", 0.02)
    with held_elsewhere(files, "agents"), pytest.raises(StorageError) as refusal, files.locks.held("agents"):
        pytest.fail("two held the lock")
    assert refusal.value.key == "error.lock_timeout"
    with files.locks.held("agents"):
        pass


def test_locks_of_different_names_do_not_meet(files: Files) -> None:
    with files.locks.held("mailbox-b"), files.locks.held("notifications-a"):
        assert files.locks.all_held() == ["mailbox-b", "notifications-a"]
    assert files.locks.all_held() == []


def test_a_lock_directory_that_cannot_be_made_is_a_storage_error(files: Files) -> None:
    put(files.locks.path, "in the way")
    with pytest.raises(StorageError), files.locks.held("agents"):
        pytest.fail("there was no lock")


def _count_up(base: Path, times: int) -> None:
    files = Files(base)
    for _ in range(times):
        with files.locks.held("agents"):
            number = int((base / "counter").read_text())
            files.replace(base / "counter", str(number + 1).encode(), durable=False)


def test_a_lock_holds_between_processes(files: Files) -> None:
    put(files.base / "counter", "0")
    in_processes(_count_up, (files.base, 50), (files.base, 50), (files.base, 50))
    assert (files.base / "counter").read_text() == "150"


def test_a_lock_whose_file_is_removed_while_others_wait_still_holds(files: Files) -> None:
    gone: list[bool] = []

    def other() -> None:
        with files.locks.held("agents"):
            gone.append(files.locks.is_held("agents"))

    with held_elsewhere(files, "agents"):
        thread = threading.Thread(target=other)
        thread.start()
        (files.locks.path / "agents.lock").unlink()
    thread.join()
    assert gone == [True]


def _add_one(files: Files, before_it_is_written: Callable[[], object] = bool) -> bool:
    """Increments the counter; returns False only when the lock was lost."""
    try:
        with files.locks.held("agents"):
            number = int((files.base / "counter").read_text())
            before_it_is_written()
            files.replace(files.base / "counter", str(number + 1).encode(), durable=False)
    except StorageError as refusal:
        if refusal.key != "error.lock_removed":
            raise
        return False
    return True


def test_who_holds_a_lock_whose_file_is_removed_writes_nothing_over_the_next_holder(files: Files) -> None:
    put(files.base / "counter", "0")

    def taken_over() -> None:
        shutil.rmtree(files.locks.path)
        in_processes(_count_up, (files.base, 1))

    assert _add_one(files, taken_over) is False
    assert (files.base / "counter").read_text() == "1"
    assert _add_one(files)


def test_a_lock_whose_file_was_removed_is_not_to_be_had_while_a_change_is_put_in_place(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Files(files.base)
    put(files.base / "counter", "0")
    monkeypatch.setattr(locks_module.ORDER_CHECK, "violated", None)  # one thread acts for two processes
    with files.locks.held("agents"), files.locks.writing():
        shutil.rmtree(files.locks.path)
        with monkeypatch.context() as hurried:
            hurried.setattr(locks_module, "LOCK_SECONDS", 0.02)
            with pytest.raises(StorageError) as refusal, other.locks.held("agents"):
                pytest.fail("two held the lock")
    assert refusal.value.key == "error.lock_timeout"
    assert _add_one(other)


def _count_what_is_acknowledged(base: Path, name: str, times: int) -> None:
    files = Files(base)
    acknowledged = 0
    try:
        for _ in range(times):
            acknowledged += _add_one(files)
    finally:
        put(base / f"acknowledged-{name}", str(acknowledged))


def _remove_locks(base: Path, names: str) -> None:
    """Removes locks until all other processes are done."""
    while not all((base / f"acknowledged-{name}").exists() for name in names):
        shutil.rmtree(base / ".locks", ignore_errors=True)


def test_nothing_acknowledged_is_lost_while_the_locks_are_removed_again_and_again(files: Files) -> None:
    put(files.base / "counter", "0")
    counting = [partial(_count_what_is_acknowledged, files.base, name, 100) for name in "abc"]
    in_processes(_run, *((what,) for what in (*counting, partial(_remove_locks, files.base, "abc"))))
    acknowledged = sum(int(path.read_text()) for path in files.base.glob("acknowledged-*"))
    assert int((files.base / "counter").read_text()) == acknowledged


def _run(what: Callable[[], object]) -> None:
    what()


def test_a_lock_keeps_others_out_where_the_file_system_knows_no_flock(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr("fcntl.flock", refused)
    monkeypatch.setattr(locks_module, "LOCK_SECONDS", 0.02)
    with pytest.warns(UserWarning, match="flock not supported"):
        _two_in_turn(files)


def _two_in_turn(files: Files) -> None:
    with files.locks.held("agents"):
        pass
    with held_elsewhere(files, "agents"), pytest.raises(StorageError) as refusal, files.locks.held("agents"):
        pytest.fail("two held the lock")
    assert refusal.value.key == "error.lock_timeout"


def test_an_error_inside_a_lock_gives_the_lock_back(files: Files) -> None:
    with pytest.raises(ZeroDivisionError), files.locks.held("agents"):
        _ = 1 / 0
    assert not files.locks.is_held("agents")
    with files.locks.held("agents"):
        pass


def test_a_lock_taken_out_of_order_fails_whoever_takes_it(files: Files) -> None:
    with files.locks.held("mailbox-a"), files.locks.held("owner-wait-o"), mutex("session"):
        pass
    with mutex("session"), pytest.raises(OrderViolated, match="mailbox-a was taken while mutex:session was held"):
        files.locks.held("mailbox-a").__enter__()
    with files.locks.held("mailbox-a"), pytest.raises(OrderViolated):  # nobody holds two of a kind
        files.locks.held("mailbox-b").__enter__()
    with files.locks.held("mailbox-a"):
        pass


def test_a_mutex_may_be_taken_again_by_its_thread_and_another_of_its_kind_may_not() -> None:
    lock = mutex("directory")
    with lock, lock:
        pass
    with lock, pytest.raises(OrderViolated):
        mutex("directory").__enter__()


def test_every_thread_has_an_order_of_its_own(files: Files) -> None:
    done: list[str] = []

    def other() -> None:
        with files.locks.held("intents"):
            done.append("intents")

    thread = threading.Thread(target=other)
    with files.locks.held("agents"):
        thread.start()
        thread.join()
    assert done == ["intents"]


def test_a_lock_that_the_table_does_not_name_is_refused(files: Files) -> None:
    with pytest.raises(OrderViolated, match="not in ORDER"):
        files.locks.held("something-new").__enter__()


def test_a_process_that_a_test_has_started_is_ended_by_a_wrong_order(initialised: Path) -> None:
    code = f"""
from pathlib import Path
from multi_agent_mcp.bootstrap import open_session
locks = open_session(Path({str(initialised)!r}), "demo").workspace.locks
with locks.held("agents"), locks.held("mailbox-a"):
    print("went on")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == -signal.SIGABRT
    assert done.stdout == ""
    assert "the lock mailbox-a was taken while agents was held" in done.stderr
