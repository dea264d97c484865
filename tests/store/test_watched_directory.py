"""A directory with very many files: after changes by other processes the index equals that of a first reading."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from multi_agent_mcp.domain.message import Message, reading_order
from multi_agent_mcp.domain.times import format_time
from multi_agent_mcp.store import directory, index
from multi_agent_mcp.store.directory import Directory
from multi_agent_mcp.store.files.durable_files import Files
from multi_agent_mcp.system import inotify
from tests.store.support import NOON, mailbox, message, put

LARGE = 50
Edit = Callable[[Path, Path], object]
"""An edit of one file by another program; the other path lies outside the directory."""


def text(number: int, **fields: Any) -> str:
    lines = {"id": message(number).id, "created_at": format_time(NOON), **fields}
    return "---\n" + "".join(f"{key}: {value}\n" for key, value in lines.items()) + "---\n\nbody"


@pytest.fixture
def crowd(files: Files, monkeypatch: pytest.MonkeyPatch) -> Directory[Message]:
    """A large directory that was indexed and has changed since."""
    monkeypatch.setattr(directory, "WATCHED_FROM", LARGE)
    files.scratch.mkdir(parents=True)
    folder = mailbox(files).hot
    for number in range(LARGE):
        put(folder.path / f"{number:05}.md", text(number))
    folder.entries()
    put(folder.path / "last.md", text(7_777))
    folder.entries()
    return folder


def found(folder: Directory[Message]) -> tuple[Any, ...]:
    index = folder.index(fresh=True)
    keys = {key: set(index.named(key, _first)) for key in map(_first, index.entries)}
    return index.entries, index.open, index.closed_counts, index.group_counts, keys


def _first(name: str) -> str:
    return name[:3]


def at_first_sight(files: Files) -> tuple[Any, ...]:
    return found(mailbox(files).hot)


def without_listing(monkeypatch: pytest.MonkeyPatch, folder: Directory[Message]) -> tuple[Any, ...]:
    def refuse(_: object) -> None:
        raise AssertionError("all of the files were looked at")

    with monkeypatch.context() as patched:
        patched.setattr(os, "scandir", refuse)
        return found(folder)


def in_place(path: Path, _: Path) -> None:
    """Overwrites a file in place, with the same size and time."""
    status = path.stat()
    with path.open("r+b") as file:
        file.write(path.read_bytes().replace(b"body", b"BODY").replace(b"created_at", b"created_up"))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def renamed_over(path: Path, outside: Path) -> None:
    put(outside, text(4_242, priority="urgent")).replace(path)


def linked(path: Path, outside: Path) -> None:
    put(outside, text(4_243))
    os.link(outside, path.with_name("linked.md"))


def link_to_nowhere(path: Path, outside: Path) -> None:
    path.unlink()
    path.symlink_to(outside)


EDITS: dict[str, Edit] = {
    "written in place": lambda path, _: path.write_text(text(99, subject="other")),
    "the same size and time": in_place,
    "cut off in its body": lambda path, _: os.truncate(path, path.stat().st_size - 3),
    "emptied": lambda path, _: os.truncate(path, 0),
    "no mail any more": lambda path, _: path.write_text("nothing that could be read"),
    "renamed over": renamed_over,
    "older than it was": lambda path, _: os.utime(path, (1, 1)),
    "deleted": lambda path, _: path.unlink(),
    "moved away": lambda path, outside: path.rename(outside),
    "renamed": lambda path, _: path.rename(path.with_name("other.md")),
    "renamed to nothing of ours": lambda path, _: path.rename(path.with_name(".other.md")),
    "new": lambda path, _: put(path.with_name("new.md"), text(5_000)),
    "linked into it": linked,
    "a directory": lambda path, _: path.with_name("directory.md").mkdir(),
    "a link in its place": link_to_nowhere,
    "read": lambda path, _: path.write_text(text(3, read_at="'2026-11-21T12:00:00.000000Z'")),
    "read, by a hand": lambda path, _: path.write_text(text(3, read_at="2026-11-21 12:00")),
}


def test_what_anybody_does_to_a_file_is_seen_without_a_look_at_the_others(
    crowd: Directory[Message], files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, edit in EDITS.items():
        edit(prepared(crowd), tmp_path / f"{name}.md")
        assert without_listing(monkeypatch, crowd) == at_first_sight(files), name


def prepared(crowd: Directory[Message]) -> Path:
    """A file to be edited, as it was before the edit before."""
    (crowd.path / "linked.md").unlink(missing_ok=True)
    path = crowd.path / "00003.md"
    path.unlink(missing_ok=True)
    return put(path, text(3))


def test_many_changes_one_after_the_other_leave_what_a_first_look_finds(
    crowd: Directory[Message], files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(15)  # noqa: S311
    repeatable = [edit for name, edit in EDITS.items() if name not in ("a directory", "no mail any more", "emptied")]
    for number in range(60):
        path = crowd.path / f"{chance.randrange(40):05}.md"
        (crowd.path / "linked.md").unlink(missing_ok=True)
        if path.is_file() and not path.is_symlink():
            chance.choice(repeatable)(path, tmp_path / f"{number}.md")
        if number % 7 == 0:
            without_listing(monkeypatch, crowd)
    assert without_listing(monkeypatch, crowd) == at_first_sight(files)


def test_a_directory_that_was_replaced_is_looked_at(crowd: Directory[Message], files: Files, tmp_path: Path) -> None:
    crowd.path.rename(tmp_path / "former")
    put(crowd.path / "only.md", text(1))
    assert list(crowd.entries()) == ["only.md"]
    put(tmp_path / "former" / "strange.md", text(2))
    put(crowd.path / "second.md", text(2))
    assert found(crowd) == at_first_sight(files)


def test_a_directory_that_was_deleted_is_empty(crowd: Directory[Message]) -> None:
    for path in crowd.path.iterdir():
        path.unlink()
    crowd.path.rmdir()
    assert crowd.entries() == {}


def test_what_was_handed_out_before_a_change_stays_as_it_was(crowd: Directory[Message]) -> None:
    before, order = crowd.entries(), [name for name, _ in crowd.open_entities()]
    opened = crowd.open_entities()
    (crowd.path / "00003.md").unlink()
    assert "00003.md" not in crowd.entries()
    assert "00003.md" in before
    assert [name for name, _ in opened] == order


def test_a_look_that_fails_is_made_good_by_the_next_one(
    crowd: Directory[Message], files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(crowd.path / "new.md", text(5_000))
    with monkeypatch.context() as patched:
        patched.setattr(index, "peek", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            crowd.entries()
    assert "new.md" in crowd.entries()
    assert found(crowd) == at_first_sight(files)


def test_what_events_do_not_tell_is_seen_after_a_while(
    files: Files, tmp_path: Path, crowd: Directory[Message], monkeypatch: pytest.MonkeyPatch
) -> None:
    linked(crowd.path / "00003.md", tmp_path / "outside.md")
    crowd.entries()
    put(tmp_path / "outside.md", text(4_243, subject="through the other link"))
    monkeypatch.setattr(directory, "WATCHED_SECONDS", -1)
    assert found(crowd) == at_first_sight(files)


def test_where_nothing_can_be_watched_the_files_are_looked_at(
    files: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setattr(inotify, "LOCAL", frozenset())
    crowd: Directory[Message] = request.getfixturevalue("crowd")
    for name, edit in EDITS.items():
        if name != "the same size and time":  # that is not seen without events
            edit(prepared(crowd), tmp_path / f"{name}.md")
            assert found(crowd) == at_first_sight(files), name


def test_mail_is_told_in_the_order_in_which_it_is_read(files: Files) -> None:
    inbox = mailbox(files)
    folder = Directory(files, inbox.path, Message, order=reading_order, receiver_id="worker-a")
    for number, priority in ((3, "normal"), (1, "low"), (2, "urgent")):
        put(inbox.path / f"{number}.md", text(number, priority=priority, created_at=f"2026-11-2{number}T00:00:00Z"))
    assert [name for name, _ in folder.open_entities()] == ["2.md", "1.md", "3.md"]
    put(inbox.path / "4.md", text(4, priority="urgent", created_at="2026-11-20T00:00:00Z"))
    assert [name for name, _ in folder.open_entities()] == ["4.md", "2.md", "1.md", "3.md"]
