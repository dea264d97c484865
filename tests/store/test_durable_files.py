"""The ways to write a file: whole or not at all, exclusive, private, and never losing what was there."""

from __future__ import annotations

import stat
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from multi_agent_mcp.errors import StorageError
from multi_agent_mcp.store.durable_files import Files
from multi_agent_mcp.system.files import MANY, make_directory
from tests.store.support import put, umask


def leftovers(files: Files) -> list[Path]:
    return list(files.scratch.iterdir()) if files.scratch.is_dir() else []


def modes(base: Path) -> Iterator[tuple[Path, int]]:
    for path in (base, *base.rglob("*")):
        yield path, stat.S_IMODE(path.stat().st_mode)


def test_create_makes_the_file_and_the_directories_above_it(files: Files) -> None:
    path = files.base / "ipc" / "worker-a" / "x.md"
    files.create(path, b"hello")
    assert path.read_bytes() == b"hello"
    assert leftovers(files) == []


def test_create_never_overwrites(files: Files) -> None:
    path = files.base / "x.md"
    files.create(path, b"first")
    with pytest.raises(FileExistsError):
        files.create(path, b"second")
    assert path.read_bytes() == b"first"
    assert leftovers(files) == []


def test_of_many_creators_of_one_name_exactly_one_wins(files: Files) -> None:
    path = files.base / "x.md"

    def create(number: int) -> bool:
        try:
            files.create(path, str(number).encode())
        except FileExistsError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(create, range(32)))
    assert won.count(True) == 1
    assert path.read_bytes() == str(won.index(True)).encode()


def test_replace_puts_a_new_file_in_the_place_of_the_old(files: Files) -> None:
    path = files.base / "x.md"
    files.replace(path, b"old")
    with path.open("rb") as reader:
        files.replace(path, b"new")
        assert reader.read() == b"old"
    assert path.read_bytes() == b"new"
    assert leftovers(files) == []


def test_a_reader_sees_one_whole_content_or_the_other_while_a_file_is_replaced(files: Files) -> None:
    path, contents = files.base / "x.md", {b"a" * 50_000, b"b" * 50_000}
    files.replace(path, b"a" * 50_000)
    done = threading.Event()

    def rewrite() -> None:
        for _ in range(50):
            for content in contents:
                files.replace(path, content, durable=False)
        done.set()

    writer = threading.Thread(target=rewrite)
    writer.start()
    seen = {path.read_bytes()}
    while not done.is_set():
        seen.add(path.read_bytes())
    writer.join()
    assert seen <= contents


@pytest.mark.parametrize("write", ["create", "replace"])
def test_a_file_where_a_directory_should_be_is_a_storage_error_and_leaves_nothing(files: Files, write: str) -> None:
    put(files.base / "ipc", "in the way")
    with pytest.raises(StorageError) as refusal:
        getattr(files, write)(files.base / "ipc" / "worker-a" / "x.md", b"hello")
    assert refusal.value.code == "storage_error"
    assert refusal.value.values["path"] == "x.md"
    assert leftovers(files) == []


def test_a_directory_where_the_file_should_be_is_a_storage_error(files: Files) -> None:
    make_directory(files.base / "x.md")
    with pytest.raises(StorageError):
        files.replace(files.base / "x.md", b"hello")
    assert leftovers(files) == []


def test_relocating_moves_files_for_good(files: Files) -> None:
    sources = [put(files.base / name, name) for name in ("a.md", "b.md")]
    targets = [files.base / "archive" / "2026-11" / path.name for path in sources]
    assert files.relocate(list(zip(sources, targets, strict=True))) == targets
    assert [path.read_text() for path in targets] == ["a.md", "b.md"]
    assert not any(path.exists() for path in sources)


def test_relocating_onto_a_taken_name_loses_neither_file(files: Files) -> None:
    taken, source = put(files.base / "archive" / "a.md", "old"), put(files.base / "a.md", "new")
    (placed,) = files.relocate([(source, taken)])
    assert (taken.read_text(), placed.read_text()) == ("old", "new")
    assert placed.name == "a.1.md"
    (again,) = files.relocate([(put(files.base / "a.md", "newer"), taken)])
    assert (again.name, again.read_text()) == ("a.2.md", "newer")


def test_relocating_again_after_a_crash_in_between_ends_with_one_file(files: Files) -> None:
    source, target = put(files.base / "a.md", "text"), files.base / "archive" / "a.md"
    make_directory(target.parent)
    target.hardlink_to(source)
    assert files.relocate([(source, target)]) == [target]
    assert [path.name for path in target.parent.iterdir()] == ["a.md"]
    assert not source.exists()


def test_relocating_what_is_not_there_is_a_storage_error(files: Files) -> None:
    with pytest.raises(StorageError):
        files.relocate([(files.base / "gone.md", files.base / "archive" / "gone.md")])
    assert files.relocate([]) == []


def test_moving_renames_into_a_directory_that_is_made(files: Files) -> None:
    source, target = put(files.base / "a" / "x.md", "text"), files.base / "b" / "x.md"
    files.move(source, target)
    assert (source.exists(), target.read_text()) == (False, "text")


def test_appended_lines_do_not_interleave(files: Files) -> None:
    path = files.base / "audit" / "x.jsonl"
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: files.append(path, f"{number:04d}" * 50), range(200)))
    lines = filter(None, path.read_text().splitlines())  # empty ones may be among them: see `append`
    assert sorted(lines) == [f"{number:04d}" * 50 for number in range(200)]


def test_everything_is_private_to_the_user_even_under_a_careless_umask(files: Files) -> None:
    with umask(0):
        files.create(files.base / "ipc" / "worker-a" / "x.md", b"hello")
        files.replace(files.base / "dashboard" / "dashboard.md", b"hello")
        files.append(files.base / "audit" / "x.jsonl", "{}")
        files.relocate([(files.base / "ipc" / "worker-a" / "x.md", files.base / "ipc" / "archive" / "x.md")])
        with files.locks.held("agents"):
            found = list(modes(files.base))
    assert {path.name for path, mode in found if path.is_dir() and mode != 0o700} == set()
    assert {path.name for path, mode in found if path.is_file() and mode != 0o600} == set()


@pytest.mark.parametrize("count", [3, MANY + 1])
def test_several_files_are_made_as_one(files: Files, count: int) -> None:
    contents = {files.base / str(number) / "a.md": str(number).encode() for number in range(count)}
    files.create_all(contents)
    assert {path: path.read_bytes() for path in contents} == contents
    assert list(files.scratch.iterdir()) == []


def test_of_several_files_none_is_made_if_one_name_is_taken(files: Files) -> None:
    taken = files.base / "b" / "1.md"
    files.create(taken, b"first")
    with pytest.raises(FileExistsError):
        files.create_all({files.base / "a" / "1.md": b"x", taken: b"x", files.base / "c" / "1.md": b"x"})
    assert [path.read_bytes() for path in files.base.glob("?/*.md")] == [b"first"]
    assert list(files.scratch.iterdir()) == []


def test_several_files_of_which_one_cannot_be_written_leave_nothing(files: Files) -> None:
    files.create(files.base / "b", b"no directory")
    with pytest.raises(StorageError):
        files.create_all({files.base / "a" / "1.md": b"x", files.base / "b" / "1.md": b"x"})
    assert list(files.base.glob("a/*")) == []
    assert list(files.scratch.iterdir()) == []
