"""The last lines of a long file cost as much as those of a short one, and it is never held as a whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from multi_agent_mcp.store import records
from multi_agent_mcp.store.durable_files import Files
from multi_agent_mcp.store.records import LineFile


@pytest.fixture
def path(files: Files) -> Path:
    found = files.base / "logs" / "a.log"
    found.parent.mkdir(parents=True)
    return found


def log(files: Files, path: Path, monkeypatch: pytest.MonkeyPatch, block: int = 16) -> LineFile:
    monkeypatch.setattr(records, "BLOCK_BYTES", block)
    monkeypatch.setattr(records, "COUNTED_ANEW_BYTES", 64)
    return LineFile(files, path)


@pytest.mark.parametrize("end", [b"\n", b""])
@pytest.mark.parametrize("total", [0, 1, 2, 7, 40])
@pytest.mark.parametrize("count", [0, 1, 3, 40, 100])
def test_the_last_lines_are_those_of_the_file(
    files: Files, path: Path, monkeypatch: pytest.MonkeyPatch, end: bytes, total: int, count: int
) -> None:
    lines = [f"line {number} {'é' * (number % 5)}" for number in range(total)]
    path.write_bytes("\n".join(lines).encode() + (end if lines else b""))
    read = log(files, path, monkeypatch)
    assert read.last(count) == lines[max(total - count, 0) :]
    assert read.since(3) == lines[3:]
    assert read.count() == read.count() == total


def test_a_file_that_is_not_there_has_no_lines(files: Files, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = log(files, path, monkeypatch)
    assert (read.last(5), read.since(0), read.count()) == ([], [], 0)


def test_lines_are_counted_from_where_they_were_counted_before(
    files: Files, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.write_bytes(b"abcdefg\n" * 20)
    assert log(files, path, monkeypatch).count() == 20
    (noted,) = files.base.glob(".index/logs/*")
    assert noted.read_text(encoding="utf-8") == "[20, 160]\n"
    with path.open("ab") as file:
        file.write(b"more\n")
    assert log(files, path, monkeypatch).count() == 21
    path.write_bytes(b"cut\n")
    assert log(files, path, monkeypatch).count() == 1
    noted.write_text("{}", encoding="utf-8")
    assert log(files, path, monkeypatch).count() == 1
