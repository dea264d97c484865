"""Keys and records: small files of their own."""

from __future__ import annotations

import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from multi_agent_mcp.errors import StorageError
from multi_agent_mcp.store.durable_files import Files
from multi_agent_mcp.store.records import KeyFile, Record
from tests.store.support import put


def test_all_who_make_a_key_at_once_get_the_same_one(files: Files) -> None:
    path = files.base / "secrets" / "a.key"
    with ThreadPoolExecutor(8) as pool:
        keys = set(pool.map(lambda _: KeyFile(files, path).ensure(), range(16)))
    assert keys == {KeyFile(files, path).read()}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_key_is_read_again_when_somebody_replaced_or_removed_it(files: Files) -> None:
    key = KeyFile(files, files.base / "secrets" / "a.key")
    first = key.ensure()
    assert key.read() == key.read() == first
    files.replace(key.path, b"another\n")
    assert key.read() == "another"
    files.remove(key.path)
    assert key.read() is None


def test_no_key_is_read_or_made_through_a_link(files: Files, tmp_path: Path) -> None:
    put(tmp_path / "theirs", "a key of somebody else's")
    (files.base / "secrets").mkdir(parents=True)
    (files.base / "secrets" / "a.key").symlink_to(tmp_path / "theirs")
    with pytest.raises(StorageError):
        KeyFile(files, files.base / "secrets" / "a.key").ensure()


def test_nothing_is_removed_through_a_link_out_of_the_session(files: Files, tmp_path: Path) -> None:
    put(tmp_path / "outside" / "record.json", "{}")
    files.base.mkdir(parents=True, exist_ok=True)
    (files.base / ".supervisor").symlink_to(tmp_path / "outside")
    with pytest.raises(StorageError):
        Record(files, files.base / ".supervisor" / "record.json").remove()
    assert (tmp_path / "outside" / "record.json").exists()


@pytest.mark.parametrize("damage", [b"", b"{", b"\xff", b"[" * 100_000])
def test_a_damaged_record_counts_as_none(files: Files, damage: bytes) -> None:
    record = Record(files, files.base / ".supervisor" / "x.json")
    assert record.read() is None
    record.write({"pid": 1})
    assert record.read() == {"pid": 1}
    put(record.path, damage)
    assert record.read() is None
    record.remove()
    record.remove()
    assert not record.path.exists()
