"""Looking through inboxes: newest first wherever a file is and whatever it is called, parsed once."""

from __future__ import annotations

import os
from datetime import timedelta
from itertools import islice
from pathlib import Path

import pytest

from multi_agent_mcp.domain.message import Message
from multi_agent_mcp.store.durable_files import Files
from multi_agent_mcp.store.inbox import Inbox, file_name
from multi_agent_mcp.store.merged_inboxes import HEAD_CHARACTERS, MergedInbox, position
from tests.store.support import NOON, confirm_read, mailbox, message, put


@pytest.fixture
def inbox(files: Files) -> Inbox[Message]:
    return mailbox(files)


@pytest.fixture
def other(files: Files) -> Inbox[Message]:
    return Inbox(files, files.base / "ipc" / "admin", Message, lock="mailbox-admin", receiver_id="admin")


@pytest.fixture
def merged() -> MergedInbox[Message]:
    return MergedInbox()


def contents(merged: MergedInbox[Message], *inboxes: Inbox[Message]) -> list[str]:
    return [head.content for head in merged.heads(merged.newest_first(inboxes))]


def test_two_inboxes_are_one_stream_newest_first(
    merged: MergedInbox[Message], inbox: Inbox[Message], other: Inbox[Message]
) -> None:
    for number in (3, 1, 5):
        inbox.deliver(message(number))
    for number in (2, 4):
        other.deliver(message(number))
    assert contents(merged, inbox, other) == ["text 5", "text 4", "text 3", "text 2", "text 1"]


def test_within_a_second_the_microseconds_decide(merged: MergedInbox[Message], inbox: Inbox[Message]) -> None:
    for number, microseconds in ((1, 900), (2, 100), (3, 500)):
        inbox.deliver(message(number, created_at=NOON + timedelta(microseconds=microseconds)))
    assert contents(merged, inbox) == ["text 1", "text 3", "text 2"]


def test_a_file_with_a_name_of_its_own_is_where_its_time_puts_it(
    merged: MergedInbox[Message], inbox: Inbox[Message]
) -> None:
    inbox.deliver(message(10))
    inbox.deliver(message(30))
    put(inbox.path / "note.md", "---\ncreated_at: 2026-11-21T12:00:20Z\n---\n\nby its header")
    put(inbox.path / "older.md", "---\nsubject: x\n---\n\nby its file", at=NOON + timedelta(seconds=5))
    assert contents(merged, inbox) == ["text 30", "by its header", "text 10", "by its file"]


def test_the_archive_follows_and_a_file_left_at_both_places_by_a_crash_is_one(
    merged: MergedInbox[Message], inbox: Inbox[Message]
) -> None:
    for number in (1, 2, 3):
        inbox.deliver(message(number))
    inbox.mark_read([file_name(message(number)) for number in (1, 2)], NOON)
    confirm_read(inbox)
    (month,) = (inbox.path / "archive").iterdir()
    os.link(month / file_name(message(2)), inbox.path / file_name(message(2)))
    assert contents(merged, inbox) == ["text 3", "text 2", "text 1"]


def test_a_change_in_a_file_is_seen_at_the_next_look(merged: MergedInbox[Message], inbox: Inbox[Message]) -> None:
    for number in (1, 2):
        inbox.deliver(message(number))
    assert [head.read_at for head in merged.heads(merged.newest_first([inbox]))] == [None, None]
    inbox.mark_read([file_name(message(1))], NOON)
    assert [head.read_at for head in merged.heads(merged.newest_first([inbox]))] == [None, NOON]
    inbox.deliver(message(3))
    assert contents(merged, inbox) == ["text 3", "text 2", "text 1"]


def test_a_second_look_parses_nothing(merged: MergedInbox[Message], inbox: Inbox[Message]) -> None:
    inbox.deliver(message(1))
    (first,) = merged.heads(merged.newest_first([inbox]))
    (second,) = merged.heads(merged.newest_first([inbox]))
    assert second is first


def test_a_head_holds_only_the_beginning_of_a_body(merged: MergedInbox[Message], inbox: Inbox[Message]) -> None:
    inbox.deliver(message(1, content="長" * 100_000))
    (head,) = merged.heads(merged.newest_first([inbox]))
    assert head.content == "長" * HEAD_CHARACTERS


def test_what_cannot_be_read_hides_nothing_else(merged: MergedInbox[Message], inbox: Inbox[Message]) -> None:
    inbox.deliver(message(1))
    put(inbox.path / file_name(message(2)), b"\xff\xfe no mail")
    put(inbox.path / "scribble.md", "no front matter")
    assert contents(merged, inbox) == ["text 1"]


def test_unread_messages_are_those_not_marked_read(merged: MergedInbox[Message], inbox: Inbox[Message]) -> None:
    for number in (1, 2, 3):
        inbox.deliver(message(number))
    inbox.read([file_name(message(2))], NOON)
    assert [head.content for head in merged.heads(merged.unread([inbox]))] == ["text 3", "text 1"]


def test_a_message_is_found_under_whatever_name_it_lies(merged: MergedInbox[Message], inbox: Inbox[Message]) -> None:
    inbox.deliver(message(1))
    put(inbox.path / "note.md", "---\nid: note-1\n---\n\nhello")
    put(inbox.path / file_name(message(9)), "---\nid: another\n---\n\nunder the name of nine")
    for entity_id in (message(1).id, "note-1", "another"):
        found = merged.find([inbox], entity_id)
        assert found is not None
        assert found[1].id == entity_id
    assert merged.find([inbox], message(9).id) is None


def test_an_archived_message_is_believed_its_name_and_looked_at_only_where_it_may_be_the_one(
    merged: MergedInbox[Message], inbox: Inbox[Message]
) -> None:
    inbox.deliver(message(1))
    inbox.mark_read([file_name(message(1))], NOON)
    confirm_read(inbox)
    (month,) = (inbox.path / "archive").iterdir()
    never_read = month / file_name(message(2))
    put(never_read, "no message: whoever reads it sets it aside")
    put(month / "note.md", "---\nid: note-1\ncreated_at: 2026-11-21T12:00:00Z\n---\n\nhello")
    for entity_id in (message(1).id, "note-1"):
        found = merged.find([inbox], entity_id)
        assert found is not None
        assert found[1].id == entity_id
    assert merged.find([inbox], message(3).id) is None
    assert never_read.exists()
    assert merged.find([inbox], message(2).id) is None
    assert not never_read.exists()


def test_heads_go_on_below_a_position(merged: MergedInbox[Message], inbox: Inbox[Message]) -> None:
    for number in range(4):
        inbox.deliver(message(number, created_at=NOON + timedelta(microseconds=number)))
    files = merged.newest_first([inbox])
    found = merged.find([inbox], message(2).id)
    assert found is not None
    assert [head.content for head in merged.heads(files, position(*found))] == ["text 1", "text 0"]


def test_an_archive_is_listed_no_further_back_than_asked(merged: MergedInbox[Message], inbox: Inbox[Message]) -> None:
    def archived(month: str, name: str, text: str) -> Path:
        path = inbox.path / "archive" / month / name
        path.parent.mkdir(parents=True, exist_ok=True)
        put(path, text)
        return path

    for month in ("2025-01", "2025-02", "2025-03"):
        stamped = f"{month.replace('-', '')}01_120000_00000000.md"
        archived(month, stamped, f"---\ncreated_at: {month}-01T12:00:00Z\n---\n\n{month}")
    never_read = archived("2025-01", "note.md", "no message: whoever reads it sets it aside")
    inbox.deliver(message(1))
    found = [head.content for head in islice(merged.heads(merged.newest_first([inbox])), 2)]
    assert found == ["text 1", "2025-03"]
    assert never_read.exists()
    within = merged.newest_first([inbox], "20250201", "20250228_999999")
    assert [head.content for head in merged.heads(within)] == ["2025-02"]
    assert never_read.exists()
    assert merged.count([inbox], "20250101", "20250301_120000") == 3
    assert [head.content for head in merged.heads(merged.newest_first([inbox]))][-1] == "2025-01"
    assert not never_read.exists()
