"""Support for the tests of the store."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from multi_agent_mcp.domain.message import Message
from multi_agent_mcp.store.directory import Directory
from multi_agent_mcp.store.durable_files import Files
from multi_agent_mcp.store.inbox import Inbox

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["pytest", "multi_agent_mcp.bootstrap", "tests.hub.support"])
"""Begins processes that need not import what most of the time of a new one goes into."""


def message(number: int = 0, **fields: Any) -> Message:
    """A message of its own second and its own first eight digits."""
    known = {
        "id": f"{number:08x}-1111-4222-8333-444455556666",
        "sender_id": "admin",
        "receiver_id": "worker-a",
        "created_at": NOON + timedelta(seconds=number),
        "content": f"text {number}",
    }
    return Message(**{**known, **fields})


def mail_directory(files: Files) -> Directory[Message]:
    return Directory(files, files.base / "ipc" / "worker-a", Message, receiver_id="worker-a")


def mailbox(files: Files) -> Inbox[Message]:
    return Inbox(files, files.base / "ipc" / "worker-a", Message, lock="mailbox-worker-a", receiver_id="worker-a")


def put(path: Path, content: bytes | str, *, at: datetime = NOON) -> Path:
    """A file that a person wrote some time ago."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    os.utime(path, (at.timestamp(), at.timestamp()))
    return path


def written(path: Path) -> tuple[int, int]:
    """Changes whenever the file is written or replaced, and not when it is read."""
    status = path.stat()
    return status.st_mtime_ns, status.st_ino


def in_processes(work: Callable[..., None], *arguments: tuple[Any, ...]) -> None:
    """Runs `work` in one new process for each tuple of arguments, all at once, and waits; each must succeed."""
    processes = [FORKS.Process(target=work, args=given) for given in arguments]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0] * len(processes)


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def confirm_read(inbox: Inbox[Any]) -> None:
    """Confirms what is marked read, as the next call of whoever it was handed to."""
    inbox.confirm([inbox.reference(name, entity.read_at) for name, entity in inbox.hot.entities() if entity.read_at])
