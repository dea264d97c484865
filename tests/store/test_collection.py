"""A collection: one idea of concurrency, and partitions that follow the content. The same holds for a plain one and for
a shared one, whether this machine's locks decide or a hub."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from multi_agent_mcp.domain.history import Change
from multi_agent_mcp.domain.task import Task
from multi_agent_mcp.domain.times import from_timestamp, now
from multi_agent_mcp.errors import InvalidStatusTransition, StorageError, TaskNotFound
from multi_agent_mcp.hub.share_directory import relay_client_of
from multi_agent_mcp.store import collection as collection_module
from multi_agent_mcp.store.authority import ALONE, Shared, marked, with_mark, without_mark
from multi_agent_mcp.store.codec import codec
from multi_agent_mcp.store.collection import Collection
from multi_agent_mcp.store.directory import Directory
from multi_agent_mcp.store.durable_files import Files
from multi_agent_mcp.store.partition import Layout
from multi_agent_mcp.store.shared_collection import SharedCollection
from multi_agent_mcp.system import file_status
from multi_agent_mcp.system.file_status import Signature
from tests.hub.support import DESK, machines
from tests.store.support import NOON, in_processes, put, written

TASK = Task(id="tsk_0123456789ab", title="Build", status="in_progress", assignee_id="worker-a")


LAYOUT = Layout(
    entity_type=Task,
    partition=lambda task: task.assignee_id or "_unassigned",
    missing=lambda task_id: TaskNotFound(task_id=task_id),
)


class Way(NamedTuple):
    """The kind of a collection: plain without `kind`; otherwise shared, by this machine's locks or, with `session`, by
    the hub."""

    kind: str | None = None
    session: Path | None = None


_numbers = itertools.count()


def collection(files: Files, way: Way) -> Collection[Task]:
    if way.kind is None:
        return Collection(files, files.base / "tasks", LAYOUT)
    authority = ALONE if way.session is None else relay_client_of(way.session)
    assert authority is not None
    return SharedCollection(files, files.base / "tasks", LAYOUT, authority, way.kind)


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with machines(tmp_path_factory.mktemp("hub")) as made:
        yield made[DESK].path


@pytest.fixture(params=["plain", "alone", "hub"])
def way(request: pytest.FixtureRequest) -> Way:
    if request.param == "plain":
        return Way()
    session = request.getfixturevalue("session") if request.param == "hub" else None
    return Way(f"tsk.contract{next(_numbers)}", session)


@pytest.fixture
def tasks(files: Files, way: Way) -> Collection[Task]:
    return collection(files, way)


def plain(task: Task | None) -> Task | None:
    """The task without the mark of the hub."""
    return task and replace(task, extra=without_mark(task))


def finish(by: str) -> Callable[[Task], Task]:
    return lambda task: task.move_to("done", Change(by=by, at=NOON))


def assign(to: str | None) -> Callable[[Task], Task]:
    return lambda task: replace(task, assignee_id=to)


def paths(tasks: Collection[Task]) -> list[str]:
    return sorted(str(path.relative_to(tasks.base)) for path in tasks.base.rglob("*.md"))


def test_an_added_entity_is_in_its_partition(tasks: Collection[Task]) -> None:
    tasks.add(TASK)
    assert paths(tasks) == [f"worker-a/{TASK.id}.md"]
    assert plain(tasks.get(TASK.id)) == plain(tasks.find(TASK.id)) == TASK
    assert [*map(plain, tasks.all())] == [*map(plain, tasks.all("worker-a"))] == [TASK]
    assert tasks.all("worker-b") == []


def test_adding_is_exclusive(tasks: Collection[Task]) -> None:
    tasks.add(TASK)
    with pytest.raises(FileExistsError):
        tasks.add(replace(TASK, title="Other"))


def test_what_is_not_there_is_the_collections_own_error(tasks: Collection[Task]) -> None:
    assert tasks.find(TASK.id) is None
    with pytest.raises(TaskNotFound):
        tasks.get(TASK.id)
    with pytest.raises(TaskNotFound):
        tasks.update(TASK.id, assign(None))


def test_a_change_that_is_refused_changes_nothing(tasks: Collection[Task]) -> None:
    tasks.add(replace(TASK, status="done"))
    before = written(tasks.base / "worker-a" / f"{TASK.id}.md")
    with pytest.raises(InvalidStatusTransition):
        tasks.update(TASK.id, finish("worker-a"))
    assert written(tasks.base / "worker-a" / f"{TASK.id}.md") == before


def test_a_change_to_the_same_value_writes_nothing(tasks: Collection[Task]) -> None:
    tasks.add(TASK)
    before = written(tasks.base / "worker-a" / f"{TASK.id}.md")
    assert plain(tasks.update(TASK.id, lambda task: task)) == TASK
    assert written(tasks.base / "worker-a" / f"{TASK.id}.md") == before


def test_of_many_threads_that_finish_one_task_exactly_one_wins(tasks: Collection[Task]) -> None:
    tasks.add(TASK)

    def attempt(number: int) -> bool:
        try:
            tasks.update(TASK.id, finish(f"agent-{number}"))
        except InvalidStatusTransition:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(attempt, range(24)))
    assert won.count(True) == 1
    assert tasks.get(TASK.id).status_changed_by == f"agent-{won.index(True)}"


def _finish_all(base: Path, way: Way, name: str, ids: list[str]) -> None:
    tasks, won = collection(Files(base), way), []
    for task_id in ids:
        try:
            tasks.update(task_id, finish(name))
        except InvalidStatusTransition:
            continue
        won.append(task_id)
    (base / f"won-{name}").write_text("\n".join(won))


def test_of_several_processes_that_finish_the_same_tasks_exactly_one_wins_each(
    files: Files, way: Way, tasks: Collection[Task]
) -> None:
    ids = [f"tsk_{number:012x}" for number in range(25)]
    for task_id in ids:
        tasks.add(replace(TASK, id=task_id))
    in_processes(_finish_all, *[(files.base, way, name, ids) for name in ("a", "b", "c")])
    won = [line for name in ("a", "b", "c") for line in (files.base / f"won-{name}").read_text().split()]
    assert sorted(won) == ids


def test_no_change_of_several_threads_is_lost(tasks: Collection[Task]) -> None:
    tasks.add(TASK)
    change = Change(by="worker-a", at=NOON)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: tasks.update(TASK.id, lambda task: task.recorded(change, n=number)), range(40)))
    assert sorted(entry["n"] for entry in tasks.get(TASK.id).history) == list(range(40))


def test_a_changed_partition_moves_the_file(tasks: Collection[Task]) -> None:
    tasks.add(TASK)
    assert tasks.update(TASK.id, assign("worker-b")).assignee_id == "worker-b"
    assert paths(tasks) == [f"worker-b/{TASK.id}.md"]
    tasks.update(TASK.id, assign(None))
    assert paths(tasks) == [f"_unassigned/{TASK.id}.md"]
    assert tasks.all("worker-b") == []
    assert tasks.get(TASK.id).assignee_id is None


def test_a_file_left_in_the_wrong_partition_by_a_crash_follows_its_content(
    files: Files, tasks: Collection[Task]
) -> None:
    tasks.add(TASK)
    files.move(tasks.base / "worker-a" / f"{TASK.id}.md", tasks.base / "worker-b" / f"{TASK.id}.md")
    assert plain(tasks.get(TASK.id)) == TASK
    tasks.update(TASK.id, lambda task: task)
    assert paths(tasks) == [f"worker-a/{TASK.id}.md"]


def test_a_task_that_is_handed_over_while_it_is_looked_for_is_found(
    files: Files, way: Way, monkeypatch: pytest.MonkeyPatch
) -> None:
    mover = collection(files, way)
    mover.add(TASK)
    mover.update(TASK.id, assign("worker-z"))
    (mover.base / "worker-a").rmdir()
    searching = collection(files, way)
    listed = searching.partitions()

    def handed_over_right_after() -> list[str]:
        monkeypatch.undo()
        mover.update(TASK.id, assign("worker-a"))
        return listed

    monkeypatch.setattr(searching, "partitions", handed_over_right_after)
    found = searching.find(TASK.id)
    assert found is not None
    assert found.assignee_id == "worker-a"


def test_a_corrupt_file_hides_no_other(tasks: Collection[Task]) -> None:
    tasks.add(TASK)
    put(tasks.base / "worker-a" / "tsk_ffffffffffff.md", "no front matter")
    put(tasks.base / ".hidden" / "x.md", "not ours")
    assert [*map(plain, tasks.all())] == [TASK]
    assert tasks.partitions() == ["worker-a"]
    assert (tasks.base / "worker-a" / "quarantine" / "tsk_ffffffffffff.md").exists()


def test_a_header_with_another_id_than_its_file_loses_nothing_when_it_is_moved(tasks: Collection[Task]) -> None:
    put(tasks.base / "worker-a" / f"{TASK.id}.md", "---\nid: tsk_aaaaaaaaaaaa\nassignee_id: worker-a\n---\n\nx")
    tasks.update(TASK.id, assign("worker-b"))
    assert paths(tasks) == [f"worker-b/{TASK.id}.md"]


def test_what_was_added_and_not_acknowledged_can_be_taken_back(tasks: Collection[Task]) -> None:
    tasks.add(TASK)
    tasks.remove(TASK)
    tasks.remove(TASK)
    assert tasks.all() == []


def test_updates_of_different_entities_do_not_wait_for_each_other(tasks: Collection[Task]) -> None:
    other = replace(TASK, id="tsk_0123456789ac")
    tasks.add(TASK)
    tasks.add(other)
    meanwhile = threading.Thread(target=tasks.update, args=(other.id, assign("worker-b")))

    def change(task: Task) -> Task:
        meanwhile.start()
        meanwhile.join()
        return task

    tasks.update(TASK.id, change)
    assert tasks.get(other.id).assignee_id == "worker-b"


NOTED = replace(LAYOUT, by_id=True)
"""As the tasks of a session."""


def noted(files: Files) -> Collection[Task]:
    """Returns the tasks as a process sees them that has seen none yet."""
    return Collection(files, files.base / "tasks", NOTED)


@pytest.mark.parametrize("status", ["in_progress", "done"])
def test_a_process_looks_for_a_task_in_one_agents_directory_only(
    files: Files, monkeypatch: pytest.MonkeyPatch, status: str
) -> None:
    everybody = [replace(TASK, id=f"tsk_{number:012}", assignee_id=f"worker-{number}") for number in range(9)]
    for task in everybody:
        noted(files).add(replace(task, status="in_progress"))
    noted(files).update(everybody[3].id, lambda task: replace(task, assignee_id="worker-7", status=status))
    looked_at = []

    def signature_of(path: str) -> Signature | None:
        looked_at.append(Path(path).relative_to(files.base / "tasks").parts[0])
        return file_status.signature_of(path)

    monkeypatch.setattr(collection_module, "signature_of", signature_of)
    found = noted(files).find(everybody[3].id)
    assert found is not None
    assert found.assignee_id == "worker-7"
    assert set(looked_at) == {"worker-7"}


def test_a_task_that_is_not_where_it_was_noted_is_found_and_noted_again(files: Files) -> None:
    noted(files).add(TASK)
    by_hand = files.base / "tasks" / "worker-b" / f"{TASK.id}.md"
    files.move(files.base / "tasks" / "worker-a" / by_hand.name, by_hand)
    assert noted(files).find(TASK.id) == TASK
    (notes,) = (files.base / ".index").glob("*.places")
    assert notes.read_text().splitlines() == [f"{TASK.id} worker-a", f"{TASK.id} worker-b"]
    notes.write_text(f"{TASK.id} ../../elsewhere\n{TASK.id}")
    assert noted(files).find(TASK.id) == TASK
    assert notes.read_text().splitlines()[-1] == f"{TASK.id} worker-b"
    notes.unlink()
    assert noted(files).find(TASK.id) == TASK
    assert noted(files).find("tsk_ffffffffffff") is None


@pytest.mark.parametrize("spoilt", ["a directory", "a pipe", "a link", "no text", "nobody's to read"])
def test_notes_that_cannot_be_used_hide_no_task(files: Files, spoilt: str) -> None:
    noted(files).add(TASK)
    (notes,) = (files.base / ".index").glob("*.places")
    if spoilt == "nobody's to read":
        notes.chmod(0)
    elif spoilt == "no text":
        notes.write_bytes(b"\xff\0" * 5000 + f"\n{TASK.id} \0\n".encode())
    else:
        notes.unlink()
        if spoilt == "a directory":
            notes.mkdir()
        elif spoilt == "a pipe":
            os.mkfifo(notes)
        else:
            notes.symlink_to("/etc/passwd")
    assert noted(files).find(TASK.id) == TASK
    moved = noted(files).update(TASK.id, lambda task: replace(task, assignee_id="worker-b"))
    assert noted(files).find(TASK.id) == moved
    assert noted(files).find("tsk_ffffffffffff") is None


def test_of_two_files_with_one_id_none_is_overwritten(files: Files) -> None:
    noted(files).add(TASK)
    other = replace(TASK, title="Another", assignee_id="worker-b")
    put(files.base / "tasks" / "worker-b" / f"{TASK.id}.md", codec(Task).encode(other))
    noted(files).update(TASK.id, lambda task: replace(task, assignee_id="worker-b"))
    assert paths(noted(files)) == [f"worker-b/quarantine/{TASK.id}.md", f"worker-b/{TASK.id}.md"]
    kept = codec(Task).decode((files.base / "tasks/worker-b/quarantine" / f"{TASK.id}.md").read_bytes())
    assert kept.title == "Another"
    assert noted(files).get(TASK.id).title == TASK.title


def test_a_link_in_anothers_directory_is_not_the_task(files: Files) -> None:
    noted(files).add(replace(TASK, assignee_id="worker-c"))
    link = files.base / "tasks" / "worker-a" / f"{TASK.id}.md"
    link.parent.mkdir()
    link.symlink_to(files.base / "tasks" / "worker-c" / link.name)
    for notes in (files.base / ".index").glob("*.places"):
        notes.unlink()
    assert noted(files).get(TASK.id).assignee_id == "worker-c"


@pytest.mark.parametrize(
    "value",
    [
        b"---\n{title: flow}\n---\n\n",
        b"---\n title: indented\n status: todo\n---\n\n",
        b"---\r\ntitle: dos\r\n---\r\n\r\nbody\n---\nmore",
        b"---\ntitle: ended\n--- \nbody\n---\nmore",
        b"---\ntitle: ended\n...\n---\n\n",
        b"---\n# a comment\ntitle: x\n---\n\n",
        b"no header",
    ],
)
def test_a_mark_is_added_only_to_headers_of_our_form(value: bytes) -> None:
    assert with_mark(Shared(7, value)) is None
    ours = codec(Task).encode(TASK)
    added = with_mark(Shared(7, ours))
    assert added is not None
    assert added == codec(Task).encode(marked(TASK, Shared(7, ours)))


# What a joining machine accepts together


FINISHED = replace(LAYOUT, by_id=True, over=lambda task: task.status if task.final else "")


def accepting(files: Files) -> SharedCollection[Task]:
    return SharedCollection(files, files.base / "tasks", FINISHED, ALONE, "tsk")


def value(task: Task, revision: int) -> Shared:
    return Shared(revision, codec(Task).encode(task))


def at(minute: int) -> int:
    """A minute after noon, in nanoseconds since the epoch."""
    return int(NOON.timestamp() + 60 * minute) * 10**9


def test_what_is_accepted_together_is_found_counted_and_noted_as_if_one_by_one(tmp_path: Path) -> None:
    together, alone = Files(tmp_path / "together"), Files(tmp_path / "alone")
    numbered = [replace(TASK, id=f"tsk_{number:012}", assignee_id=f"worker-{number % 3}") for number in range(12)]
    some = [replace(task, status="done" if number % 4 else "todo") for number, task in enumerate(numbered)]
    for files in (together, alone):
        files.base.mkdir()
        accepting(files).accept(numbered[5].id, value(numbered[5], 1), at(0))
        tasks = accepting(files)
        with tasks.accepting_together() if files is together else nullcontext():
            for number, task in enumerate(some, 2):
                tasks.accept(task.id, value(task, number), at(number))
            tasks.accept(some[7].id, value(replace(some[7], title="Later"), 99), at(99))
    as_written = [
        {path.relative_to(files.base): path.read_bytes() for path in files.base.rglob("*.md")}
        for files in (together, alone)
    ]
    assert as_written[0] == as_written[1]
    monthly = "archive/2026-11"
    assert sorted(map(str, as_written[0]))[:2] == [
        f"tasks/worker-0/{monthly}/tsk_000000000003.md",
        f"tasks/worker-0/{monthly}/tsk_000000000006.md",
    ]
    for name in ("worker-0", "worker-1", "worker-2"):
        found = [accepting(files).closed(name) for files in (together, alone)]
        assert [task.id for task in found[0]] == [task.id for task in found[1]]
        assert accepting(together).closed_counts(name) == {"done": 3}
    assert accepting(together).get(some[7].id).title == "Later"
    assert {path.name: path.read_bytes() for path in (together.base / ".index").glob("*.places")} == {
        path.name: path.read_bytes() for path in (alone.base / ".index").glob("*.places")
    }
    assert not [*together.scratch.iterdir()]


@pytest.mark.parametrize("status", ["in_progress", "done"])
def test_a_task_whose_writer_was_killed_before_it_moved_it_moves_when_its_value_comes_again(
    files: Files, status: str
) -> None:
    tasks = accepting(files)
    free = Task(id="tsk_000000000001", title="Free")
    held = replace(free, assignee_id="worker-c", status=status)
    tasks.accept(free.id, value(free, 1), at(0))
    tasks.accept(held.id, value(held, 2), at(0))
    (belongs,) = tasks.base.rglob(f"{held.id}.md")
    left = tasks.base / "_unassigned" / belongs.name
    assert accepting(files).has(held.id, 2)
    belongs.rename(left)
    assert not accepting(files).has(held.id, 2)
    accepting(files).accept(held.id, value(held, 2), at(0))
    assert belongs.exists()
    assert not left.exists()


def test_each_directory_is_looked_into_once_for_all_that_is_accepted_together(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(9):
        accepting(files).add(replace(TASK, id=f"tsk_{number:012}", assignee_id=f"worker-{number}"))
    looked_at: list[str] = []
    monkeypatch.setattr(collection_module, "signature_of", looked_at.append)
    tasks = accepting(files)
    with tasks.accepting_together():
        for number in range(100, 110):
            task = replace(TASK, id=f"tsk_{number:012}", status="done")
            tasks.accept(task.id, value(task, number), at(number))
    assert not looked_at


def test_a_directory_that_cannot_be_listed_keeps_nothing_else_away(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    accepting(files).add(replace(TASK, assignee_id="worker-b"))
    names = Directory.names

    def refused(self: Directory[Task]) -> list[str]:
        if self.path.name == "worker-b":
            raise StorageError(path=self.path.name, reason="Input/output error")
        return names(self)

    monkeypatch.setattr(Directory, "names", refused)
    tasks, other = accepting(files), replace(TASK, id="tsk_000000000001")
    with tasks.accepting_together():
        tasks.accept(other.id, value(other, 7), at(0))
    assert accepting(files).get(other.id).title == other.title


def test_a_file_that_somebody_makes_meanwhile_is_not_overwritten_and_is_found_by_the_next_attempt(files: Files) -> None:
    tasks, done = accepting(files), replace(TASK, status="done")
    others = [replace(done, id=f"tsk_{number:012}", assignee_id=f"worker-{'ab'[number]}") for number in range(2)]
    there = files.base / "tasks" / "worker-a" / "archive" / "2026-11" / f"{done.id}.md"

    def accept(meanwhile: Callable[[], object]) -> None:
        with tasks.accepting_together():
            for task in (others[0], done, others[1]):
                tasks.accept(task.id, value(task, 7), at(0))
            meanwhile()

    by_hand = codec(Task).encode(replace(done, title="By hand"))
    with pytest.raises(StorageError):
        accept(lambda: put(there, by_hand))
    assert there.read_bytes() == by_hand
    assert not [*files.scratch.iterdir()]
    accept(lambda: None)
    assert [accepting(files).get(task.id).title for task in (*others, done)] == ["Build"] * 3
    (kept,) = (there.parent / "quarantine").glob("*.md")
    assert b"title: By hand" in kept.read_bytes()
    assert accepting(files).closed_counts() == {"done": 3}


def test_an_index_of_which_only_some_lines_were_written_is_not_trusted(files: Files) -> None:
    tasks = accepting(files)
    done = [replace(TASK, id=f"tsk_{number:012}", status="done") for number in range(3)]
    with tasks.accepting_together():
        for task in done:
            tasks.accept(task.id, value(task, 7), at(0))
    (index,) = (files.base / ".index").rglob("2026-11.jsonl")
    lines = index.read_bytes().splitlines(keepends=True)
    index.write_bytes(b"".join(lines[:2]))
    assert accepting(files).closed_counts("worker-a") == {"done": 3}


def test_an_open_file_beside_the_archived_one_counts_also_for_who_has_seen_that_one(files: Files) -> None:
    tasks, done = accepting(files), replace(TASK, status="done")
    tasks.accept(done.id, value(done, 7), at(0))
    assert tasks.get(done.id).status == "done"
    (archived,) = (tasks.base / "worker-a" / "archive").rglob("*.md")
    before = archived.read_bytes()
    again = value(replace(TASK, title="Once more"), 9)
    written = with_mark(again)
    assert written is not None
    put(tasks.base / "worker-a" / f"{TASK.id}.md", written)  # by a person, then changed by another process
    tasks.accept(done.id, again, at(1))
    assert archived.read_bytes() == before
    assert paths(tasks) == [str(archived.relative_to(tasks.base)), f"worker-a/{TASK.id}.md"]
    assert tasks.get(done.id).title == "Once more"


def test_a_finished_task_is_not_left_beside_its_like_in_the_archive(files: Files) -> None:
    tasks, done = accepting(files), replace(TASK, status="done")
    tasks.accept(done.id, value(done, 7), at(0))
    (archived,) = (tasks.base / "worker-a" / "archive").rglob("*.md")
    for content, left in ((archived.read_bytes(), []), (archived.read_bytes() + b"more", [f"worker-a/{TASK.id}.md"])):
        put(tasks.base / "worker-a" / f"{TASK.id}.md", content, at=from_timestamp(archived.stat().st_mtime))
        accepting(files).archive_over("worker-a")
        assert paths(tasks) == [str(archived.relative_to(tasks.base)), *left]


@pytest.mark.parametrize("taken", ["a directory", "a link", "a pipe"])
def test_a_task_ends_although_something_else_has_its_name_in_the_archive(files: Files, taken: str) -> None:
    tasks = accepting(files)
    tasks.accept(TASK.id, value(TASK, 7), at(0))
    place = tasks.base / "worker-a" / "archive" / f"{now():%Y-%m}" / f"{TASK.id}.md"
    place.parent.mkdir(parents=True)
    if taken == "a directory":
        place.mkdir()
    elif taken == "a pipe":
        os.mkfifo(place)
    else:
        place.symlink_to("/etc/passwd")
    assert tasks.update(TASK.id, lambda task: replace(task, status="done")).status == "done"
    assert (tasks.base / "worker-a" / f"{TASK.id}.md").exists()


def test_a_file_in_the_place_of_an_agents_directory_hides_no_task(files: Files) -> None:
    tasks = Collection(files, files.base / "tasks", replace(LAYOUT, by_id=True))
    tasks.add(TASK)
    tasks.add(replace(TASK, id="tsk_000000000001", assignee_id="worker-b"))
    gone = files.base / "tasks" / "worker-b"
    gone.rename(files.base / "elsewhere")
    gone.write_text("")
    assert tasks.find("tsk_000000000001") is None
    assert tasks.find(TASK.id) is not None
    assert [task.id for task in tasks.open()] == [TASK.id]


def test_an_unchanged_file_is_parsed_once_and_whoever_changes_it_reads_it(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = (collection(files, Way()) for _ in range(2))
    path = files.base / "tasks" / "worker-a" / f"{theirs.add(TASK).id}.md"
    os.utime(path, (1, 1))
    read: list[str] = []
    load = Directory.load_with_status

    def noted(directory: Directory[Task], name: str, place: int | None = None) -> tuple[Task, os.stat_result] | None:
        read.append(name)
        return load(directory, name, place)

    monkeypatch.setattr(Directory, "load_with_status", noted)
    assert ours.get(TASK.id) is ours.get(TASK.id)
    assert ours.open("worker-a") == [ours.get(TASK.id)]
    assert len(read) == 1
    ours.update(TASK.id, lambda task: task)
    assert len(read) == 2
    theirs.update(TASK.id, lambda task: replace(task, title="Build it"))
    assert ours.get(TASK.id).title == "Build it"
