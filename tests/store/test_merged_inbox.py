"""Looking through inboxes: newest first wherever a file lies and whatever it is called, parsed once."""

from __future__ import annotations

import os
from datetime import timedelta

import pytest

from multi_agent_mcp.domain.message import Message
from multi_agent_mcp.store.files.durable_files import Files
from multi_agent_mcp.store.inbox import Inbox, file_name
from multi_agent_mcp.store.merged_inbox import HEAD_CHARACTERS, MergedInbox, position
from tests.store.support import NOON, mailbox, message, put


@pytest.fixture
def inbox(files: Files) -> Inbox[Message]:
    return mailbox(files)


@pytest.fixture
def other(files: Files) -> Inbox[Message]:
    return Inbox(files, files.base / "ipc" / "admin", Message, lock="mailbox-admin", receiver_id="admin")


@pytest.fixture
def skim() -> MergedInbox[Message]:
    return MergedInbox()


def contents(skim: MergedInbox[Message], *inboxes: Inbox[Message]) -> list[str]:
    return [head.content for head in skim.heads(skim.everything(inboxes))]


def test_two_inboxes_are_one_stream_newest_first(
    skim: MergedInbox[Message], inbox: Inbox[Message], other: Inbox[Message]
) -> None:
    for number in (3, 1, 5):
        inbox.deliver(message(number))
    for number in (2, 4):
        other.deliver(message(number))
    assert contents(skim, inbox, other) == ["text 5", "text 4", "text 3", "text 2", "text 1"]


def test_within_a_second_the_microseconds_decide(skim: MergedInbox[Message], inbox: Inbox[Message]) -> None:
    for number, microseconds in ((1, 900), (2, 100), (3, 500)):
        inbox.deliver(message(number, created_at=NOON + timedelta(microseconds=microseconds)))
    assert contents(skim, inbox) == ["text 1", "text 3", "text 2"]


def test_a_file_with_a_name_of_its_own_stands_where_its_time_puts_it(
    skim: MergedInbox[Message], inbox: Inbox[Message]
) -> None:
    inbox.deliver(message(10))
    inbox.deliver(message(30))
    put(inbox.path / "note.md", "---\ncreated_at: 2026-11-21T12:00:20Z\n---\n\nby its header")
    put(inbox.path / "older.md", "---\nsubject: x\n---\n\nby its file", at=NOON + timedelta(seconds=5))
    assert contents(skim, inbox) == ["text 30", "by its header", "text 10", "by its file"]


def test_the_archive_follows_and_a_file_left_at_both_places_by_a_crash_is_one(
    skim: MergedInbox[Message], inbox: Inbox[Message]
) -> None:
    for number in (1, 2, 3):
        inbox.deliver(message(number))
    inbox.mark_read([file_name(message(number)) for number in (1, 2)], NOON)
    inbox.archive_read(keep=0, above=0)
    (month,) = (inbox.path / "archive").iterdir()
    os.link(month / file_name(message(2)), inbox.path / file_name(message(2)))
    assert contents(skim, inbox) == ["text 3", "text 2", "text 1"]


def test_a_change_in_a_file_is_seen_at_the_next_look(skim: MergedInbox[Message], inbox: Inbox[Message]) -> None:
    for number in (1, 2):
        inbox.deliver(message(number))
    assert [head.read_at for head in skim.heads(skim.everything([inbox]))] == [None, None]
    inbox.mark_read([file_name(message(1))], NOON)
    assert [head.read_at for head in skim.heads(skim.everything([inbox]))] == [None, NOON]
    inbox.deliver(message(3))
    assert contents(skim, inbox) == ["text 3", "text 2", "text 1"]


def test_a_second_look_parses_nothing(skim: MergedInbox[Message], inbox: Inbox[Message]) -> None:
    inbox.deliver(message(1))
    (first,) = skim.heads(skim.everything([inbox]))
    (second,) = skim.heads(skim.everything([inbox]))
    assert second is first


def test_a_head_holds_only_the_beginning_of_a_body(skim: MergedInbox[Message], inbox: Inbox[Message]) -> None:
    inbox.deliver(message(1, content="長" * 100_000))
    (head,) = skim.heads(skim.everything([inbox]))
    assert head.content == "長" * HEAD_CHARACTERS


def test_what_cannot_be_read_hides_nothing_else(skim: MergedInbox[Message], inbox: Inbox[Message]) -> None:
    inbox.deliver(message(1))
    put(inbox.path / file_name(message(2)), b"\xff\xfe no mail")
    put(inbox.path / "scribble.md", "no front matter")
    assert contents(skim, inbox) == ["text 1"]


def test_unread_letters_are_those_that_were_not_marked_read(skim: MergedInbox[Message], inbox: Inbox[Message]) -> None:
    for number in (1, 2, 3):
        inbox.deliver(message(number))
    inbox.mark_read([file_name(message(2))], NOON)
    assert [head.content for head in skim.heads(skim.unread([inbox]))] == ["text 3", "text 1"]


def test_a_letter_is_found_under_whatever_name_it_lies(skim: MergedInbox[Message], inbox: Inbox[Message]) -> None:
    inbox.deliver(message(1))
    put(inbox.path / "note.md", "---\nid: note-1\n---\n\nhello")
    put(inbox.path / file_name(message(9)), "---\nid: another\n---\n\nunder the name of nine")
    for entity_id in (message(1).id, "note-1", "another"):
        found = skim.find([inbox], entity_id)
        assert found is not None
        assert found[1].id == entity_id
    assert skim.find([inbox], message(9).id) is None


def test_an_archived_letter_is_believed_its_name_and_looked_at_only_where_it_may_be_the_one(
    skim: MergedInbox[Message], inbox: Inbox[Message]
) -> None:
    inbox.deliver(message(1))
    inbox.mark_read([file_name(message(1))], NOON)
    inbox.archive_read(keep=0, above=0)
    (month,) = (inbox.path / "archive").iterdir()
    never_read = month / file_name(message(2))
    put(never_read, "no message: whoever reads it sets it aside")
    put(month / "note.md", "---\nid: note-1\ncreated_at: 2026-11-21T12:00:00Z\n---\n\nhello")
    for entity_id in (message(1).id, "note-1"):
        found = skim.find([inbox], entity_id)
        assert found is not None
        assert found[1].id == entity_id
    assert skim.find([inbox], message(3).id) is None
    assert never_read.exists()
    assert skim.find([inbox], message(2).id) is None
    assert not never_read.exists()


def test_heads_go_on_below_a_position(skim: MergedInbox[Message], inbox: Inbox[Message]) -> None:
    for number in range(4):
        inbox.deliver(message(number, created_at=NOON + timedelta(microseconds=number)))
    letters = skim.everything([inbox])
    found = skim.find([inbox], message(2).id)
    assert found is not None
    assert [head.content for head in skim.heads(letters, position(*found))] == ["text 1", "text 0"]
