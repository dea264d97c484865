"""Guarantees of the collection of tasks in addition to those of every collection (`tests/store/test_collection.py`),
over both authorities, the locks of one machine and a hub; and the mutual visibility of changes in two directories with
one hub."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from multi_agent_mcp.domain.history import Change, History
from multi_agent_mcp.domain.task import Task
from multi_agent_mcp.errors import Reason, TaskNotFound
from multi_agent_mcp.hub.share_directory import relay_client_of
from multi_agent_mcp.store.authority import ALONE, Authority, Shared, revision_of
from multi_agent_mcp.store.codec import codec
from multi_agent_mcp.store.directory import Quarantine
from multi_agent_mcp.store.durable_files import Files
from multi_agent_mcp.store.partition import Layout
from multi_agent_mcp.store.records import Conflicts
from multi_agent_mcp.store.shared_collection import SharedCollection, Tasks
from tests.hub.support import machines
from tests.store.support import NOON, put

TASK = Task(id="tsk_0123456789ab", title="Build", status="in_progress", assignee_id="worker-a")
_numbers = itertools.count()


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Authority]:
    with machines(tmp_path_factory.mktemp("hub")) as made:
        link = relay_client_of(made["desk"].path)
        assert link is not None
        yield link


@pytest.fixture(params=["alone", "hub"])
def authority(request: pytest.FixtureRequest) -> Authority:
    found: Authority = ALONE if request.param == "alone" else request.getfixturevalue("hub")
    return found


LAYOUT = Layout(
    entity_type=Task,
    partition=lambda task: task.assignee_id or "_unassigned",
    missing=lambda task_id: TaskNotFound(task_id=task_id),
)


def collection(base: Path, authority: Authority, kind: str) -> Tasks:
    base.mkdir(exist_ok=True)
    return Tasks(Files(base), base / "tasks", LAYOUT, authority, kind)


@pytest.fixture
def tasks(tmp_path: Path, authority: Authority) -> Tasks:
    return collection(tmp_path / "session", authority, f"tsk.contract{next(_numbers)}")


def counted(task: Task) -> Task:
    return replace(task, progress=task.progress + 1)


def test_a_long_history_keeps_every_line(tasks: Tasks) -> None:
    tasks.add(TASK)
    for number in range(25):
        change = Change(by="admin", at=NOON)
        tasks.update(TASK.id, lambda task, number=number, change=change: task.assigned(f"worker-{number}", change))  # type: ignore[misc]
    moves = [line["assignee_id"][1] for line in tasks.get(TASK.id).history if "assignee_id" in line]
    assert moves == [f"worker-{number}" for number in range(25)]


def test_a_long_history_by_hand_is_divided_once(tasks: Tasks) -> None:
    lines = [{"at": NOON.isoformat(), "by": f"by-{number}", "number": 7} for number in range(30)]
    put(tasks.base / "worker-a" / f"{TASK.id}.md", codec(Task).encode(replace(TASK, history=History(lines))).decode())
    tasks.push(TASK.id)
    assert tasks.update(TASK.id, counted).progress == 1
    assert [line["by"] for line in tasks.get(TASK.id).history] == [f"by-{number}" for number in range(30)]
    assert len(tasks.history_path(TASK.id).read_bytes().splitlines()) == 10


def test_a_copy_under_another_id_is_a_task_of_its_own_with_all_of_its_history(tasks: Tasks) -> None:
    tasks.add(TASK)
    for _ in range(30):
        tasks.update(TASK.id, lambda task: task.edited(Change(by="admin", at=NOON), title=f"{task.title}!"))
    copy = f"{TASK.id[:-1]}c"
    put(tasks.base / "worker-a" / f"{copy}.md", (tasks.base / "worker-a" / f"{TASK.id}.md").read_text())
    put(tasks.history_path(copy), tasks.history_path(TASK.id).read_text())
    tasks.push(copy)
    assert tasks.update(copy, counted).progress == 1
    assert list(tasks.get(copy).history) == list(tasks.get(TASK.id).history)
    if tasks.is_shared:
        current = tasks.authority.current(f"{tasks.kind}.{copy}")
        assert current is not None
        assert current.revision == revision_of(tasks.get(copy))


def test_a_mark_by_hand_that_no_hub_has_given_writes_no_line_twice(tasks: Tasks) -> None:
    lines = [{"at": NOON.isoformat(), "by": f"by-{number}"} for number in range(60)]
    marked = replace(TASK, history=History(lines), extra={"hub": "5 deadbeef"})
    put(tasks.base / "worker-a" / f"{TASK.id}.md", codec(Task).encode(marked).decode())
    for _ in range(3):
        tasks.push(TASK.id)
    tasks.update(TASK.id, counted)
    assert len(tasks.history_path(TASK.id).read_bytes().splitlines()) == 40


def test_what_a_hand_has_written_is_changed_like_any_other(tasks: Tasks) -> None:
    put(tasks.base / "worker-a" / f"{TASK.id}.md", "---\ntitle: by hand\nstatus: todo\nassignee_id: worker-a\n---\n\n")
    assert tasks.update(TASK.id, counted).progress == 1


# Of two machines: two directories, one hub.


def test_of_two_directories_each_change_counts_and_the_revision_grows(tmp_path: Path, hub: Authority) -> None:
    kind = f"tsk.contract{next(_numbers)}"
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


SECOND: dict[str, Callable[[SharedCollection[Task], Shared], object]] = {
    "pushed": lambda tasks, _: tasks.push(TASK.id),
    "overtaken": lambda tasks, value: tasks.accept(TASK.id, value),
    "changed": lambda tasks, _: tasks.update(TASK.id, counted),
}


@pytest.mark.parametrize("second", SECOND.values(), ids=SECOND)
def test_an_edit_that_came_second_is_set_aside_and_the_first_change_stands(
    tmp_path: Path,
    hub: Authority,
    second: Callable[[SharedCollection[Task], Shared], object],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kind = f"tsk.contract{next(_numbers)}"
    one, other = (collection(tmp_path / name, hub, kind) for name in ("one", "other"))
    one.add(TASK)
    path = other.base / "worker-a" / f"{TASK.id}.md"
    data = (one.base / "worker-a" / f"{TASK.id}.md").read_bytes()
    other.files.create(path, data.replace(b"title: Build", b"title: Mine"))
    one.update(TASK.id, lambda task: replace(task, title="Theirs"))
    current = hub.current(f"{kind}.{TASK.id}")
    assert current is not None
    explain, found = Quarantine._explain, []

    def look(self: Quarantine, placed: Path, reason: Reason) -> None:
        found.append(other.get(TASK.id).title)  # somebody who asks just now
        explain(self, placed, reason)

    monkeypatch.setattr(Quarantine, "_explain", look)
    second(other, current)
    assert other.get(TASK.id).title == "Theirs"
    assert found == ["Mine"]
    (noted,) = Conflicts(other.files).standing()
    assert other.files.base / noted["path"] == path.parent / "quarantine" / path.name
    kept = {item.name: item.read_bytes() for item in (path.parent / "quarantine").iterdir()}
    assert b"title: Mine" in kept[path.name]
    assert b"another machine" in kept[f"{path.name}.reason.txt"]
    (path.parent / "quarantine" / path.name).replace(path)  # as `doctor` says
    other.accept(TASK.id, hub.current(f"{kind}.{TASK.id}"))  # type: ignore[arg-type]  # the relay comes first
    other.push(TASK.id)
    one.accept(TASK.id, hub.current(f"{kind}.{TASK.id}"))  # type: ignore[arg-type]
    assert [tasks.get(TASK.id).title for tasks in (one, other)] == ["Mine", "Mine"]
    assert Conflicts(other.files).standing() == []


@pytest.mark.parametrize("has_edit", [True, False])
def test_a_value_that_another_machine_had_sent_before_keeps_its_time(
    tmp_path: Path, hub: Authority, has_edit: bool
) -> None:
    """The month of the archive follows from it."""
    kind = f"tsk.contract{next(_numbers)}"
    one, other = (collection(tmp_path / name, hub, kind) for name in ("one", "other"))
    one.add(TASK)
    first, path = (tasks.base / "worker-a" / f"{TASK.id}.md" for tasks in (one, other))
    if has_edit:
        put(path, first.read_text().replace("title: Build", "title: Mine"))
    one.update(TASK.id, counted)
    (other.push if has_edit else other.restore)(TASK.id)
    current = hub.current(f"{kind}.{TASK.id}")
    assert current is not None
    assert path.stat().st_mtime_ns == current.at
    assert other.get(TASK.id).progress == 1


class Saving:
    """An authority that is slow: while it decides, somebody saves the file once more."""

    def __init__(self, hub: Authority, path: Path) -> None:
        self.here, self.create, self.current = hub.here, hub.create, hub.current
        self._hub = hub
        self._path = path
        self.saves = 0

    def swap(self, key: str, revision: int, data: bytes, **edit: Any) -> int | None:
        found = self._hub.swap(key, revision, data, **edit)
        self.saves += 1
        text = self._path.read_text()
        put(self._path, re.sub("^title: .*$", f"title: save {self.saves}", text, flags=re.MULTILINE))
        return found


@pytest.mark.parametrize(
    ("act", "title", "aside"),
    [
        (lambda tasks: tasks.push(TASK.id), "save 1", []),
        (lambda tasks: tasks.update(TASK.id, counted), "by hand", ["save 1"]),
    ],
    ids=["the relay sends the edit before", "a process changes the task"],
)
def test_a_file_saved_while_the_hub_decides_is_not_overwritten(
    tmp_path: Path, hub: Authority, act: Callable[[Tasks], object], title: str, aside: list[str]
) -> None:
    kind, base = f"tsk.contract{next(_numbers)}", tmp_path / "session"
    collection(base, hub, kind).add(TASK)
    path = base / "tasks" / "worker-a" / f"{TASK.id}.md"
    put(path, path.read_text().replace("title: Build", "title: by hand"))
    tasks = collection(base, Saving(hub, path), kind)  # type: ignore[arg-type]
    act(tasks)
    assert tasks.get(TASK.id).title == title
    found = "".join(item.read_text() for item in path.parent.glob("quarantine/*.md"))
    assert re.findall("^title: (.*)$", found, flags=re.MULTILINE) == aside
