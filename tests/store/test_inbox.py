"""Mailboxes: delivered once, marked read, moved on to the archive, found again wherever they lie."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from datetime import timedelta
from itertools import islice
from pathlib import Path
from threading import Barrier

import pytest

from multi_agent_mcp.domain.entity import Mark, SessionName
from multi_agent_mcp.domain.message import Message
from multi_agent_mcp.domain.notification import Notification
from multi_agent_mcp.domain.times import format_time, stamp
from multi_agent_mcp.store import inbox as inbox_module
from multi_agent_mcp.store.durable_files import Files
from multi_agent_mcp.store.inbox import Inbox, file_name
from multi_agent_mcp.store.workspace import Workspace
from tests.store.support import NOON, confirm_read, mailbox, message, put


@pytest.fixture
def inbox(files: Files) -> Inbox[Message]:
    return mailbox(files)


def unread_ids(inbox: Inbox[Message]) -> set[str]:
    return {entity.id for _, entity in inbox.unread(fresh=True)}


def read_all(inbox: Inbox[Message], seconds: int = 0) -> None:
    inbox.mark_read([name for name, _ in inbox.unread(fresh=True)], NOON + timedelta(seconds=seconds))


def archived(inbox: Inbox[Message]) -> list[str]:
    return sorted(str(path.relative_to(inbox.path)) for path in (inbox.path / "archive").rglob("*.md"))


def test_a_message_is_under_its_time_and_the_first_digits_of_its_id(inbox: Inbox[Message]) -> None:
    inbox.deliver(message(0x0A1B2C3D, created_at=NOON))
    assert [path.name for path in inbox.path.iterdir()] == ["20261121_120000_0a1b2c3d.md"]


def test_a_message_that_comes_twice_at_once_unread_and_read_is_in_one_place(inbox: Inbox[Message]) -> None:
    for number in range(40):
        arriving, both = message(number), Barrier(2)
        name, data = file_name(arriving), inbox.hot.codec.encode(arriving)

        def accept(mark: Mark | None, name: str = name, data: bytes = data, both: Barrier = both) -> None:
            both.wait()
            inbox.accept(name, data, time.time_ns(), mark)

        with ThreadPoolExecutor(2) as pool:
            list(pool.map(accept, (None, Mark(NOON))))
    unread = {path.name for path in inbox.path.glob("*.md")}
    assert not unread & {Path(path).name for path in archived(inbox)}


@pytest.mark.parametrize("together", [False, True])
def test_a_pause_that_comes_read_is_in_force_until_its_resumption_comes(files: Files, together: bool) -> None:
    notices = Workspace(files.base.parent, SessionName(files.base.name)).notices("worker-a")
    pause, resumption = (
        Notification(id=f"ntf_{number}0123456789a", target_agent_id="worker-a", action=action, created_at=at)
        for number, action, at in ((1, "pause", NOON), (2, "resume", NOON + timedelta(minutes=1)))
    )
    with notices.accepting_together() if together else nullcontext():
        for notice, in_force in ((pause, [pause.mark_read(NOON)]), (resumption, [])):
            data = notices.hot.codec.encode(notice)
            assert notices.accept(file_name(notice), data, time.time_ns(), Mark(NOON)) == notice.mark_read(NOON)
            assert [found for _, found in notices.in_force()] == in_force
            assert notices.unread(fresh=True) == []
    assert len(list((notices.path / "archive").rglob("*.md"))) == 2


def test_delivering_is_exclusive(inbox: Inbox[Message]) -> None:
    inbox.deliver(message(1))
    with pytest.raises(FileExistsError):
        inbox.deliver(message(1, content="another"))
    assert [entity.content for _, entity in inbox.unread()] == ["text 1"]


def test_what_is_handed_out_is_not_unread_until_it_is_taken_back(files: Files) -> None:
    held: set[str] = set()
    inbox = Inbox(files, files.base / "ipc" / "worker-a", Message, lock="mailbox-worker-a", handed_out=lambda: held)
    for number in (1, 2):
        inbox.deliver(message(number))
    held.add(inbox.reference(file_name(message(1)), NOON))
    assert unread_ids(inbox) == {message(1).id, message(2).id}  # leased, and not marked yet
    inbox.mark_read([file_name(message(1))], NOON)
    assert unread_ids(inbox) == {message(2).id}
    assert inbox.hot.load(file_name(message(1))) == message(1).mark_read(NOON)
    assert [item.id for item in inbox.requeue(held)] == [message(1).id]
    assert unread_ids(inbox) == {message(1).id, message(2).id}


def test_what_is_confirmed_is_in_the_archive_and_is_read_again_when_it_is_put_back(inbox: Inbox[Message]) -> None:
    for number in (1, 2):
        inbox.deliver(message(number))
    name = file_name(message(1))
    inbox.mark_read([name], NOON)
    inbox.confirm([inbox.reference(name, NOON + timedelta(hours=1)), inbox.reference("gone.md", NOON)])
    assert archived(inbox) == []  # another reader's mark
    inbox.confirm([inbox.reference(name, NOON)])
    assert (unread_ids(inbox), archived(inbox)) == ({message(2).id}, [f"archive/2026-11/{name}"])
    (inbox.path / "archive" / "2026-11" / name).rename(inbox.path / name)
    assert unread_ids(inbox) == {message(1).id, message(2).id}
    inbox.mark_read([name], NOON + timedelta(hours=2))
    assert inbox.find(message(1).id) == (inbox.path / name, message(1).mark_read(NOON + timedelta(hours=2)))


def test_another_machines_mail_is_read_when_that_machine_says_so(files: Files) -> None:
    path = files.base / "ipc" / "worker-a"
    inbox = Inbox(files, path, Message, lock="mailbox-worker-a", is_foreign=lambda: True)
    inbox.deliver(message(1))
    inbox.mark_read([file_name(message(1))], NOON)
    assert unread_ids(inbox) == set()
    inbox.accept_mark(file_name(message(1)), Mark(NOON))
    assert archived(inbox) == [f"archive/2026-11/{file_name(message(1))}"]
    inbox.accept_mark(file_name(message(1)), Mark(None))
    assert (unread_ids(inbox), archived(inbox)) == ({message(1).id}, [])


@pytest.mark.parametrize(
    "value", ["", "null", "Null", "NULL", "~", "''", '""', "none", "false", "no", '"null"', "never", "[]", "# not yet"]
)
def test_a_hand_written_read_at_that_is_no_time_leaves_the_message_unread(inbox: Inbox[Message], value: str) -> None:
    put(inbox.path / "note.md", f"---\nid: a\nread_at: {value}\n---\n\nbody")
    assert unread_ids(inbox) == {"a"}


def test_a_file_written_by_hand_is_new_mail_even_if_it_says_that_it_was_read(inbox: Inbox[Message]) -> None:
    put(inbox.path / "note.md", "---\nid: a\nread_at: 2026-11-21\n---\n\nbody")
    assert unread_ids(inbox) == {"a"}


def test_a_body_that_looks_like_a_header_does_not_mark_a_message_read(inbox: Inbox[Message]) -> None:
    inbox.deliver(message(1, subject="x\nread_at: '2026-11-21T12:00:00Z'\n", content="read_at: '2026-11-21'\n---\n"))
    assert unread_ids(inbox) == {message(1).id}


def test_what_is_over_unread_is_ended_into_the_archive(inbox: Inbox[Message]) -> None:
    for number in (1, 2):
        inbox.deliver(message(number))
    inbox.end([file_name(message(1)), file_name(message(1)), "gone.md"], NOON)
    assert (unread_ids(inbox), archived(inbox)) == ({message(2).id}, [f"archive/2026-11/{file_name(message(1))}"])
    inbox.bring_back({message(1).id})
    assert (unread_ids(inbox), archived(inbox)) == ({message(1).id, message(2).id}, [])


def test_history_is_newest_first_over_months_and_read_only_as_far_as_asked(inbox: Inbox[Message]) -> None:
    days = [0, 20, 40, 60, 80]
    for number, day in enumerate(days):
        inbox.deliver(message(number, created_at=NOON + timedelta(days=day)))
    read_all(inbox)
    confirm_read(inbox)
    put(inbox.path / "archive" / "2026-10" / "20261001_000000_ffffffff.md", "unreadable")
    assert [entity.id for entity in islice(inbox.history(), 4)] == [message(number).id for number in (4, 3, 2, 1)]
    assert (inbox.path / "archive" / "2026-10" / "20261001_000000_ffffffff.md").exists()
    assert [entity.id for entity in inbox.history()][-1] == message(0).id


def test_history_orders_messages_of_one_second_by_their_microseconds(inbox: Inbox[Message]) -> None:
    for number in (3, 1, 2):
        inbox.deliver(message(number, created_at=NOON + timedelta(microseconds=number)))
    read_all(inbox)
    confirm_read(inbox)
    assert [entity.id for entity in inbox.history()] == [message(number).id for number in (3, 2, 1)]


def test_a_message_is_found_in_the_archive(inbox: Inbox[Message]) -> None:
    for number in range(3):
        inbox.deliver(message(number))
    read_all(inbox)
    confirm_read(inbox)
    found = inbox.find(message(1).id)
    assert found is not None
    assert (found[0].parent.name, found[1].id) == ("2026-11", message(1).id)
    assert inbox.find(message(7).id) is None


def test_two_messages_with_one_file_name_are_both_found_in_the_archive(inbox: Inbox[Message]) -> None:
    for number in (1, 2):
        put(
            inbox.path / f"note-{number}.md",
            f"---\nid: weekly-report-{number}\ncreated_at: 2026-11-21\n---\n\n{number}",
        )
    read_all(inbox)
    confirm_read(inbox)
    for number in (1, 2):
        found = inbox.find(f"weekly-report-{number}")
        assert found is not None
        assert found[1].content == str(number)


@pytest.mark.parametrize("header", ["", f"id: {message(1).id}\n"], ids=["without ids", "with one id"])
def test_copies_of_one_second_that_are_read_together_are_all_kept(inbox: Inbox[Message], header: str) -> None:
    contents = [f"body {number}" for number in range(4)]
    inbox.deliver(message(1, content=contents[0]))
    for number in (1, 2, 3):
        name = f"{stamp(message(1).created_at)[:-1]}{number}_{number}1111111.md"
        at = format_time(message(1).created_at)
        put(inbox.path / name, f"---\n{header}created_at: '{at}'\n---\n\n{contents[number]}")
    read_all(inbox)
    confirm_read(inbox)
    assert sorted(entity.content for entity in inbox.history()) == contents


@pytest.mark.parametrize(
    ("name", "header", "entity_id"),
    [
        ("note.md", "", "note"),
        ("note.md", "id: 0a1b2c3d-1111-4222-8333-444455556666", "0a1b2c3d-1111-4222-8333-444455556666"),
        ("20261121_214601_0a1b2c3d.md", "", "20261121_214601_0a1b2c3d"),
        ("20261121_120000_report.md", "", "20261121_120000_report"),
        ("20261121_120000_report.md", "id: 7", "7"),
        ("20261121_120000_0a1b2c3d.md", "id: another-one", "another-one"),
    ],
)
def test_a_hand_written_message_is_found_by_its_id_whatever_its_file_is_called(
    inbox: Inbox[Message], name: str, header: str, entity_id: str
) -> None:
    inbox.deliver(message(1))
    put(inbox.path / name, f"---\n{header}\n---\n\nbody" if header else "---\nsubject: x\n---\n\nbody")
    found = inbox.find(entity_id)
    assert found is not None
    assert (found[0].name, found[1].content) == (name, "body")
    inbox.mark_read([name], NOON)
    found = inbox.find(entity_id)
    assert found is not None
    assert found[1].read_at == NOON


def test_a_directory_or_a_pipe_among_the_mail_keeps_nothing_from_being_found(inbox: Inbox[Message]) -> None:
    inbox.deliver(message(1))
    (inbox.path / "folder.md").mkdir()
    os.mkfifo(inbox.path / "pipe.md")
    assert inbox.find("nothing") is None
    found = inbox.find(message(1).id)
    assert found is not None
    assert len(list(inbox.history())) == 1


def test_an_unreadable_file_among_the_candidates_is_set_aside(inbox: Inbox[Message]) -> None:
    put(inbox.path / "junk.md", "no front matter")
    inbox.deliver(message(1))
    assert inbox.find("nothing") is None
    assert unread_ids(inbox) == {message(1).id}
    assert inbox.hot.quarantine.take_news() == 1


def test_every_copy_with_the_same_first_digits_is_found(inbox: Inbox[Message]) -> None:
    whole = "0a1b2c3d-9999-4222-8333-444455556666"
    for number in (1, 2):
        inbox.deliver(
            message(
                id=f"0a1b2c3d-{number:04d}-4222-8333-444455556666",
                created_at=NOON + timedelta(seconds=number),
                metadata={"broadcast_id": whole},
            )
        )
    inbox.deliver(message(3))
    found = inbox.find_all(lambda item: item.metadata.get("broadcast_id") == whole, like=whole)
    assert len(found) == 2


def test_an_empty_mailbox_holds_nothing(inbox: Inbox[Message]) -> None:
    assert (inbox.unread(), list(inbox.history()), inbox.find("x")) == ([], [], None)


FIRST, SECOND = "sender_id: admin\n---\n\nfirst\n", "sender_id: admin\n---\n\nsecond\n"


def put_in_place(inbox: Inbox[Message], text: str) -> None:
    """As a program that replaces a file."""
    put(inbox.path / "scratch", f"---\n{text}", at=NOON).replace(inbox.path / "n.md")


def seen(inbox: Inbox[Message]) -> dict[str, Message]:
    return {name: entity for name, _ in inbox.unread(fresh=True) if (entity := inbox.hot.load(name)) is not None}


MARKING = pytest.mark.parametrize("marking", ["mark_read", "end", "accept_mark"])


def mark(inbox: Inbox[Message], marking: str, read: dict[str, Message]) -> None:
    if marking == "mark_read":
        inbox.mark_read(read, NOON, read)
    elif marking == "end":
        inbox.end(read, NOON)
    else:
        assert inbox.accept_mark("n.md", Mark(NOON))


def test_a_message_put_in_the_place_of_one_that_was_read_stays_unread(inbox: Inbox[Message]) -> None:
    put_in_place(inbox, FIRST)
    read = seen(inbox)
    put_in_place(inbox, SECOND)
    inbox.mark_read(read, NOON, read)
    inbox.read([*read], NOON, read)
    assert [entity.content for entity in seen(inbox).values()] == ["second\n"]


@MARKING
def test_a_message_put_in_place_while_the_one_before_is_marked_is_not_overwritten(
    inbox: Inbox[Message], monkeypatch: pytest.MonkeyPatch, marking: str
) -> None:
    put_in_place(inbox, FIRST)
    read, encode = seen(inbox), inbox.hot.codec.encode

    def encode_late(entity: Message) -> bytes:
        put_in_place(inbox, SECOND)
        return encode(entity)

    with monkeypatch.context() as patched:
        patched.setattr(inbox.hot.codec, "encode", encode_late)
        mark(inbox, marking, read)
    assert [entity.content for entity in seen(inbox).values()] == ["second\n"]


def test_a_message_put_in_place_while_the_one_before_is_archived_comes_back(
    inbox: Inbox[Message], monkeypatch: pytest.MonkeyPatch
) -> None:
    put_in_place(inbox, FIRST)
    inbox.mark_read(["n.md"], NOON)
    move = inbox.files.move

    def move_late(source: Path, target: Path, *, sync: bool = True) -> None:
        put_in_place(inbox, SECOND)
        move(source, target, sync=sync)

    with monkeypatch.context() as patched:
        patched.setattr(inbox.files, "move", move_late)
        inbox.confirm([inbox.reference("n.md", NOON)])
    assert [entity.content for entity in seen(inbox).values()] == ["second\n"]
    assert archived(inbox) == []


def test_a_header_with_a_value_that_is_not_equal_to_itself_is_marked(inbox: Inbox[Message]) -> None:
    put_in_place(inbox, "metadata: {size: .nan}\nmore: .nan\n---\n\nfirst\n")
    read = seen(inbox)
    inbox.mark_read(read, NOON, read)
    (entity,) = (inbox.hot.load(name) for name in read)
    assert entity is not None
    assert entity.read_at == NOON


@MARKING
def test_a_message_that_is_touched_while_it_is_marked_is_marked(
    inbox: Inbox[Message], monkeypatch: pytest.MonkeyPatch, marking: str
) -> None:
    put_in_place(inbox, f"created_at: '{format_time(NOON)}'\n{FIRST}")
    read, encode = seen(inbox), inbox.hot.codec.encode

    def encode_late(entity: Message) -> bytes:
        (inbox.path / "n.md").touch()
        return encode(entity)

    with monkeypatch.context() as patched:
        patched.setattr(inbox.hot.codec, "encode", encode_late)
        mark(inbox, marking, read)
    assert [entity.read_at for entity in inbox.history()] == [NOON]


def test_a_message_whose_inode_changes_when_it_is_moved_stays_in_the_archive(
    inbox: Inbox[Message], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on file systems that make the number from the path."""
    put_in_place(inbox, FIRST)
    inbox.mark_read(["n.md"], NOON)
    monkeypatch.setattr(inbox_module, "inode", lambda _: 1)
    inbox.confirm([inbox.reference("n.md", NOON)])
    assert seen(inbox) == {}
    assert len(archived(inbox)) == 1
