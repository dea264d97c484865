"""Journals: appended to, read backwards, kept within bounds where they are derived."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from unittest.mock import Mock

import pytest

from multi_agent_mcp.errors import StorageError
from multi_agent_mcp.store import records
from multi_agent_mcp.store.durable_files import Files
from multi_agent_mcp.store.records import Journal
from tests.store.support import put


def numbers(journal: Journal) -> list[int]:
    return [entry["n"] for entry in journal.newest_first()]


def test_the_newest_line_comes_first(files: Files) -> None:
    journal = Journal(files, files.base / "x.jsonl")
    assert numbers(journal) == []
    for number in range(3):
        journal.append(n=number, text="改行\n\u2028なし")
    assert numbers(journal) == [2, 1, 0]
    assert len((files.base / "x.jsonl").read_bytes().splitlines()) == 3


def test_a_journal_is_read_from_its_end_as_far_as_it_is_asked_for(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = Journal(files, files.base / "x.jsonl")
    written = range(400)
    for number in written:
        journal.append(n=number, text="行" * (number % 50))
    pread = Mock(side_effect=os.pread)
    monkeypatch.setattr(os, "pread", pread)
    assert next(journal.newest_first())["n"] == written[-1]
    assert pread.call_count == 1
    assert numbers(journal) == [*reversed(written)]
    assert pread.call_count > 3


def test_lines_longer_than_what_is_read_at_once_and_empty_ones_are_read(files: Files) -> None:
    journal = Journal(files, files.base / "x.jsonl")
    for number in range(3):
        journal.append(n=number, text="行" * 5_000)
        put(journal.path, journal.path.read_bytes() + b"\n" * 9_000)
    assert numbers(journal) == [2, 1, 0]


@pytest.mark.parametrize("name", ["x.jsonl", "x.jsonl.1"])
def test_derived_lines_that_cannot_be_read_count_as_missing(files: Files, name: str) -> None:
    (files.base / name).mkdir()
    if name != "x.jsonl":
        Journal(files, files.base / "x.jsonl").append(n=1)
    assert numbers(Journal(files, files.base / "x.jsonl", rotates=True)) == ([] if name == "x.jsonl" else [1])
    with pytest.raises(StorageError):
        numbers(Journal(files, files.base / "x.jsonl"))


def test_text_that_no_encoding_has_is_kept_in_json_s_own_way(files: Files) -> None:
    journal = Journal(files, files.base / "x.jsonl")
    journal.append(n=1, text="a\ud800b")
    assert [entry["text"] for entry in journal.newest_first()] == ["a\ud800b"]


def test_lines_that_cannot_be_read_are_skipped(files: Files) -> None:
    journal = Journal(files, files.base / "x.jsonl")
    journal.append(n=1)
    put(journal.path, journal.path.read_bytes() + b'{"n": \n\xff\xfe\n[1]\n"text"\n\n')
    journal.append(n=2)
    assert numbers(journal) == [2, 1]


def test_a_journal_that_rotates_begins_again_and_still_tells_what_was_before(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "ROTATE_BYTES", 100)
    journal = Journal(files, files.base / "x.jsonl", rotates=True)
    for number in range(30):
        journal.append(n=number)
    kept = numbers(journal)
    assert kept == list(range(29, 29 - len(kept), -1))
    assert 10 < len(kept) < 30
    assert sorted(path.name for path in files.base.glob("x.*")) == ["x.jsonl", "x.jsonl.1"]


def test_of_those_who_find_a_journal_full_at_once_one_rotates_it(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sender holds no lock when it logs that nobody can be rung. It failed with a plain `FileNotFoundError` when
    another one had just rotated the journal, and the new journal was moved over the full one."""
    monkeypatch.setattr(records, "ROTATE_BYTES", 400)
    path = files.base / "x.jsonl"
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: Journal(files, path, rotates=True).append(n=number), range(800)))
    assert path.with_name("x.jsonl.1").stat().st_size > 400


def test_a_journal_of_what_people_did_is_never_cut(files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "ROTATE_BYTES", 100)
    journal = Journal(files, files.base / "audit" / "20261121.jsonl")
    for number in range(30):
        journal.append(n=number)
    assert numbers(journal) == list(range(29, -1, -1))


def test_a_line_nested_beyond_reason_is_skipped(files: Files) -> None:
    journal = Journal(files, files.base / "log.jsonl")
    journal.append(number=1)
    with journal.path.open("a", encoding="ascii") as file:
        file.write("[" * 100_000 + "\n")
    assert [entry["number"] for entry in journal.newest_first()] == [1]
