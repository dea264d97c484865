"""An archived file is found by the digits in its name, without a look at the others, whatever happens behind it."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import pytest

from multi_agent_mcp.domain.message import Message
from multi_agent_mcp.store.codec import codec
from multi_agent_mcp.store.durable_files import Files
from multi_agent_mcp.store.inbox import Inbox, file_name
from multi_agent_mcp.store.merged_inboxes import MergedInbox
from tests.store.support import NOON, confirm_read, mailbox, message, put

COUNT = 40


@pytest.fixture
def month(files: Files) -> Path:
    """A month of the archive that was settled long ago."""
    inbox = mailbox(files)
    found = inbox.path / "archive" / f"{NOON:%Y-%m}"
    for number in range(COUNT):
        put(found / file_name(message(number)), codec(Message).encode(message(number).mark_read(NOON)))
    settle(found)
    return found


def settle(month: Path, seconds: int = 0) -> None:
    moment = NOON.timestamp() + seconds
    os.utime(month, (moment, moment))


def index(files: Files) -> list[Path]:
    return list(files.base.glob(".index/ipc/worker-a/archive/*"))


def test_every_file_is_found_by_its_id_with_and_without_an_index(files: Files, month: Path) -> None:
    for _ in range(2):
        inbox = mailbox(files)
        for number in range(COUNT):
            found = inbox.find(message(number).id)
            assert found is not None
            assert found[0] == month / file_name(message(number))
        assert inbox.find(message(COUNT).id) is None
        assert [item.count() for item in inbox.months()] == [COUNT]
        assert len(index(files)) == 1


@pytest.mark.parametrize("behind", ["removed", "added", "damaged", "deleted", "emptied"])
def test_an_index_is_not_believed_when_it_should_not_be(files: Files, month: Path, behind: str) -> None:
    assert mailbox(files).find(message(0).id) is not None
    expected = set(range(COUNT))
    if behind == "removed":
        (month / file_name(message(3))).unlink()
        expected -= {3}
    elif behind == "added":
        put(month / file_name(message(COUNT)), codec(Message).encode(message(COUNT).mark_read(NOON)))
        expected |= {COUNT}
    elif behind == "deleted":
        index(files)[0].unlink()
    else:
        index(files)[0].write_bytes(b"" if behind == "emptied" else b"garbage\n" * 3)
    for inbox in (mailbox(files), mailbox(files)):
        assert {number for number in range(COUNT + 1) if inbox.find(message(number).id)} == expected
        assert [item.count() for item in inbox.months()] == [len(expected)]
        assert [item.id for item in inbox.history()] == [
            message(number).id for number in sorted(expected, reverse=True)
        ]


def test_the_names_before_a_second_are_the_same_with_and_without_an_index(files: Files, month: Path) -> None:
    for name in ("note.md", "20261121.md", "0.md", "~.md", file_name(message(7)).replace(".md", ".1.md")):
        put(month / name, "whoever reads this sets it aside")
    settle(month, 60)
    (directory,) = mailbox(files).months()
    seconds = [
        None,
        "20260101_000000",
        "20270101_000000",
        *(file_name(message(number))[:15] for number in range(COUNT)),
    ]
    listed = [list(directory.newest_first(second)) for second in seconds]
    strange = {"note.md", "20261121.md", "0.md", "~.md"}
    assert set(directory.strangers()) == strange
    names = sorted({*directory.names()} - strange, reverse=True)
    assert listed == [[name for name in names if second is None or name[:15] <= second] for second in seconds]
    assert index(files)


def test_one_id_is_found_without_a_look_at_any_other_file(files: Files, month: Path) -> None:
    assert mailbox(files).find(message(0).id) is not None
    for number in range(1, COUNT):
        (month / file_name(message(number))).write_bytes(b"whoever reads this sets it aside")
    assert mailbox(files).find(message(0).id) is not None
    assert len(list(month.iterdir())) == COUNT


def test_a_file_with_a_name_of_its_own_is_found_too(files: Files, month: Path) -> None:
    put(month / "note.md", "---\nid: note-1\ncreated_at: 2026-11-21T12:00:00Z\n---\n\nhello")
    settle(month, 60)
    for _ in range(2):
        found = mailbox(files).find("note-1")
        assert found is not None
        assert found[0] == month / "note.md"


def test_a_page_begins_below_a_message_and_looks_at_none_above_it(files: Files, month: Path) -> None:
    for number in range(10, COUNT):
        (month / file_name(message(number))).write_bytes(b"whoever reads this sets it aside")
    inbox = mailbox(files)
    before = inbox.position(month / file_name(message(9)), message(9))
    assert [item.id for _, item in inbox.newest_first(before)] == [message(number).id for number in range(8, -1, -1)]
    assert len(list(month.iterdir())) == COUNT


def test_what_is_confirmed_is_added_to_the_index_and_found(files: Files, month: Path) -> None:
    inbox = mailbox(files)
    assert inbox.find(message(0).id) is not None
    (made,) = index(files)
    before = made.stat().st_ino
    for number in range(COUNT, COUNT + 5):
        inbox.deliver(message(number))
        inbox.mark_read([file_name(message(number))], NOON)
        confirm_read(inbox)
    for looking in (inbox, mailbox(files)):
        assert [item.count() for item in looking.months()] == [COUNT + 5]
        assert [item.id for item in looking.history()] == [message(n).id for n in range(COUNT + 4, -1, -1)]
        assert all(looking.find(message(number).id) for number in range(COUNT + 5))
    assert made.stat().st_ino == before  # grown, and not made again


def test_only_the_months_that_are_asked_for_are_listed(files: Files, month: Path) -> None:
    older = month.with_name("2026-01")
    put(older / file_name(message(0)), "whoever reads this sets it aside")
    inbox: Inbox[Message] = mailbox(files)
    merged: MergedInbox[Message] = MergedInbox()
    newest = [head.id for head, _ in zip(merged.heads(merged.newest_first([inbox])), range(3), strict=False)]
    assert newest == [message(number).id for number in (39, 38, 37)]
    assert merged.count([inbox], "20261001_000000", "20261230_235959") == COUNT
    first = NOON + timedelta(seconds=10)
    assert merged.count([inbox], f"{first:%Y%m%d_%H%M%S}", "20261130_235959") == COUNT - 10
    assert (older / file_name(message(0))).exists()
