"""What a collection promises, over both authorities: the locks of one machine, and a hub."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from multi_agent_mcp.domain.change import Change
from multi_agent_mcp.domain.task import Task
from multi_agent_mcp.errors import InvalidStatusTransition, TaskNotFound
from multi_agent_mcp.hub.link import link_of
from multi_agent_mcp.store.authority import ALONE, HUB, Authority, revision_of
from multi_agent_mcp.store.files.durable_files import Files
from multi_agent_mcp.store.tasks import Tasks
from tests.hub.support import machines
from tests.store.support import NOON, put, written

TASK = Task(id="tsk_0123456789ab", title="Build", status="in_progress", assignee_id="worker-a")
WRITERS = 6
_numbers = itertools.count()


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Authority]:
    with machines(tmp_path_factory.mktemp("hub")) as made:
        link = link_of(made["desk"].path)
        assert link is not None
        yield link


@pytest.fixture(params=["alone", "hub"])
def authority(request: pytest.FixtureRequest) -> Authority:
    found: Authority = ALONE if request.param == "alone" else request.getfixturevalue("hub")
    return found


def collection(base: Path, authority: Authority, kind: str) -> Tasks:
    return Tasks(
        Files(base),
        base / "tasks",
        Task,
        partition=lambda task: task.assignee_id or "_unassigned",
        missing=lambda task_id: TaskNotFound(task_id=task_id),
        authority=authority,
        kind=kind,
    )


@pytest.fixture
def tasks(tmp_path: Path, authority: Authority) -> Tasks:
    return collection(tmp_path / "session", authority, f"contract{next(_numbers)}")


def plain(task: Task | None) -> Task | None:
    """Without the mark of the hub."""
    return task and replace(task, extra={key: value for key, value in task.extra.items() if key != HUB})


def counted(task: Task) -> Task:
    return replace(task, progress=task.progress + 1)


def test_what_was_added_is_found_and_adding_is_exclusive(tasks: Tasks) -> None:
    tasks.add(TASK)
    assert plain(tasks.get(TASK.id)) == TASK
    with pytest.raises(FileExistsError):
        tasks.add(replace(TASK, title="Other"))
    assert tasks.get(TASK.id).title == "Build"


def test_what_is_not_there_is_the_collections_own_error(tasks: Tasks) -> None:
    with pytest.raises(TaskNotFound):
        tasks.update(TASK.id, counted)


def test_a_refused_change_and_one_to_the_same_value_write_nothing(tasks: Tasks) -> None:
    tasks.add(replace(TASK, status="done"))
    path = tasks.base / "worker-a" / f"{TASK.id}.md"
    before = written(path)
    with pytest.raises(InvalidStatusTransition):
        tasks.update(TASK.id, lambda task: task.move_to("todo", Change(by="admin", at=NOON)))
    tasks.update(TASK.id, lambda task: task)
    assert written(path) == before


def test_a_file_follows_its_content(tasks: Tasks) -> None:
    tasks.add(TASK)
    tasks.update(TASK.id, lambda task: replace(task, assignee_id="worker-b"))
    assert [path.parent.name for path in tasks.base.rglob("*.md")] == ["worker-b"]


def test_of_many_changes_at_once_none_is_lost(tasks: Tasks) -> None:
    tasks.add(TASK)
    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(lambda _: tasks.update(TASK.id, counted), range(4 * WRITERS)))
    assert tasks.get(TASK.id).progress == 4 * WRITERS


def test_what_was_taken_back_is_gone(tasks: Tasks) -> None:
    tasks.remove(tasks.add(TASK))
    assert tasks.find(TASK.id) is None


def test_a_long_history_keeps_every_line(tasks: Tasks) -> None:
    tasks.add(TASK)
    for number in range(25):
        change = Change(by="admin", at=NOON)
        tasks.update(TASK.id, lambda task, number=number, change=change: task.assigned(f"worker-{number}", change))  # type: ignore[misc]
    moves = [line["assignee_id"][1] for line in tasks.get(TASK.id).history if "assignee_id" in line]
    assert moves == [f"worker-{number}" for number in range(25)]


def test_what_a_hand_has_written_is_changed_like_any_other(tasks: Tasks) -> None:
    put(tasks.base / "worker-a" / f"{TASK.id}.md", "---\ntitle: by hand\nstatus: todo\nassignee_id: worker-a\n---\n\n")
    assert tasks.update(TASK.id, counted).progress == 1


# Of two machines: two directories, one hub.


def test_of_two_directories_each_change_counts_and_the_revision_grows(tmp_path: Path, hub: Authority) -> None:
    kind = f"contract{next(_numbers)}"
    one, other = (collection(tmp_path / name, hub, kind) for name in ("one", "other"))
    one.add(TASK)
    stale = one.get(TASK.id)
    other.files.create(
        other.base / "worker-a" / f"{TASK.id}.md", (one.base / "worker-a" / f"{TASK.id}.md").read_bytes()
    )
    one.update(TASK.id, counted)
    assert other.get(TASK.id) == stale
    assert other.update(TASK.id, counted).progress == 2
    assert one.update(TASK.id, counted).progress == 3
    assert revision_of(one.get(TASK.id)) > revision_of(other.get(TASK.id)) > revision_of(stale)


def test_an_edit_that_came_second_is_set_aside_and_the_first_change_stands(tmp_path: Path, hub: Authority) -> None:
    kind = f"contract{next(_numbers)}"
    one, other = (collection(tmp_path / name, hub, kind) for name in ("one", "other"))
    one.add(TASK)
    path = other.base / "worker-a" / f"{TASK.id}.md"
    data = (one.base / "worker-a" / f"{TASK.id}.md").read_bytes()
    other.files.create(path, data.replace(b"title: Build", b"title: Mine"))
    one.update(TASK.id, lambda task: replace(task, title="Theirs"))
    assert other.push(TASK.id) == path
    assert other.get(TASK.id).title == "Theirs"
    kept = {item.name: item.read_bytes() for item in (path.parent / "quarantine").iterdir()}
    assert b"title: Mine" in kept[path.name]
    assert b"another machine" in kept[f"{path.name}.reason.txt"]
