"""A task's change and its interrupt cannot come apart, and an interrupt is shown while it applies
(docs/protocol.md, Interrupts)."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.store.inbox import file_name
from multi_agent_mcp.wiring import Services
from tests.conftest import Clock
from tests.services import forks
from tests.services.tasks_support import again, forked, mailed, moved, notices, running, shown


def test_a_missing_interrupt_is_written_again_by_its_reader_the_very_same(services: Services, owner: Agent) -> None:
    task = running(services)
    services.task_changes.set_status(owner, task.id, "blocked")
    (notice,) = notices(services, "worker-a")
    path = services.workspace.notices("worker-a").path / file_name(notice)
    original = path.read_bytes()
    path.unlink()
    late = forks.context(services.workspace.root)
    assert late.notifications.refresh("worker-a", "task").interrupts
    assert path.read_bytes() == original


@pytest.mark.parametrize("status", ["blocked", "cancelled"])
def test_an_interrupt_that_was_read_and_archived_does_not_come_back(
    services: Services, clock: Clock, owner: Agent, status: str
) -> None:
    task = moved(services, mailed(services), "in_progress")
    services.task_changes.set_status(owner, task.id, status)
    assert len(services.notifications.read("worker-a", "task")) == 1
    clock.advance(timedelta(days=31).total_seconds())
    other = moved(services, mailed(services), "in_progress")
    services.task_changes.set_status(owner, other.id, status)
    assert [item["task_id"] for item in services.notifications.read("worker-a", "task")] == [other.id]
    inbox = services.workspace.notices("worker-a").path
    assert [len(list(inbox.glob(kind))) for kind in ("*.md", "archive/*/*.md")] == [0, 2]
    assert not forks.context(services.workspace.root).notifications.refresh("worker-a", "task").some


@pytest.mark.parametrize("reopened", ["in_progress", "todo"])
def test_the_interrupt_of_a_task_that_was_reopened_is_no_longer_shown(
    services: Services, owner: Agent, reopened: str
) -> None:
    task = running(services)
    services.task_changes.set_status(owner, task.id, "blocked")
    assert len(shown(services, "worker-a")) == 1
    services.task_changes.set_status(owner, task.id, reopened)
    assert [notice.action for notice in notices(services, "worker-a")] == ["task_assigned"]  # the interrupt is read
    assert not services.notifications.refresh("worker-a", "task").interrupts
    services.task_changes.set_status(owner, task.id, "in_progress") if reopened == "todo" else None
    services.task_changes.set_status(owner, task.id, "blocked")
    assert [item["id"] for item in shown(services, "worker-a")] == [again(services, task).interrupt_id]
    assert len(notices(services, "worker-a")) == 1


def test_an_interrupt_that_its_writer_was_killed_before_marking_read_is_marked_by_the_next_reader(
    services: Services, owner: Agent
) -> None:
    task = running(services)
    services.task_changes.set_status(owner, task.id, "blocked")
    ((name, first),) = services.workspace.notices("worker-a").unread()
    services.task_changes.set_status(owner, task.id, "in_progress")
    services.task_changes.set_status(owner, task.id, "blocked")
    services.workspace.notices("worker-a").mark_read([name], None)  # as it was before the kill
    late = forks.context(services.workspace.root)
    assert late.notifications.refresh("worker-a", "task").interrupts
    assert [notice.id for notice in notices(late, "worker-a")] == [again(services, task).interrupt_id]
    assert first.id != again(services, task).interrupt_id


def test_who_was_stopped_is_shown_that_until_it_reads_it_though_the_task_is_anothers_by_now(
    services: Services, owner: Agent, admin: Agent, clock: Clock
) -> None:
    task = running(services)
    services.task_changes.set_status(owner, task.id, "blocked")
    services.task_changes.assign(admin, task.id, "worker-b")
    ((_, first),) = services.workspace.notices("worker-a").unread()
    assert services.derived_notices.applies(first)  # it has not stopped yet
    for status in ("todo", "in_progress", "blocked"):
        clock.advance(1)
        services.task_changes.set_status(services.agents.get("worker-b"), task.id, status)
    assert [item["id"] for item in services.notifications.read("worker-a", "task")] == [first.id]
    assert shown(services, "worker-a") == []
    assert not services.notifications.refresh("worker-b", "task").interrupts


def test_a_task_that_was_blocked_and_then_cancelled_shows_what_is_true_now(services: Services, owner: Agent) -> None:
    task = running(services)
    services.task_changes.set_status(owner, task.id, "blocked")
    services.task_changes.set_status(owner, task.id, "cancelled")
    assert [item["action"] for item in shown(services, "worker-a")] == ["cancel"]


def test_a_pause_is_shown_until_it_is_read_though_its_task_is_over(
    services: Services, owner: Agent, worker_a: Agent
) -> None:
    task = running(services)
    notice = services.interrupting.interrupt(owner, "worker-a", "pause", None, None)
    assert notice is not None
    assert [item["id"] for item in shown(services, "worker-a")] == [notice.id]
    services.task_changes.set_status(worker_a, task.id, "done")
    assert [item["task_id"] for item in services.notifications.read("worker-a", "task")] == [task.id]
    assert shown(services, "worker-a") == []


def test_an_interrupt_about_a_task_is_for_the_task_session(services: Services, owner: Agent) -> None:
    services.task_changes.set_status(owner, running(services).id, "blocked")
    services.interrupting.interrupt(owner, "worker-a", "pause", None, None)
    assert not services.notifications.refresh("worker-a", "chat").some
    assert shown(services, "worker-a", "chat") == []
    assert len(shown(services, "worker-a")) == 2


def test_an_interrupt_about_a_task_nobody_knows_is_shown_all_the_same(services: Services, owner: Agent) -> None:
    task = mailed(services)
    services.interrupting.interrupt(owner, "worker-a", "pause", task.id, None)
    (services.workspace.path / "tasks" / "worker-a" / f"{task.id}.md").unlink()
    assert [item["action"] for item in shown(services, "worker-a")] == ["pause"]


def test_a_command_killed_at_any_write_leaves_status_and_interrupt_together(tmp_path: Path) -> None:
    told = forked("block_a_task", tmp_path)
    blocked = 0
    for number, task_id in enumerate(told):
        services = forks.context(tmp_path / str(number))
        task = services.task_changes.get(task_id)
        pending = services.notifications.refresh("worker-a", "task")
        assert pending.interrupts == (task.status == "blocked")
        assert [item["id"] for item in shown(services, "worker-a")] == [task.interrupt_id] * pending.interrupts
        blocked += pending.interrupts
    assert blocked == 1
    assert len(told) == 2
