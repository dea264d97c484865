"""One directory of entity files: what is ours, what is set aside, and when the index may be trusted."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from random import Random

import pytest

from multi_agent_mcp.domain.message import Message
from multi_agent_mcp.errors import StorageError
from multi_agent_mcp.store.directory import ADDED_MAX, Directory
from multi_agent_mcp.store.durable_files import Files, Looks
from multi_agent_mcp.system import file_status
from tests.store.support import NOON, mail_directory, message, put

GOOD = "---\nid: a\n---\n\nbody"


@pytest.fixture
def directory(files: Files) -> Directory[Message]:
    return mail_directory(files)


def names(directory: Directory[Message]) -> set[str]:
    return {name for name, _ in directory.entities(fresh=True)}


def names_now(directory: Directory[Message]) -> set[str]:
    return {name for name, _ in directory.entities()}


def age(directory: Directory[Message]) -> None:
    """Lets the directory's last change lie in the past, as the index needs it to be trusted."""
    os.utime(directory.path, (NOON.timestamp() - 86_400 * 500,) * 2)


def test_a_directory_that_is_not_there_yet_is_empty(directory: Directory[Message]) -> None:
    assert directory.entries() == {}
    assert directory.load("x.md") is None


def test_a_created_entity_is_found(directory: Directory[Message]) -> None:
    directory.create("a.md", message(1))
    assert dict(directory.entities()) == {"a.md": message(1)}
    assert directory.load("a.md") == message(1)


def test_creating_is_exclusive(directory: Directory[Message]) -> None:
    directory.create("a.md", message(1))
    with pytest.raises(FileExistsError):
        directory.create("a.md", message(2))
    assert directory.load("a.md") == message(1)


def test_a_note_copied_in_by_hand_is_an_entity(directory: Directory[Message]) -> None:
    put(directory.path / "note.md", "---\nsubject: hello\n---\n\nlook at this\n")
    (note,) = [entity for _, entity in directory.entities()]
    assert (note.id, note.receiver_id, note.created_at) == ("note", "worker-a", NOON)
    assert (note.subject, note.content, note.message_type) == ("hello", "look at this\n", "request")


@pytest.mark.parametrize("name", [".hidden.md", "x.md.tmp", "x.tmp", "x.txt", "x.markdown", "README"])
def test_dot_files_and_other_suffixes_are_not_ours(directory: Directory[Message], name: str) -> None:
    put(directory.path / name, "whatever")
    put(directory.path / "a.md", GOOD)
    assert names(directory) == {"a.md"}
    assert (directory.path / name).exists()


def test_a_directory_or_a_pipe_or_a_link_named_like_mail_is_left_alone(directory: Directory[Message]) -> None:
    put(directory.path / "a.md", GOOD)
    (directory.path / "d.md").mkdir()
    (directory.path / "l.md").symlink_to(directory.path / "gone")
    os.mkfifo(directory.path / "p.md")
    assert names(directory) == {"a.md"}
    assert directory.load("d.md") is None
    assert directory.quarantine.take_news() == 0


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
    directory: Directory[Message], content: bytes, reason: str
) -> None:
    put(directory.path / "bad.md", content)
    put(directory.path / "good.md", GOOD)
    assert names(directory) == {"good.md"}
    assert (directory.path / "quarantine" / "bad.md").read_bytes() == content
    assert (directory.path / "quarantine" / "bad.md.reason.txt").read_text().startswith(reason)
    assert not (directory.path / "bad.md").exists()
    assert directory.quarantine.take_news() == 1
    assert directory.quarantine.take_news() == 0


def test_two_unreadable_files_of_one_name_are_both_kept(directory: Directory[Message]) -> None:
    for content in ("first", "second"):
        put(directory.path / "bad.md", content)
        assert names(directory) == set()
    kept = {path.read_text() for path in (directory.path / "quarantine").glob("*.md")}
    assert kept == {"first", "second"}
    assert len(list((directory.path / "quarantine").glob("*.reason.txt"))) == 2
    assert directory.quarantine.take_news() == 2


def test_what_another_process_set_aside_is_counted_too(files: Files, directory: Directory[Message]) -> None:
    put(directory.path / "bad.md", "no front matter")
    assert names(mail_directory(files)) == set()
    assert directory.quarantine.take_news() == 1
    assert directory.quarantine.take_news() == 0
    assert mail_directory(files).quarantine.take_news() == 0


def test_what_was_mended_and_breaks_again_is_counted_again(directory: Directory[Message]) -> None:
    for expected in (1, 1):
        put(directory.path / "bad.md", "no front matter")
        assert names(directory) == set()
        assert directory.quarantine.take_news() == expected
        for path in (directory.path / "quarantine").iterdir():
            path.unlink()
        assert directory.quarantine.take_news() == 0


def test_many_readers_of_the_same_bad_files_all_get_the_good_ones(files: Files) -> None:
    base = mail_directory(files).path
    for number in range(30):
        put(base / f"bad-{number}.md", "no front matter")
    put(base / "good.md", GOOD)
    with ThreadPoolExecutor(6) as pool:
        seen = list(pool.map(lambda _: names(mail_directory(files)), range(6)))
    assert seen == [{"good.md"}] * 6
    assert len(list((base / "quarantine").glob("*.md"))) == 30


def test_an_empty_file_that_was_just_made_is_waited_for(directory: Directory[Message]) -> None:
    put(directory.path / "new.md", b"", at=datetime.now(UTC))
    assert names(directory) == set()
    assert (directory.path / "new.md").exists()
    put(directory.path / "new.md", GOOD, at=datetime.now(UTC))
    assert names(directory) == {"new.md"}


def test_a_file_that_was_empty_at_a_look_is_seen_once_it_is_filled(directory: Directory[Message]) -> None:
    path = put(directory.path / "new.md", b"", at=datetime.now(UTC))
    age(directory)
    assert names_now(directory) == set()
    path.write_text(GOOD)  # in place, as cp(1) does: the directory stays as it was
    age(directory)
    assert names_now(directory) == {"new.md"}


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
    directory = mail_directory(Files(unprivileged))
    put(directory.path / "good.md", GOOD)
    put(directory.path / "bad.md", GOOD).chmod(0)
    assert names(directory) == {"good.md"}
    assert (directory.path / "quarantine" / "bad.md").exists()
    assert directory.quarantine.take_news() == 1


def test_a_directory_that_may_not_be_listed_is_a_storage_error(files: Files, directory: Directory[Message]) -> None:
    put(directory.path, "a file where the mailbox should be")
    with pytest.raises(StorageError):
        directory.entries()


def test_an_old_scan_is_trusted_until_the_directory_changes(directory: Directory[Message]) -> None:
    path = put(directory.path / "a.md", GOOD)
    age(directory)
    directory.entries()
    path.write_text("---\nid: changed\n---\n\nin place")
    assert [entity.id for _, entity in directory.entities()] == ["a"]
    assert [entity.id for _, entity in directory.entities(fresh=True)] == ["changed"]


def test_a_scan_right_after_a_change_is_not_trusted(
    directory: Directory[Message], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_status, "RACY_NS", 10**18)
    put(directory.path / "a.md", GOOD)
    directory.entries()
    seen = directory.path.stat()
    put(directory.path / "b.md", GOOD)
    os.utime(directory.path, ns=(seen.st_atime_ns, seen.st_mtime_ns))  # both within one tick of the kernel's clock
    assert {name for name, _ in directory.entities()} == {"a.md", "b.md"}


def test_what_others_change_within_the_same_tick_as_a_change_of_our_own_is_seen(
    directory: Directory[Message], files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_status, "RACY_NS", 10**18)
    for number in (1, 2, 3, 5):
        directory.create(f"{number}.md", message(number))
    directory.entries()
    directory.replace("1.md", message(1, subject="ours"))
    directory.entries()
    seen = directory.path.stat()
    other = mail_directory(files)
    other.replace("2.md", message(2, subject="first"))
    other.replace("2.md", message(2, subject="theirs"))  # it may well have the inode again that it had at first
    other.create("4.md", message(4))
    put(directory.path / "5.md", GOOD)  # in place: the name and the inode stay the same
    other.remove("3.md")
    os.utime(directory.path, ns=(seen.st_atime_ns, seen.st_mtime_ns))
    subjects = {name: entity.subject for name, entity in directory.entities()}
    assert subjects == {"1.md": "ours", "2.md": "theirs", "4.md": message(4).subject, "5.md": ""}


def test_within_one_look_a_directory_is_looked_at_once_and_after_it_again(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_status, "RACY_NS", 10**18)
    looks = Looks()
    directory: Directory[Message] = Directory(files, files.base / "ipc", Message, looks=looks)
    directory.create("a.md", message(1))
    with looks.once():
        assert names_now(directory) == {"a.md"}
        directory.create("b.md", message(2))
        assert names_now(directory) == {"a.md"}
        with looks.once():
            assert names_now(directory) == {"a.md"}
        with ThreadPoolExecutor(1) as other:
            assert other.submit(names_now, directory).result() == {"a.md", "b.md"}
        looks.again()
        assert names_now(directory) == {"a.md", "b.md"}
    directory.create("c.md", message(3))
    assert names_now(directory) == {"a.md", "b.md", "c.md"}


def test_a_look_that_failed_within_one_look_is_none(files: Files) -> None:
    looks = Looks()
    directory: Directory[Message] = Directory(files, files.base / "ipc", Message, looks=looks)
    put(directory.path, "a file where the directory should be")
    with looks.once():
        with pytest.raises(StorageError):
            directory.entries()
        directory.path.unlink()
        directory.create("a.md", message(1))
        assert names_now(directory) == {"a.md"}


def test_a_directory_dated_in_the_future_is_never_trusted(directory: Directory[Message]) -> None:
    put(directory.path / "a.md", GOOD)
    future = time.time() + 86_400
    os.utime(directory.path, (future, future))
    directory.entries()
    put(directory.path / "b.md", GOOD)
    os.utime(directory.path, (future, future))
    assert {name for name, _ in directory.entities()} == {"a.md", "b.md"}


def test_an_entry_whose_file_has_gone_is_forgotten(directory: Directory[Message]) -> None:
    directory.create("a.md", message(1))
    assert len(directory.entries()) == 1
    (directory.path / "a.md").unlink()
    assert directory.entries() == {}


def test_replacing_keeps_what_a_foreign_program_added(directory: Directory[Message]) -> None:
    put(directory.path / "a.md", "---\nid: a\nx-trace: 7\n---\n\n body \r\n")
    note = directory.load("a.md")
    assert note is not None
    directory.replace("a.md", note.mark_read(NOON + timedelta(seconds=1)))
    rewritten = (directory.path / "a.md").read_bytes()
    assert b"\nx-trace: 7\n---\n\n body \r\n" in rewritten


def test_what_comes_and_goes_and_changes_takes_its_place_in_the_order(files: Files) -> None:
    random, clock = Random(1), count()  # noqa: S311 - no secret
    directory = Directory(files, files.base / "ipc" / "worker-a", Message, order=lambda item: item.subject)
    for written in (ADDED_MAX * 2, 1, 5, 1, ADDED_MAX + 1, 3):
        for number in random.sample(range(400), written):
            content = f"---\nid: i{number}\nsubject: s{random.randrange(9)}\n---\n"
            put(directory.path / f"{number}.md", content, at=NOON + timedelta(seconds=next(clock)))
        for path in random.sample(sorted(directory.path.glob("*.md")), 7):
            path.unlink()
        seen = directory.entities(fresh=True)
        assert [name for name, _ in seen] == sorted(dict(seen), key=lambda name: (dict(seen)[name].subject, name))
        assert {name: (directory.path / name).read_text() for name in dict(seen)} == {
            name: f"---\nid: {item.id}\nsubject: {item.subject}\n---\n" for name, item in seen
        }
        assert set(dict(seen)) == {path.name for path in directory.path.glob("*.md")}
