"""Finished entities move to an archive, are found and counted as before, and return when they are reopened."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from multi_agent_mcp.domain.agent import AgentSession
from multi_agent_mcp.domain.entity import session_name
from multi_agent_mcp.domain.history import Change
from multi_agent_mcp.domain.notification import interrupt_of
from multi_agent_mcp.domain.task import Task
from multi_agent_mcp.domain.times import month_of, now
from multi_agent_mcp.store.codec import codec
from multi_agent_mcp.store.shared_collection import Tasks
from multi_agent_mcp.store.workspace import Workspace
from tests.store.support import NOON, in_processes, put

LAST_MONTH = NOON - timedelta(days=30)
COUNT = 12


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    workspace = again(tmp_path)
    workspace.make()
    return workspace


def again(root: Path) -> Workspace:
    return Workspace(root, session_name("demo"))


def name(number: int) -> str:
    return f"tsk_{number:012x}"


def finished(tasks: Tasks, count: int, *, status: str = "done", at: datetime = LAST_MONTH, first: int = 0) -> None:
    """Tasks of worker-a that were finished one second after the other, in files as an earlier version left them."""
    for number in range(first, first + count):
        task = Task(id=name(number), status=status, assignee_id="worker-a", parent_task_id=name(4095))
        path = tasks.directory("worker-a").path / f"{task.id}.md"
        put(path, codec(Task).encode(task), at=at + timedelta(seconds=number))


def progress(tasks: Tasks, number: int, **facts: Any) -> None:
    change = Change(by="worker-a", at=NOON + timedelta(seconds=number), **facts)
    tasks.update(name(1), lambda task: task.recorded(change, progress=[number, number + 1]))


def archived(tasks: Tasks) -> list[str]:
    return sorted(path.stem for path in tasks.base.glob("worker-a/archive/*/*.md"))


def test_what_is_finished_is_in_the_archive_and_what_is_open_does_not(workspace: Workspace) -> None:
    tasks = workspace.tasks
    for number in (1, 2):
        tasks.add(Task(id=name(number), status="in_progress", assignee_id="worker-a"))
    done = tasks.update(name(1), lambda task: task.move_to("done", Change(by="worker-a", at=NOON)))
    (archived_file,) = tasks.base.glob("worker-a/archive/*/*.md")
    assert (archived_file.stem, tasks.get(name(1)), tasks.closed_counts()) == (name(1), done, {"done": 1})
    assert [path.stem for path in tasks.base.glob("worker-a/*.md")] == [name(2)]


def test_what_a_person_finishes_by_hand_is_over_at_once_and_moves_with_the_next_server(workspace: Workspace) -> None:
    finished(workspace.tasks, COUNT)
    looked = [facts(again(workspace.root).tasks)]
    assert (archived(workspace.tasks), workspace.tasks.open()) == ([], [])
    workspace.tasks.archive_over("worker-a")
    assert len(archived(workspace.tasks)) == COUNT
    looked += [facts(workspace.tasks), facts(again(workspace.root).tasks), facts(again(workspace.root).tasks)]
    assert looked == [looked[0]] * 4


def facts(tasks: Tasks) -> object:
    since = LAST_MONTH + timedelta(seconds=5)
    return (
        tasks.closed_counts(),
        tasks.group_counts(),
        [task.id for task in tasks.closed(limit=9)],
        [task.id for task in tasks.closed("worker-a", label="done", offset=3, limit=5)],
        [task.id for task in tasks.closed(since=since, limit=7)],
        len(tasks.closed(group=name(4095))),
        tasks.count_closed(since, NOON),
        tasks.get(name(0)),
        sorted(task.id for task in tasks.all()),
    )


@pytest.mark.parametrize("behind", ["edited", "removed", "added", "damaged", "deleted"])
def test_the_index_of_a_month_is_not_believed_when_it_should_not_be(workspace: Workspace, behind: str) -> None:
    finished(workspace.tasks, COUNT)
    workspace.tasks.archive_over("worker-a")
    (month,) = workspace.tasks.base.glob("worker-a/archive/*")
    long_ago = NOON.timestamp()
    os.utime(month, (long_ago, long_ago))  # so that it is settled, and the index is kept
    assert again(workspace.root).tasks.closed_counts() == {"done": COUNT}
    (index,) = workspace.path.glob(".index/tasks/worker-a/archive/*.jsonl")
    first = month / f"{name(0)}.md"
    expected = {"done": COUNT}
    if behind == "edited":
        shutil.copy(first, month / "copy.tmp")
        (month / "copy.tmp").write_bytes(first.read_bytes().replace(b"status: done", b"status: cancelled"))
        (month / "copy.tmp").replace(first)
        expected = {"done": COUNT - 1, "cancelled": 1}
    elif behind == "removed":
        first.unlink()
        expected = {"done": COUNT - 1}
    elif behind == "added":
        shutil.copy(first, month / f"{name(9999)}.md")
        expected = {"done": COUNT + 1}
    elif behind == "damaged":
        index.write_text("{")
    else:
        index.unlink()
    tasks = again(workspace.root).tasks
    assert tasks.closed_counts() == expected
    assert len(tasks.closed()) == sum(expected.values())


def test_counting_opens_no_archived_file(workspace: Workspace) -> None:
    finished(workspace.tasks, COUNT)
    workspace.tasks.archive_over("worker-a")
    (month,) = workspace.tasks.base.glob("worker-a/archive/*")
    os.utime(month, (NOON.timestamp(), NOON.timestamp()))
    assert again(workspace.root).tasks.closed_counts("worker-a").total() == COUNT
    unread = {path: path.stat().st_mtime_ns for path in month.iterdir()}
    for path in unread:
        path.write_bytes(b"not even a header")  # in place: whoever opens one sets it aside
    assert again(workspace.root).tasks.closed_counts("worker-a").total() == COUNT
    assert set(month.iterdir()) == set(unread)


def test_a_task_that_is_opened_again_comes_back(workspace: Workspace) -> None:
    tasks = workspace.tasks
    finished(tasks, COUNT)
    tasks.archive_over("worker-a")
    kept = tasks.update(name(0), lambda task: replace(task, title="Named later"))
    assert (kept.title, name(0) in archived(tasks)) == ("Named later", True)
    tasks.update(name(0), lambda task: replace(task, status="todo"))
    assert name(0) not in archived(tasks)
    assert [task.title for task in tasks.open("worker-a")] == ["Named later"]
    assert tasks.update(name(1), lambda task: replace(task, status="todo", assignee_id="worker-b")).status == "todo"
    assert [task.id for task in tasks.open("worker-b")] == [name(1)]


def test_what_is_changed_in_the_archive_moves_to_the_month_of_the_change(workspace: Workspace) -> None:
    """As on a machine that has seen only the last change of it."""
    tasks = workspace.tasks
    finished(tasks, COUNT)
    tasks.archive_over("worker-a")
    (before,) = tasks.base.glob("worker-a/archive/*")
    tasks.update(name(0), lambda task: replace(task, title="Named later"))
    others = sorted(path for path in tasks.base.glob("worker-a/archive/*/*.md") if path.parent != before)
    assert [path.stem for path in others] == [name(0)]
    assert others[0].parent.name == month_of(now())
    for looking in (tasks, again(workspace.root).tasks):
        assert looking.closed_counts("worker-a") == {"done": COUNT}
        assert [task.id for task in looking.closed("worker-a", limit=2)] == [name(0), name(COUNT - 1)]
        assert looking.get(name(0)).title == "Named later"


def test_a_cancelled_task_stays_until_its_interrupt_is_there(workspace: Workspace) -> None:
    tasks = workspace.tasks
    finished(tasks, COUNT)
    worked = replace(tasks.get(name(0)), status="in_progress")
    task = worked.interrupted("cancelled", Change(by="admin", at=LAST_MONTH), "ntf_0123456789ab")
    path = tasks.directory("worker-a").path / f"{name(0)}.md"
    tasks.directory("worker-a").replace(path.name, task)
    os.utime(path, (LAST_MONTH.timestamp(), LAST_MONTH.timestamp()))
    tasks.archive_over("worker-a")
    assert (name(0) in archived(tasks), len(archived(tasks))) == (False, COUNT - 1)
    notice = interrupt_of(task)
    assert notice is not None
    workspace.notices("worker-a").deliver(notice)
    tasks.archive_over("worker-a")
    assert name(0) in archived(tasks)
    assert tasks.closed_counts() == {"done": COUNT - 1, "cancelled": 1}


def test_nothing_in_an_archive_is_written_over(workspace: Workspace) -> None:
    tasks = workspace.tasks
    finished(tasks, COUNT)
    month = tasks.base / "worker-a" / "archive" / f"{LAST_MONTH:%Y-%m}"
    month.mkdir(parents=True)
    (month / f"{name(0)}.md").write_bytes(b"somebody's")
    tasks.archive_over("worker-a")
    assert (month / f"{name(0)}.md").read_bytes() == b"somebody's"
    assert (tasks.base / "worker-a" / f"{name(0)}.md").exists()


def test_ended_sessions_move_on_too(workspace: Workspace) -> None:
    for number in range(COUNT):
        session = AgentSession(id=f"ses_{number:012x}", agent_id="worker-a", created_at=NOON).end(NOON)
        put(workspace.sessions.base / "worker-a" / f"{session.id}.md", codec(AgentSession).encode(session))
    workspace.sessions.archive_over("worker-a")
    assert len(list(workspace.sessions.base.glob("worker-a/archive/*/*.md"))) == COUNT
    assert len(workspace.sessions.all("worker-a")) == COUNT
    assert all(workspace.sessions.get(f"ses_{number:012x}").ended_at == NOON for number in (0, COUNT - 1))


def test_a_long_history_is_divided_and_stays_one(workspace: Workspace) -> None:
    tasks = workspace.tasks
    tasks.add(Task.made(name(1), Change(by="admin", at=NOON), status="todo", assignee_id="worker-a"))
    tasks.update(name(1), lambda task: task.move_to("in_progress", Change(by="admin", at=NOON, message_id="m-1")))
    for number in range(60):
        progress(tasks, number, intent_id=f"int_{number}")
    header = (tasks.base / "worker-a" / f"{name(1)}.md").read_text(encoding="utf-8")
    assert header.count("intent_id: int_") == 20
    kept = [json.loads(line) for line in tasks.history_path(name(1)).read_text(encoding="utf-8").splitlines()]
    assert [line["number"] for line in kept] == list(range(42))
    task = again(workspace.root).tasks.get(name(1))
    assert [line.get("intent_id") for line in task.history] == [None, None, *(f"int_{n}" for n in range(60))]
    assert task.has_taken("int_3")
    assert not task.has_taken("int_99")
    assert task.has_applied("m-1")
    assert task.latest("status") == (1, task.history[1])
    assert task.latest("assignee_id") == (0, task.history[0])
    assert "earlier_history" not in task.extra


def lived(workspace: Workspace, changes: int) -> tuple[Tasks, list[Any]]:
    """Makes a task that was changed so often; returns its collection and its history."""
    tasks = workspace.tasks
    tasks.add(Task.made(name(1), Change(by="admin", at=NOON), status="todo", assignee_id="worker-a"))
    for number in range(changes):
        progress(tasks, number)
    return tasks, list(again(workspace.root).tasks.get(name(1)).history)


def test_lines_that_a_killed_process_wrote_beyond_the_header_count_once(workspace: Workspace) -> None:
    tasks, before = lived(workspace, 30)
    with tasks.history_path(name(1)).open("ab") as file:
        file.write(b'{"number": 11, "by": "nobody"}\n{"number": 12, "by')
    assert list(again(workspace.root).tasks.get(name(1)).history) == before
    tasks = again(workspace.root).tasks
    for number in (30, 31):
        progress(tasks, number)
    assert [line.get("progress") for line in tasks.get(name(1)).history][1:] == [[n, n + 1] for n in range(32)]
    assert list(tasks.get(name(1)).history)[:31] == before


def test_older_lines_are_read_in_their_order_however_they_came(workspace: Workspace) -> None:
    tasks, before = lived(workspace, 60)
    path = tasks.history_path(name(1))
    path.write_bytes(b"".join(reversed(path.read_bytes().splitlines(keepends=True))))
    assert list(again(workspace.root).tasks.get(name(1)).history) == before


def test_damaged_lines_of_a_history_are_not_sent_to_other_machines(workspace: Workspace) -> None:
    path = workspace.tasks.history_path(name(1))
    put(path, b'{"number": 0, "by": "admin"}\n\n{"number": 1, "by\n\xff\n[3]\n{"by": "nobody"}\n{"number": "4"}\n')
    assert list(workspace.tasks.lines()) == [(f"{name(1)}-0", b'{"number": 0, "by": "admin"}')]
    for number in (10, 1, 10, 0):
        workspace.tasks.accept_line(f"{name(1)}-{number}", b'{"number": %d, "by": "them"}' % number)
    assert [key.rpartition("-")[2] for key, _ in workspace.tasks.lines()] == ["0", "10", "1"]


def finish_forty(root: Path, tenth: int) -> None:
    tasks = again(root).tasks
    for number in range(tenth * 40, tenth * 40 + 40):
        tasks.update(name(number), lambda task: replace(task, status="done"))


def test_several_processes_archive_at_once_and_lose_nothing(workspace: Workspace) -> None:
    finished(workspace.tasks, 160, status="in_progress")
    finished(workspace.tasks, COUNT, first=160)
    in_processes(finish_forty, *((workspace.root, tenth) for tenth in range(4)))
    workspace.tasks.archive_over("worker-a")
    total = 160 + COUNT
    assert workspace.tasks.closed_counts() == {"done": total}
    assert {task.id for task in workspace.tasks.all()} == {name(number) for number in range(total)}
    assert len(archived(workspace.tasks)) == total
    assert again(workspace.root).tasks.closed_counts() == {"done": total}
    assert not list(workspace.path.rglob("quarantine"))
