"""Notifications about a change are derived from the files alone: created once, restored when missing, and marked read
once they are dealt with (docs/protocol.md, Notifications)."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.notification import Notification
from multi_agent_mcp.domain.task import Task
from multi_agent_mcp.services.tasks.board import NewTask
from multi_agent_mcp.wiring import Services
from tests.conftest import Clock
from tests.services import forks
from tests.services.support import read
from tests.services.tasks_support import (
    again,
    agent,
    delegate,
    forked,
    mailed,
    moved,
    new,
    notices,
    open_session,
    running,
    shown,
)

Story = Callable[[Services], Task]


def told(services: Services, agent_id: str = "worker-a") -> list[tuple[str | None, str | None, str | None]]:
    """Action, originator and task of every notification that an agent would be shown."""
    found = services.derived_notices.waiting(agent_id)
    return [(notice.action, notice.sender_id, notice.task_id) for notice in found]


def finish(services: Services, task: Task) -> None:
    """A report that the admin reads."""
    services.task_reports.report_completion(agent(services, str(task.assignee_id)), task.id, "completed", "built")
    read(services, "admin")


def chained(services: Services, assignee_id: str = "worker-b") -> tuple[Task, Task]:
    """A task of `assignee_id`, and a task of worker-a that depends on it."""
    first = new(services, "first", assignee_id, by="owner")
    return first, new(services, "second", "worker-a", dependencies=[first.id])


def created(services: Services) -> Task:
    return new(services)


def created_in_a_batch(services: Services) -> Task:
    items = [NewTask(title=title, assignee_id=who) for title, who in (("a", "worker-a"), ("b", "worker-b"))]
    return services.task_creation.create(agent(services, "admin"), items)[0]


def assigned(services: Services) -> Task:
    task = moved(services, new(services, assignee_id=None), "todo")
    return services.task_changes.assign(agent(services, "admin"), task.id, "worker-a")[0]


def taken_out_of_the_backlog(services: Services) -> Task:
    admin, task = agent(services, "admin"), new(services, assignee_id=None)
    services.task_changes.assign(admin, task.id, "worker-a")
    assert told(services) == [], "in the backlog it waits"
    return services.task_changes.set_status(admin, task.id, "todo")[0]


def taken_from_another(services: Services) -> Task:
    return services.task_changes.assign(
        agent(services, "admin"), running(services, assignee_id="worker-b").id, "worker-a"
    )[0]


def reopened(services: Services, status: str) -> Task:
    task = running(services)
    services.task_changes.set_status(agent(services, "admin"), task.id, "blocked")
    return services.task_changes.set_status(agent(services, "admin"), task.id, status)[0]


def approved(services: Services) -> Task:
    task, _ = services.task_creation.request(agent(services, "worker-a"), NewTask(title="mine"))
    return services.task_changes.decide(agent(services, "admin"), task.id, approve=True)


CAUSES: dict[str, Story] = {
    "create_tasks_batch, one": created,
    "create_tasks_batch, several": created_in_a_batch,
    "assign_task": assigned,
    "assign_task, in the backlog": taken_out_of_the_backlog,
    "assign_task, of another's": taken_from_another,
    "reopened": lambda services: reopened(services, "todo"),
    "reopened and begun": lambda services: reopened(services, "in_progress"),
    "approved": approved,
}


@pytest.mark.parametrize("cause", CAUSES)
def test_work_that_somebody_else_makes_is_told_to_its_assignee_once(services: Services, cause: str) -> None:
    task = CAUSES[cause](services)
    assert told(services) == [("task_assigned", "admin", task.id)]
    (notice,) = services.notifications.read("worker-a", "task", mark_as_read=False)
    assert (notice["type"], "reason" in notice) == ("status_change", False)
    assert services.notifications.refresh("worker-a", "task").some
    assert not services.notifications.refresh("worker-a", "chat").some
    fresh = forks.context(services.workspace.root)
    fresh.notifications.refresh("worker-a", "task")
    assert len(list(fresh.workspace.notices("worker-a").path.rglob("*.md"))) == len(
        list(services.workspace.notices("worker-a").history())
    )


@pytest.mark.parametrize("cause", CAUSES)
def test_a_notification_whose_writer_was_killed_is_written_by_the_next_reader_the_very_same(
    services: Services, cause: str
) -> None:
    CAUSES[cause](services)
    ((name, _),) = services.workspace.notices("worker-a").unread()
    path = services.workspace.notices("worker-a").path / name
    original = path.read_bytes()
    path.unlink()
    assert forks.context(services.workspace.root).notifications.refresh("worker-a", "task").some
    assert path.read_bytes() == original


def test_many_notifications_at_once_are_written_once_each_beside_those_that_are_there(services: Services) -> None:
    top = new(services, "top", "admin", by="owner")
    parts = [running(services, f"part {number}", parent=top.id).id for number in range(20)]
    services.task_changes.set_status(agent(services, "owner"), top.id, "blocked")
    assert sorted(str(task_id) for action, _, task_id in told(services) if action == "blocked") == sorted(parts)
    interrupts = services.workspace.notices("worker-a")
    for name, _ in interrupts.unread()[:17]:
        (interrupts.path / name).unlink()
    blocked = [services.task_changes.get(part) for part in parts]
    another_process = forks.context(services.workspace.root)
    another_process.derived_notices.follow_up(*blocked, *blocked)
    assert sorted(str(task_id) for action, _, task_id in told(services) if action == "blocked") == sorted(parts)


def test_a_notification_that_was_read_and_archived_does_not_come_back(services: Services, clock: Clock) -> None:
    new(services)
    services.notifications.read("worker-a", "task")
    clock.advance(timedelta(days=31).total_seconds())
    other = new(services, "other")
    assert [item["task_id"] for item in services.notifications.read("worker-a", "task")] == [other.id]
    assert len(list(services.workspace.notices("worker-a").path.glob("archive/*/*.md"))) == 2
    assert not forks.context(services.workspace.root).notifications.refresh("worker-a", "task").some


def test_own_doings_mail_and_what_cannot_be_started_are_not_told(services: Services, worker_a: Agent) -> None:
    new(services, "own", "admin", by="admin")
    assert told(services, "admin") == []
    mailed(services)
    new(services, "nobody's", None)
    services.task_creation.request(worker_a, NewTask(title="unapproved"))
    given = running(services)
    services.task_changes.set_status(worker_a, given.id, "todo")
    assert told(services) == []
    _, second = chained(services)
    assert told(services) == []
    services.task_changes.set_status(agent(services, "admin"), second.id, "backlog")
    services.task_changes.set_status(agent(services, "admin"), second.id, "todo")
    assert told(services) == []


FINISHERS: dict[str, Callable[[Services, Task], object]] = {
    "update_task_status": lambda services, task: moved(services, task, "in_progress", "done"),
    "a report that is read": finish,
}


@pytest.mark.parametrize("way", [*FINISHERS, "report_completed"])
def test_the_last_dependency_that_is_done_tells_who_waits_for_it(services: Services, way: str) -> None:
    first, second = chained(services)
    if way in FINISHERS:
        FINISHERS[way](services, first)
    else:
        session = open_session(services, "worker-b")
        services.next_action.next_action(agent(services, "worker-b"), session)
        services.next_action.report_completed(agent(services, "worker-b"), session, "success", None, None)
    assert told(services) == [("task_assigned", "admin", second.id)]  # who gave it, whoever released it


def test_who_finishes_a_dependency_of_its_own_is_told_of_the_work_that_was_planned_for_it(services: Services) -> None:
    first, second = chained(services, "worker-a")
    assert [task_id for _, _, task_id in told(services)] == [first.id]
    finish(services, first)
    assert told(services) == [("task_assigned", "admin", second.id)]


def test_a_dependency_whose_finisher_was_killed_is_told_by_the_next_reader(services: Services) -> None:
    first, second = chained(services)
    late = forks.context(services.workspace.root)
    assert not late.notifications.refresh("worker-a", "task").some
    moved(services, first, "in_progress", "done")
    ((name, _),) = services.workspace.notices("worker-a").unread()
    (services.workspace.notices("worker-a").path / name).unlink()
    assert late.notifications.refresh("worker-a", "task").some  # nothing in the reader's own directories has changed
    assert told(late) == [("task_assigned", "admin", second.id)]


SETTLERS: dict[str, Callable[[Services, Task], object]] = {
    "handed out": lambda services, _: services.next_action.next_action(
        agent(services, "worker-a"), open_session(services, "worker-a")
    ),
    "started": lambda services, task: moved(services, task, "in_progress"),
    "reassigned": lambda services, task: services.task_changes.assign(agent(services, "admin"), task.id, "worker-b"),
    "unassigned": lambda services, task: services.task_changes.assign(agent(services, "admin"), task.id, None),
    "put off": lambda services, task: services.task_changes.set_status(agent(services, "admin"), task.id, "backlog"),
    "reported": finish,
}


@pytest.mark.parametrize("way", SETTLERS)
def test_work_that_is_taken_up_or_gone_needs_no_telling(services: Services, way: str) -> None:
    SETTLERS[way](services, new(services))
    assert notices(services, "worker-a") == []


def test_work_that_a_superior_has_begun_is_told_until_it_is_handed_out(services: Services) -> None:
    task = reopened(services, "in_progress")
    assert told(services) == [("task_assigned", "admin", task.id)]
    session = open_session(services, "worker-a")
    for _ in range(2):
        assert services.next_action.next_action(agent(services, "worker-a"), session)["action"] == "work"
        assert notices(services, "worker-a") == []


def test_work_that_a_superior_begins_after_it_was_told_is_not_told_again(services: Services, admin: Agent) -> None:
    task = new(services)
    (first,) = services.notifications.read("worker-a", "task")
    services.task_changes.set_status(admin, task.id, "in_progress")
    assert told(services) == []
    other = new(services, "other")
    services.task_changes.set_status(admin, other.id, "in_progress")
    assert told(services) == [("task_assigned", "admin", other.id)], "still unread, and no second one"
    assert first["task_id"] == task.id


def test_work_that_is_cancelled_is_told_as_an_interrupt_alone(services: Services, admin: Agent) -> None:
    task = running(services)
    services.task_changes.set_status(admin, task.id, "cancelled")
    assert [action for action, _, _ in told(services)] == ["cancel"]
    assert len(notices(services, "worker-a")) == 1


def test_what_was_ended_but_for_the_mark_is_marked_by_the_next_reader(services: Services) -> None:
    task = new(services)
    ((name, _),) = services.workspace.notices("worker-a").unread()
    moved(services, task, "in_progress")
    services.workspace.notices("worker-a").mark_read([name], None)  # as if killed before
    assert told(services) == []
    assert not forks.context(services.workspace.root).notifications.refresh("worker-a", "task").some
    assert notices(services, "worker-a") == []


class TestBlocking:
    """An assignee blocks its own task."""

    @pytest.mark.parametrize(("creator", "hear"), [("admin", {"admin"}), ("owner", {"admin", "owner"})])
    def test_its_superior_and_the_creator_hear_of_it(
        self, services: Services, worker_a: Agent, creator: str, hear: set[str]
    ) -> None:
        task = running(services, by=creator)
        services.task_changes.set_status(worker_a, task.id, "blocked", "no key")
        for agent_id in ("owner", "admin", "worker-a", "worker-b"):
            expected = [("task_blocked", "worker-a", task.id)] if agent_id in hear else []
            assert told(services, agent_id) == expected
        (notice,) = services.notifications.read("admin", "task")
        assert (notice["action"], notice["reason"]) == ("task_blocked", "no key")

    def test_a_person_is_told_in_whatever_session(self, services: Services, admin: Agent) -> None:
        services.task_changes.set_status(admin, running(services, "plan", "admin", by="owner").id, "blocked")
        assert [notice.target_purpose for notice in notices(services, "owner")] == [None]

    @pytest.mark.parametrize("result", ["blocked", "failed"])
    def test_a_report_of_it_tells_and_closes_the_execution_with_the_reason(
        self, services: Services, worker_a: Agent, result: str
    ) -> None:
        task = new(services)
        session = open_session(services, "worker-a")
        services.next_action.next_action(worker_a, session)
        services.next_action.report_completed(worker_a, session, result, "no key", None)
        assert told(services, "admin") == [("task_blocked", "worker-a", task.id)]
        (execution,) = services.workspace.executions.all("worker-a")
        assert (execution.status, execution.error_message) == ("failed", "no key")
        assert "| blocked |" in services.workspace.dashboard_path.read_text()

    def test_the_tool_closes_the_execution_and_the_dashboard_shows_it(
        self, services: Services, worker_a: Agent
    ) -> None:
        task = new(services)
        session = open_session(services, "worker-a")
        services.next_action.next_action(worker_a, session)
        blocked, _ = services.deliveries.set_status(worker_a, task.id, "blocked", "no key")
        services.next_action.status_changed(session, blocked, "no key")
        (execution,) = services.workspace.executions.all("worker-a")
        assert (execution.status, execution.exit_code, execution.error_message) == ("failed", 1, "no key")
        assert "| blocked |" in services.workspace.dashboard_path.read_text()

    @pytest.mark.parametrize("status", ["todo", "in_progress", "cancelled"])
    def test_it_is_read_by_itself_when_it_is_resolved(
        self, services: Services, owner: Agent, worker_a: Agent, status: str
    ) -> None:
        task = running(services, by="owner")
        services.task_changes.set_status(worker_a, task.id, "blocked")
        services.task_changes.set_status(owner, task.id, status)
        assert [notices(services, agent_id) for agent_id in ("admin", "owner")] == [[], []]

    def test_each_block_is_told_once(self, services: Services, worker_a: Agent) -> None:
        task = running(services)
        for _ in range(2):
            services.task_changes.set_status(worker_a, task.id, "blocked")
            assert len(services.notifications.read("admin", "task")) == 1
            services.task_changes.set_status(worker_a, task.id, "in_progress")
        services.task_changes.set_status(worker_a, task.id, "blocked")
        assert len(shown(services, "admin")) == 1

    def test_who_is_blocked_by_a_superior_tells_nobody(self, services: Services, admin: Agent) -> None:
        services.task_changes.set_status(admin, running(services, by="owner").id, "blocked")
        assert [told(services, agent_id) for agent_id in ("admin", "owner")] == [[], []]

    def test_a_report_that_it_failed_is_mail_already(self, services: Services, worker_a: Agent) -> None:
        task = running(services)
        services.task_reports.report_completion(worker_a, task.id, "failed", "no key")
        read(services, "admin")
        assert told(services, "admin") == []


class TestDelegating:
    """`delegate_to_chat_session`."""

    def test_the_chat_sessions_are_told_until_one_takes_it(self, services: Services) -> None:
        delegate(services, open_session(services, "worker-a"))
        assert told(services) == [("delegation", "worker-a", None)]
        assert not services.notifications.refresh("worker-a", "task").some
        assert services.notifications.refresh("worker-a", "chat").some
        chat = open_session(services, "worker-a", "chat")
        assert (
            services.chat_action.next_action(agent(services, "worker-a"), chat.record)["action"] == "process_delegation"
        )
        assert notices(services, "worker-a") == []

    def test_the_next_reader_writes_what_a_killed_process_left_out(self, services: Services) -> None:
        delegate(services, open_session(services, "worker-a"))
        ((name, _),) = services.workspace.notices("worker-a").unread()
        path = services.workspace.notices("worker-a").path / name
        original = path.read_bytes()
        path.unlink()
        assert forks.context(services.workspace.root).notifications.refresh("worker-a", "chat").some
        assert path.read_bytes() == original


KILLED: dict[str, tuple[str, Callable[[list[Notification]], int]]] = {
    "block_ones_own": ("admin", lambda found: sum(notice.action == "task_blocked" for notice in found)),
    "finish_a_dependency": ("worker-b", lambda found: sum(notice.action == "task_assigned" for notice in found)),
    "assign_a_task": ("worker-b", lambda found: sum(notice.action == "task_assigned" for notice in found)),
}


@pytest.mark.parametrize("job", KILLED)
def test_a_process_killed_at_any_write_leaves_the_change_and_its_notification_together(
    tmp_path: Path, job: str
) -> None:
    reader, count = KILLED[job]
    words = forked(job, tmp_path)
    outcomes = set()
    for number, told_word in enumerate(words):
        task_id, status = told_word.split(":")
        services = forks.context(tmp_path / str(number))
        services.operations.finish()  # as any process does at its next call
        services.derived_notices.repair(reader)
        services.derived_notices.repair(reader)
        task = services.task_changes.get(task_id)
        happened = status in (task.status, task.assignee_id)
        assert count(list(services.workspace.notices(reader).history())) == happened
        outcomes.add(happened)
    assert outcomes == {True, False}


@pytest.mark.parametrize("dependency", ["x" * 300, "../../agents", "tsk_000000000000"])
def test_a_task_written_by_hand_hides_no_other(services: Services, worker_a: Agent, dependency: str) -> None:
    task = new(services, "odd")
    path = services.workspace.tasks.directory("worker-a").path / f"{task.id}.md"
    path.write_text(path.read_text().replace("dependencies: []", f"dependencies: [{dependency}]"))
    other = new(services, "plain")
    late = forks.context(services.workspace.root)
    assert late.notifications.refresh("worker-a", "task").some
    assert other.id in [task_id for _, _, task_id in told(late)]
    assert late.next_action.next_action(worker_a, open_session(late, "worker-a"))["task"]["task_id"] == other.id


def test_fifty_unread_notifications_cost_no_file_while_nothing_changes(services: Services) -> None:
    for number in range(50):
        new(services, str(number))
    services.notifications.refresh("worker-a", "task")
    opened: list[str] = []
    watching = [True]

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if watching and event == "open" and str(arguments[0]).endswith(".md"):
            opened.append(str(arguments[0]))

    sys.addaudithook(hook)
    assert services.notifications.refresh("worker-a", "task").some
    watching.clear()  # a hook cannot be taken away
    assert opened == []


NEWS: dict[str, tuple[list[str], str, list[str], str]] = {
    "an interrupt, after assigning": (
        [],
        "admin:assign:worker-b",
        ["worker-b:in_progress", "owner:blocked"],
        "blocked",
    ),
    "an interrupt, after reopening": (
        ["worker-a:in_progress", "owner:blocked"],
        "admin:todo",
        ["worker-a:in_progress", "owner:blocked"],
        "blocked",
    ),
    "an interrupt, after beginning": (["owner:blocked"], "admin:in_progress", ["owner:blocked"], "blocked"),
    "another interrupt": (
        ["worker-a:in_progress"],
        "admin:blocked",
        ["owner:in_progress", "owner:blocked"],
        "blocked",
    ),
    "a cancellation": (
        ["worker-a:in_progress", "owner:blocked"],
        "admin:todo",
        ["owner:in_progress", "owner:cancelled"],
        "cancel",
    ),
    "a reopening": (["owner:blocked"], "admin:todo", ["owner:blocked", "owner:todo"], "task_assigned"),
    "a reopening, before it is handed out": (
        ["admin:in_progress"],
        "worker-a:begin",
        ["owner:blocked", "owner:in_progress"],
        "task_assigned",
    ),
    "an assignment": ([], "admin:assign:worker-b", ["owner:assign:worker-a"], "task_assigned"),
    "a pause": (["owner:blocked"], "admin:todo", ["owner:pause:worker-a"], "pause"),
    "another pause": (["owner:pause:worker-a"], "admin:resume:worker-a", ["owner:pause:worker-a"], "pause"),
    "a delegation": (
        ["worker-a:delegate:worker-b"],
        "worker-a:take",
        ["worker-a:delegate:worker-b"],
        "delegation",
    ),
}


@pytest.mark.parametrize("news", NEWS)
def test_a_slow_writer_ends_nothing_that_is_newer_than_its_own_change(services: Services, news: str) -> None:
    before, slow, meanwhile, action = NEWS[news]
    task = new(services)
    for deed in before:
        forks.deed(services, task.id, deed)
    forked("slow_writer", services.workspace.root, task.id, slow, *meanwhile)
    fresh = forks.context(services.workspace.root)
    by = meanwhile[-1].partition(":")[0]
    assert (action, by) in [told_of[:2] for told_of in told(fresh, str(again(fresh, task).assignee_id))]


@pytest.mark.parametrize("superior", ["admin", "owner"])
def test_a_slow_writer_leaves_a_newer_block_of_the_assignees_own_to_its_superiors(
    services: Services, superior: str
) -> None:
    task = moved(services, running(services, by=superior), "blocked")
    services.notifications.read(superior, "task")
    forked("slow_writer", services.workspace.root, task.id, "admin:in_progress", "worker-a:blocked")
    assert ("task_blocked", "worker-a", task.id) in told(forks.context(services.workspace.root), superior)
