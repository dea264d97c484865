"""A collection: one idea of concurrency, and shelves that follow the content."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from multi_agent_mcp.domain.change import Change
from multi_agent_mcp.domain.task import Task
from multi_agent_mcp.errors import InvalidStatusTransition, TaskNotFound
from multi_agent_mcp.store.collection import Collection
from multi_agent_mcp.store.files.durable_files import Files
from tests.store.support import NOON, in_processes, put, written

TASK = Task(id="tsk_0123456789ab", title="Build", status="in_progress", assignee_id="worker-a")


def collection(files: Files, kind: type[Collection[Task]] = Collection[Task]) -> Collection[Task]:
    return kind(
        files,
        files.base / "tasks",
        Task,
        partition=lambda task: task.assignee_id or "_unassigned",
        missing=lambda task_id: TaskNotFound(task_id=task_id),
    )


@pytest.fixture
def tasks(files: Files) -> Collection[Task]:
    return collection(files)


def finish(by: str) -> Callable[[Task], Task]:
    return lambda task: task.move_to("done", Change(by=by, at=NOON))


def assign(to: str | None) -> Callable[[Task], Task]:
    return lambda task: replace(task, assignee_id=to)


def paths(tasks: Collection[Task]) -> list[str]:
    return sorted(str(path.relative_to(tasks.base)) for path in tasks.base.rglob("*.md"))


def test_an_added_entity_lies_on_its_shelf(tasks: Collection[Task]) -> None:
    tasks.add(TASK)
    assert paths(tasks) == [f"worker-a/{TASK.id}.md"]
    assert tasks.get(TASK.id) == tasks.find(TASK.id) == TASK
    assert tasks.all() == tasks.all("worker-a") == [TASK]
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
    assert tasks.update(TASK.id, lambda task: task) == TASK
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


def _finish_all(base: Path, name: str, ids: list[str]) -> None:
    tasks, won = collection(Files(base)), []
    for task_id in ids:
        try:
            tasks.update(task_id, finish(name))
        except InvalidStatusTransition:
            continue
        won.append(task_id)
    (base / f"won-{name}").write_text("\n".join(won))


def test_of_several_processes_that_finish_the_same_tasks_exactly_one_wins_each(
    files: Files, tasks: Collection[Task]
) -> None:
    ids = [f"tsk_{number:012x}" for number in range(25)]
    for task_id in ids:
        tasks.add(replace(TASK, id=task_id))
    in_processes(_finish_all, *[(files.base, name, ids) for name in ("a", "b", "c")])
    won = [line for name in ("a", "b", "c") for line in (files.base / f"won-{name}").read_text().split()]
    assert sorted(won) == ids


def test_no_change_of_several_threads_is_lost(tasks: Collection[Task]) -> None:
    tasks.add(TASK)
    change = Change(by="worker-a", at=NOON)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: tasks.update(TASK.id, lambda task: task.recorded(change, n=number)), range(40)))
    assert sorted(entry["n"] for entry in tasks.get(TASK.id).history) == list(range(40))


def test_a_changed_shelf_moves_the_file(tasks: Collection[Task]) -> None:
    tasks.add(TASK)
    assert tasks.update(TASK.id, assign("worker-b")).assignee_id == "worker-b"
    assert paths(tasks) == [f"worker-b/{TASK.id}.md"]
    tasks.update(TASK.id, assign(None))
    assert paths(tasks) == [f"_unassigned/{TASK.id}.md"]
    assert tasks.all("worker-b") == []
    assert tasks.get(TASK.id).assignee_id is None


def test_a_file_left_on_the_wrong_shelf_by_a_crash_follows_its_content(files: Files, tasks: Collection[Task]) -> None:
    tasks.add(TASK)
    files.move(tasks.base / "worker-a" / f"{TASK.id}.md", tasks.base / "worker-b" / f"{TASK.id}.md")
    assert tasks.get(TASK.id) == TASK
    tasks.update(TASK.id, lambda task: task)
    assert paths(tasks) == [f"worker-a/{TASK.id}.md"]


class Restless(Collection[Task]):
    """A collection whose task is given to somebody else right after its shelves were listed."""

    mover: Collection[Task] | None = None

    def partitions(self) -> list[str]:
        shelves = super().partitions()
        mover, self.mover = self.mover, None
        if mover is not None:
            mover.update(TASK.id, assign("worker-a"))
        return shelves


def test_a_task_that_is_handed_over_while_it_is_looked_for_is_found(files: Files) -> None:
    mover = collection(files)
    mover.add(TASK)
    mover.update(TASK.id, assign("worker-z"))
    (mover.base / "worker-a").rmdir()
    restless = collection(files, Restless)
    assert isinstance(restless, Restless)
    restless.mover = mover
    found = restless.find(TASK.id)
    assert found is not None
    assert found.assignee_id == "worker-a"


def test_a_corrupt_file_hides_no_other(tasks: Collection[Task]) -> None:
    tasks.add(TASK)
    put(tasks.base / "worker-a" / "tsk_ffffffffffff.md", "no front matter")
    put(tasks.base / ".hidden" / "x.md", "not ours")
    assert tasks.all() == [TASK]
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
