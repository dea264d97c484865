"""One directory of entity files: what is ours, what is set aside, and when the index may be trusted."""

from __future__ import annotations

import os
import re
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from multi_agent_mcp.domain.message import Message
from multi_agent_mcp.errors import StorageError
from multi_agent_mcp.store.directory import Directory, Looks
from multi_agent_mcp.store.files.durable_files import Files
from multi_agent_mcp.system import file_status
from tests.store.support import NOON, mail_folder, message, put

GOOD = "---\nid: a\n---\n\nbody"
READ = re.compile(rb"^read_at: '(?P<closed>2[^']*)", re.MULTILINE)


@pytest.fixture
def folder(files: Files) -> Directory[Message]:
    return mail_folder(files)


def names(folder: Directory[Message]) -> set[str]:
    return {name for name, _ in folder.open_entities(fresh=True)}


def names_now(folder: Directory[Message]) -> set[str]:
    return {name for name, _ in folder.open_entities()}


def age(folder: Directory[Message]) -> None:
    """Lets the directory's last change lie in the past, as the index needs it to be trusted."""
    os.utime(folder.path, (NOON.timestamp() - 86_400 * 500,) * 2)


def test_a_folder_that_is_not_there_yet_is_empty(folder: Directory[Message]) -> None:
    assert folder.entries() == {}
    assert folder.load("x.md") is None


def test_a_created_entity_is_found(folder: Directory[Message]) -> None:
    folder.create("a.md", message(1))
    assert dict(folder.open_entities()) == {"a.md": message(1)}
    assert folder.load("a.md") == message(1)


def test_creating_is_exclusive(folder: Directory[Message]) -> None:
    folder.create("a.md", message(1))
    with pytest.raises(FileExistsError):
        folder.create("a.md", message(2))
    assert folder.load("a.md") == message(1)


def test_a_note_copied_in_by_hand_is_an_entity(folder: Directory[Message]) -> None:
    put(folder.path / "note.md", "---\nsubject: hello\n---\n\nlook at this\n")
    (note,) = [entity for _, entity in folder.open_entities()]
    assert (note.id, note.receiver_id, note.created_at) == ("note", "worker-a", NOON)
    assert (note.subject, note.content, note.message_type) == ("hello", "look at this\n", "request")


@pytest.mark.parametrize("name", [".hidden.md", "x.md.tmp", "x.tmp", "x.txt", "x.markdown", "README"])
def test_dot_files_and_other_suffixes_are_not_ours(folder: Directory[Message], name: str) -> None:
    put(folder.path / name, "whatever")
    put(folder.path / "a.md", GOOD)
    assert names(folder) == {"a.md"}
    assert (folder.path / name).exists()


def test_a_directory_or_a_pipe_or_a_link_named_like_mail_is_left_alone(folder: Directory[Message]) -> None:
    put(folder.path / "a.md", GOOD)
    (folder.path / "d.md").mkdir()
    (folder.path / "l.md").symlink_to(folder.path / "gone")
    os.mkfifo(folder.path / "p.md")
    assert names(folder) == {"a.md"}
    assert folder.load("d.md") is None
    assert folder.quarantine.take_news() == 0


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"no front matter at all\n", "no front matter: the first line is not ---\n"),
        (b"---\nid: a\n---\n\n\xff\xfe", "not UTF-8: byte 15 does not belong there\n"),
        (b"---\nid: [a\n---\n\nx", "the front matter is not YAML"),
        (b"---\nid: a\nsubj", "the front matter is not closed by a line ---\n"),
        (b"", "no front matter"),
        (b"\x00" * 400, "no front matter"),
    ],
)
def test_what_cannot_be_read_goes_to_quarantine_with_a_reason_and_hides_nothing(
    folder: Directory[Message], content: bytes, reason: str
) -> None:
    put(folder.path / "bad.md", content)
    put(folder.path / "good.md", GOOD)
    assert names(folder) == {"good.md"}
    assert (folder.path / "quarantine" / "bad.md").read_bytes() == content
    assert (folder.path / "quarantine" / "bad.md.reason.txt").read_text().startswith(reason)
    assert not (folder.path / "bad.md").exists()
    assert folder.quarantine.take_news() == 1
    assert folder.quarantine.take_news() == 0


def test_two_unreadable_files_of_one_name_are_both_kept(folder: Directory[Message]) -> None:
    for content in ("first", "second"):
        put(folder.path / "bad.md", content)
        assert names(folder) == set()
    kept = {path.read_text() for path in (folder.path / "quarantine").glob("*.md")}
    assert kept == {"first", "second"}
    assert len(list((folder.path / "quarantine").glob("*.reason.txt"))) == 2
    assert folder.quarantine.take_news() == 2


def test_what_another_process_set_aside_is_counted_too(files: Files, folder: Directory[Message]) -> None:
    put(folder.path / "bad.md", "no front matter")
    assert names(mail_folder(files)) == set()
    assert folder.quarantine.take_news() == 1
    assert folder.quarantine.take_news() == 0
    assert mail_folder(files).quarantine.take_news() == 0


def test_what_was_mended_and_breaks_again_is_counted_again(folder: Directory[Message]) -> None:
    for expected in (1, 1):
        put(folder.path / "bad.md", "no front matter")
        assert names(folder) == set()
        assert folder.quarantine.take_news() == expected
        for path in (folder.path / "quarantine").iterdir():
            path.unlink()
        assert folder.quarantine.take_news() == 0


def test_many_readers_of_the_same_bad_files_all_get_the_good_ones(files: Files) -> None:
    base = mail_folder(files).path
    for number in range(30):
        put(base / f"bad-{number}.md", "no front matter")
    put(base / "good.md", GOOD)
    with ThreadPoolExecutor(6) as pool:
        seen = list(pool.map(lambda _: names(mail_folder(files)), range(6)))
    assert seen == [{"good.md"}] * 6
    assert len(list((base / "quarantine").glob("*.md"))) == 30


def test_an_empty_file_that_was_just_made_is_waited_for(folder: Directory[Message]) -> None:
    put(folder.path / "new.md", b"", at=datetime.now(UTC))
    assert names(folder) == set()
    assert (folder.path / "new.md").exists()
    put(folder.path / "new.md", GOOD, at=datetime.now(UTC))
    assert names(folder) == {"new.md"}


@pytest.fixture
def unprivileged() -> Iterator[Path]:
    """A directory of a user who cannot read everything, whoever runs the tests."""
    with tempfile.TemporaryDirectory() as name:
        if os.geteuid() != 0:
            yield Path(name)
            return
        os.chown(name, 65534, 65534)
        os.seteuid(65534)
        try:
            yield Path(name)
        finally:
            os.seteuid(0)


def test_a_file_nobody_may_read_hides_nothing(unprivileged: Path) -> None:
    folder = mail_folder(Files(unprivileged))
    put(folder.path / "good.md", GOOD)
    put(folder.path / "bad.md", GOOD).chmod(0)
    assert names(folder) == {"good.md"}
    assert (folder.path / "quarantine" / "bad.md").exists()
    assert folder.quarantine.take_news() == 1


def test_a_folder_that_may_not_be_listed_is_a_storage_error(files: Files, folder: Directory[Message]) -> None:
    put(folder.path, "a file where the mailbox should be")
    with pytest.raises(StorageError):
        folder.entries()


def test_an_old_scan_is_trusted_until_the_directory_changes(folder: Directory[Message]) -> None:
    path = put(folder.path / "a.md", GOOD)
    age(folder)
    folder.entries()
    path.write_text("---\nid: changed\n---\n\nin place")
    assert [entity.id for _, entity in folder.open_entities()] == ["a"]
    assert [entity.id for _, entity in folder.open_entities(fresh=True)] == ["changed"]


def test_a_scan_right_after_a_change_is_not_trusted(
    folder: Directory[Message], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_status, "RACY_NS", 10**18)
    put(folder.path / "a.md", GOOD)
    folder.entries()
    seen = folder.path.stat()
    put(folder.path / "b.md", GOOD)
    os.utime(folder.path, ns=(seen.st_atime_ns, seen.st_mtime_ns))  # both within one tick of the kernel's clock
    assert {name for name, _ in folder.open_entities()} == {"a.md", "b.md"}


def test_what_others_change_within_the_same_tick_as_a_change_of_our_own_is_seen(
    folder: Directory[Message], files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_status, "RACY_NS", 10**18)
    for number in (1, 2, 3, 5):
        folder.create(f"{number}.md", message(number))
    folder.entries()
    folder.replace("1.md", message(1, subject="ours"))
    folder.entries()
    seen = folder.path.stat()
    other = mail_folder(files)
    other.replace("2.md", message(2, subject="first"))
    other.replace("2.md", message(2, subject="theirs"))  # it may well have the inode again that it had at first
    other.create("4.md", message(4))
    put(folder.path / "5.md", GOOD)  # in place: the name and the inode stay the same
    other.remove("3.md")
    os.utime(folder.path, ns=(seen.st_atime_ns, seen.st_mtime_ns))
    subjects = {name: entity.subject for name, entity in folder.open_entities()}
    assert subjects == {"1.md": "ours", "2.md": "theirs", "4.md": message(4).subject, "5.md": ""}


def test_within_one_look_a_directory_is_looked_at_once_and_after_it_again(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_status, "RACY_NS", 10**18)
    looks = Looks()
    folder: Directory[Message] = Directory(files, files.base / "ipc", Message, looks=looks)
    folder.create("a.md", message(1))
    with looks.once():
        assert names_now(folder) == {"a.md"}
        folder.create("b.md", message(2))
        assert names_now(folder) == {"a.md"}
        with looks.once():
            assert names_now(folder) == {"a.md"}
        with ThreadPoolExecutor(1) as other:
            assert other.submit(names_now, folder).result() == {"a.md", "b.md"}
    folder.create("c.md", message(3))
    assert names_now(folder) == {"a.md", "b.md", "c.md"}


def test_a_look_that_failed_within_one_look_is_none(files: Files) -> None:
    looks = Looks()
    folder: Directory[Message] = Directory(files, files.base / "ipc", Message, looks=looks)
    put(folder.path, "a file where the directory should be")
    with looks.once():
        with pytest.raises(StorageError):
            folder.entries()
        folder.path.unlink()
        folder.create("a.md", message(1))
        assert names_now(folder) == {"a.md"}


def test_a_directory_dated_in_the_future_is_never_trusted(folder: Directory[Message]) -> None:
    put(folder.path / "a.md", GOOD)
    future = time.time() + 86_400
    os.utime(folder.path, (future, future))
    folder.entries()
    put(folder.path / "b.md", GOOD)
    os.utime(folder.path, (future, future))
    assert {name for name, _ in folder.open_entities()} == {"a.md", "b.md"}


def test_an_entry_whose_file_has_gone_is_forgotten(folder: Directory[Message]) -> None:
    folder.create("a.md", message(1))
    assert len(folder.entries()) == 1
    (folder.path / "a.md").unlink()
    assert folder.entries() == {}


def test_only_what_the_header_closes_is_counted_out(files: Files) -> None:
    folder: Directory[Message] = Directory(files, files.base / "ipc", Message, closed=READ)
    folder.create("read.md", message(1).mark_read(NOON))
    folder.create("unread.md", message(2, content="read_at: '2026-11-21T12:00:00.000000Z'\n"))
    folder.create("long.md", message(3, subject="x" * 5000).mark_read(NOON))
    assert [name for name, _ in sorted(folder.open_entities())] == ["unread.md"]
    assert folder.entries()["read.md"].closed


def test_replacing_keeps_what_a_foreign_program_added(folder: Directory[Message]) -> None:
    put(folder.path / "a.md", "---\nid: a\nx-trace: 7\n---\n\n body \r\n")
    note = folder.load("a.md")
    assert note is not None
    folder.replace("a.md", note.mark_read(NOON + timedelta(seconds=1)))
    rewritten = (folder.path / "a.md").read_bytes()
    assert b"\nx-trace: 7\n---\n\n body \r\n" in rewritten
