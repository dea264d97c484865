"""fsync, and its substitute where fsync(2) is not sufficient."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path
from typing import Any

import pytest

from multi_agent_mcp.errors import StorageError
from multi_agent_mcp.store.durable_files import Files
from multi_agent_mcp.system import files as writing
from multi_agent_mcp.system.files import MANY
from tests.services.support import syncs

F_FULLFSYNC = 51


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The requests made to the kernel, in order, on a simulated macOS, which knows F_FULLFSYNC."""
    asked: list[str] = []
    real_fsync = os.fsync

    def full(descriptor: int, command: int, *rest: Any) -> int:
        asked.append("F_FULLFSYNC" if command == F_FULLFSYNC else str(command))
        return 0

    def plain(descriptor: int) -> None:
        asked.append("fsync")
        real_fsync(descriptor)

    monkeypatch.setattr(fcntl, "F_FULLFSYNC", F_FULLFSYNC, raising=False)
    monkeypatch.setattr(fcntl, "fcntl", full)
    monkeypatch.setattr(os, "fsync", plain)
    return asked


def test_where_fsync_stops_at_the_drives_cache_the_drive_is_flushed(files: Files, synced: list[str]) -> None:
    files.base.mkdir(exist_ok=True)
    files.create(files.base / "note.md", b"x")
    assert "fsync" not in synced
    assert synced.count("F_FULLFSYNC") >= 2, "the file and the name"


def test_a_file_system_that_knows_no_full_flush_gets_fsync(
    files: Files, synced: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: Any) -> int:
        raise OSError(errno.ENOTSUP, os.strerror(errno.ENOTSUP))

    monkeypatch.setattr(fcntl, "fcntl", refused)
    files.create(files.base / "note.md", b"x")
    assert synced.count("fsync") >= 2


def test_a_disk_that_fails_to_flush_is_a_storage_error(
    files: Files, synced: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(fcntl, "fcntl", broken)
    with pytest.raises(StorageError):
        files.create(files.base / "note.md", b"x")
    assert not Path(files.base / "note.md").exists()


@pytest.mark.parametrize("system", ["ext4", "fuse", None])
def test_many_files_are_flushed_at_once_only_where_that_is_known_to_do_it(
    files: Files, monkeypatch: pytest.MonkeyPatch, system: str | None
) -> None:
    monkeypatch.setattr(writing, "_file_system", lambda _: system)
    synced = syncs(monkeypatch)
    contents = {files.base / str(number) / "a.md": b"x" for number in range(MANY)}
    files.create_all(contents)
    flushed = {path.parent.name for path in contents} <= {path.name for path in synced}
    assert flushed == (system != "ext4")
    assert all(path.read_bytes() == b"x" for path in contents)
