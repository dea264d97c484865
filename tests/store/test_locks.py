"""Locks between processes: one holds, the others wait or are refused, and anybody may ask who."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from multi_agent_mcp.errors import StorageError
from multi_agent_mcp.store import locks as locks_module
from multi_agent_mcp.store.files import Files
from tests.store.support import in_processes, put


@contextmanager
def held_elsewhere(files: Files, name: str) -> Iterator[None]:
    """Another process's hold of a lock."""
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


def test_an_error_inside_a_lock_gives_the_lock_back(files: Files) -> None:
    with pytest.raises(ZeroDivisionError), files.locks.held("agents"):
        _ = 1 / 0
    assert not files.locks.is_held("agents")
    with files.locks.held("agents"):
        pass
