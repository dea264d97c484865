"""Determining the next action, and reporting completion (docs/protocol.md, Next action, Completion)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.history import Change
from multi_agent_mcp.domain.task import Task
from multi_agent_mcp.domain.task_reports import ReportTime, progressed
from multi_agent_mcp.errors import (
    ContentTooLarge,
    InvalidArguments,
    InvalidStatusTransition,
    Refusal,
    TaskNotFound,
    Unauthorized,
)
from multi_agent_mcp.services.sessions.agent_sessions import LiveSession
from multi_agent_mcp.services.tasks.board import NewTask
from multi_agent_mcp.wiring import Services
from tests.conftest import Clock
from tests.services.support import read, send
from tests.services.tasks_support import again, inbox, moved, new, notices, open_session, running, shown, snapshot

RESULTS = ("success", "failed", "blocked")


@pytest.fixture
def session(services: Services) -> LiveSession:
    """A task session of worker-a."""
    return open_session(services, "worker-a")


def action(services: Services, session: LiveSession) -> dict[str, Any]:
    return services.next_action.next_action(services.agents.get(session.record.agent_id), session)


def report(services: Services, session: LiveSession, result: str, summary: str | None = None) -> Task:
    agent = services.agents.get(session.record.agent_id)
    return services.next_action.report_completed(agent, session, result, summary, None)


def bound(services: Services, session: LiveSession, title: str = "Build", **fields: Any) -> Task:
    """A task that was handed to the session as work."""
    new(services, title, **fields)
    return again(services, services.task_changes.get(action(services, session)["task"]["task_id"]))


class TestNextAction:
    """`get_next_action` in a task session."""

    @pytest.mark.parametrize("former", ["backlog", "blocked"])
    def test_work_carries_the_reason_why_it_was_moved_to_its_assignee(
        self, services: Services, session: LiveSession, admin: Agent, former: str
    ) -> None:
        task = new(services)
        assert "moved" not in action(services, session) if former == "blocked" else True
        services.task_changes.set_status(admin, task.id, former)
        services.task_changes.set_status(admin, task.id, "todo", "use the second version")
        told = [item["reason"] for item in shown(services, "worker-a") if item["action"] == "task_assigned"]
        assert told == ["use the second version"]
        assert action(services, session)["moved"] == {"by": "admin", "reason": "use the second version"}
        assert shown(services, "worker-a") == []

    def test_words_in_a_conversation_are_left_to_the_chat_session_while_it_lives(
        self, services: Services, session: LiveSession, worker_a: Agent, worker_b: Agent
    ) -> None:
        chat = services.sessions.open("worker-a", "chat")
        services.conversations.begin(worker_b, worker_a, "hello")
        assert action(services, session)["action"] == "wait"
        assert services.chat_action.next_action(worker_a, chat.record)["action"] == "conversation_request"
        chat.end()
        assert action(services, session)["action"] == "read_messages"

    def test_work_is_started_by_being_handed_out(self, services: Services, session: LiveSession) -> None:
        task = new(services, description="four walls")
        answer = action(services, session)
        assert (answer["action"], answer["task"]["task_id"], answer["task"]["description"]) == (
            "work",
            task.id,
            "four walls",
        )
        assert answer["task"]["status"] == again(services, task).status == "in_progress"
        assert answer["task_file"].endswith(f"/tasks/worker-a/{task.id}.md")
        assert answer["instruction"] == services.texts("next.work")
        assert session.record.task_id == task.id
        (execution,) = services.workspace.executions.all("worker-a")
        assert (execution.task_id, execution.session_id, execution.status) == (task.id, session.record.id, "running")

    def test_the_same_work_is_handed_out_until_it_is_reported(self, services: Services, session: LiveSession) -> None:
        task = bound(services, session)
        new(services, "more urgent", priority="urgent")
        assert action(services, session)["task"]["task_id"] == task.id
        assert len(services.workspace.executions.all("worker-a")) == 1

    def test_the_highest_priority_comes_first_then_the_oldest(
        self, services: Services, clock: Clock, session: LiveSession
    ) -> None:
        expected = []
        for number, priority in enumerate(("low", "high", "medium", "urgent", "high")):
            clock.advance(1)
            task = new(services, str(number), priority=priority)
            expected.append((-["low", "medium", "high", "urgent"].index(priority), number, task.id))
        given = []
        for _ in expected:
            given.append(action(services, session)["task"]["task_id"])
            report(services, session, "success")
        assert given == [task_id for _, _, task_id in sorted(expected)]
        assert action(services, session)["action"] == "exit"

    def test_what_cannot_be_started_is_not_handed_out(
        self, services: Services, session: LiveSession, worker_a: Agent
    ) -> None:
        first = new(services, "first", "worker-b")
        second = new(services, "second", dependencies=(first.id,))
        services.task_creation.request(worker_a, NewTask(title="mine"))
        moved(services, new(services, "stuck"), "blocked")
        new(services, "nobody's", None)
        assert action(services, session)["action"] == "wait"
        moved(services, first, "in_progress", "done")
        assert action(services, session)["task"]["task_id"] == second.id

    def test_what_was_assigned_in_the_backlog_is_handed_out_from_todo_on(
        self, services: Services, session: LiveSession, admin: Agent
    ) -> None:
        task = new(services, assignee_id=None)
        services.task_changes.assign(admin, task.id, "worker-a")
        assert services.notifications.waiting("worker-a") == []
        assert action(services, session)["action"] == "wait"
        assert again(services, task).status == "backlog"
        services.task_changes.set_status(admin, task.id, "todo")
        assert [(notice.action, notice.task_id) for notice in services.notifications.waiting("worker-a")] == [
            ("task_assigned", task.id)
        ]
        assert action(services, session)["task"]["task_id"] == task.id
        assert again(services, task).status == "in_progress"
        assert services.notifications.waiting("worker-a") == []

    def test_what_was_put_back_into_the_backlog_stays_there(self, services: Services, session: LiveSession) -> None:
        moved(services, new(services), "backlog")
        assert action(services, session)["action"] == "wait"

    def test_an_admin_reviews_what_was_requested_but_works_first(self, services: Services, worker_a: Agent) -> None:
        admin = open_session(services, "admin")
        request, _ = services.task_creation.request(worker_a, NewTask(title="mine"))
        answer = action(services, admin)
        assert (answer["action"], [item["task_id"] for item in answer["tasks"]]) == ("review", [request.id])
        new(services, "work", "admin", by="owner")
        assert action(services, admin)["action"] == "work"

    def test_an_admin_reads_before_its_own_task_that_only_waits_for_tasks_of_others(
        self, services: Services, admin: Agent, worker_a: Agent
    ) -> None:
        session = open_session(services, "admin")
        plan = bound(services, session, "plan", assignee_id="admin", by="owner")
        send(services, "worker-b", "admin")
        assert action(services, session)["action"] == "work", "there is nothing to wait for yet"
        part = new(services, "part", by="admin")
        assert action(services, session)["action"] == "read_messages"
        read(services, "admin")
        request, _ = services.task_creation.request(worker_a, NewTask(title="mine"))
        assert action(services, session)["action"] == "review"
        services.task_changes.decide(admin, request.id, approve=False)
        read(services, "admin")
        assert action(services, session)["task"]["task_id"] == plan.id
        worker = open_session(services, "worker-a")
        assert action(services, worker)["task"]["task_id"] == part.id
        report(services, worker, "success", "built")
        assert action(services, session)["action"] == "read_messages", "the report of what it waited for goes first"
        read(services, "admin")
        assert action(services, session)["task"]["task_id"] == plan.id

    def test_mail_is_announced_when_there_is_no_work(self, services: Services, session: LiveSession) -> None:
        send(services, "admin", "worker-a")
        send(services, "worker-b", "worker-a")
        answer = action(services, session)
        assert (answer["action"], answer["unread_count"]) == ("read_messages", 2)
        read(services, "worker-a")
        assert action(services, session)["action"] == "wait"

    def test_a_session_whose_task_is_over_goes(self, services: Services, session: LiveSession) -> None:
        bound(services, session)
        report(services, session, "success")
        assert action(services, session)["action"] == "exit"

    def test_a_session_whose_task_was_blocked_goes(
        self, services: Services, session: LiveSession, owner: Agent
    ) -> None:
        task = bound(services, session)
        services.task_changes.set_status(owner, task.id, "blocked")
        assert action(services, session)["action"] == "exit"

    def test_a_task_as_large_as_can_be_fits_into_an_answer(
        self, services: Services, session: LiveSession, clock: Clock
    ) -> None:
        large = new(services, "題" * 500, description="文" * 100_000)
        items = tuple({"text": f"{number} " + "字" * 200, "completed": False} for number in range(300))
        change = Change(by="admin", at=clock())
        services.workspace.tasks.update(
            large.id, lambda found: progressed(found, change, 1, items, ReportTime(clock()))
        )
        answer = action(services, session)
        assert len(json.dumps(answer, ensure_ascii=False)) < 8_000
        assert answer["task"]["checklist"][0] == items[0]
        assert answer["task"]["checklist_length"] == 300


class TestReport:
    """`report_completed` in all its combinations."""

    @pytest.mark.parametrize(
        ("result", "status", "exit_code", "progress"),
        [("success", "done", 0, 100), ("failed", "blocked", 1, 0), ("blocked", "blocked", 1, 0)],
    )
    def test_a_report_ends_the_work_closes_the_execution_and_tells_the_superior(
        self, services: Services, session: LiveSession, result: str, status: str, exit_code: int, progress: int
    ) -> None:
        task = bound(services, session)
        done = services.next_action.report_completed(
            services.agents.get("worker-a"), session, result, "as far as it goes", "sweep up"
        )
        assert done == again(services, task)
        assert (done.status, done.completion_result, done.completion_summary, done.next_steps, done.progress) == (
            status,
            result,
            "as far as it goes",
            "sweep up",
            progress,
        )
        assert done.blocked_reason == ("as far as it goes" if status == "blocked" else None)
        (execution,) = services.workspace.executions.all("worker-a")
        assert (execution.status, execution.exit_code) == ("failed" if exit_code else "completed", exit_code)
        kind = "task_complete" if result == "success" else "task_failed"
        assert inbox(services, "admin") == [(kind, "worker-a", "as far as it goes")]
        assert notices(services, "worker-a") == []

    @pytest.mark.parametrize("result", ["failed", "blocked"])
    def test_a_task_that_was_blocked_by_the_owner_keeps_who_blocked_it_and_why(
        self, services: Services, session: LiveSession, owner: Agent, result: str
    ) -> None:
        task = bound(services, session)
        blocked, _ = services.task_changes.set_status(owner, task.id, "blocked", "new plan")
        done = report(services, session, result, "stopped")
        assert inbox(services, "admin") == [("status_update", "worker-a", "stopped")]
        (mail,) = [message for _, message in services.workspace.mailbox("admin").unread()]
        assert mail.subject == "owner has changed the task's status to blocked: Build"
        assert (done.status, done.status_changed_by, done.blocked_reason, done.interrupt_id) == (
            "blocked",
            "owner",
            "new plan",
            blocked.interrupt_id,
        )
        assert (done.completion_result, done.completion_summary) == (result, "stopped")
        (execution,) = services.workspace.executions.all("worker-a")
        assert (execution.status, execution.exit_code) == ("failed", 1)

    @pytest.mark.parametrize("result", ["failed", "blocked"])
    def test_a_task_that_was_cancelled_takes_the_report_and_stays_cancelled(
        self, services: Services, session: LiveSession, owner: Agent, result: str
    ) -> None:
        task = bound(services, session)
        services.task_changes.set_status(owner, task.id, "cancelled")
        done = report(services, session, result)
        assert (done.status, done.completion_result, done.status_changed_by) == ("cancelled", result, "owner")

    @pytest.mark.parametrize("status", ["blocked", "cancelled"])
    def test_success_on_a_task_that_was_stopped_is_refused_and_changes_nothing(
        self, services: Services, session: LiveSession, owner: Agent, status: str
    ) -> None:
        task = bound(services, session)
        services.task_changes.set_status(owner, task.id, status)
        before = snapshot(services)
        with pytest.raises(InvalidStatusTransition):
            report(services, session, "success")
        assert snapshot(services) == before

    @pytest.mark.parametrize("result", ["failed", "blocked"])
    def test_what_is_done_is_not_undone_by_another_report(
        self, services: Services, session: LiveSession, result: str
    ) -> None:
        bound(services, session)
        done = report(services, session, "success", "all of it")
        with pytest.raises(InvalidStatusTransition):
            report(services, session, result, "or not")
        after = again(services, done)
        assert (after.status, after.completion_result, after.completion_summary) == ("done", "success", "all of it")

    @pytest.mark.parametrize("result", RESULTS)
    def test_reporting_twice_tells_the_superior_once(
        self, services: Services, session: LiveSession, result: str
    ) -> None:
        bound(services, session)
        first = report(services, session, result)
        assert report(services, session, result).status == first.status
        assert len(inbox(services, "admin")) == 1

    @pytest.mark.parametrize("result", RESULTS)
    def test_no_words_of_a_report_are_lost_by_later_ones(
        self, services: Services, session: LiveSession, result: str
    ) -> None:
        bound(services, session)
        for summary in ("all of it", "and more", "and that", None):
            task = report(services, session, result, summary)
        assert task.completion_summary == "and that"
        said = [line["completion_summary"] for line in task.history if "completion_summary" in line]
        assert said == [["all of it", "and more"], ["and more", "and that"]]

    @pytest.mark.parametrize(("status", "result"), [("completed", "success"), ("failed", "failed")])
    @pytest.mark.parametrize("read_between", [False, True])
    def test_the_superior_is_told_once_also_with_report_task_completion(
        self, services: Services, session: LiveSession, status: str, result: str, read_between: bool
    ) -> None:
        task = bound(services, session)
        services.task_reports.report_completion(services.agents.get("worker-a"), task.id, status, "the walls stand")
        if read_between:
            assert read(services, "admin")["dashboard_updated"]
        report(services, session, result, "the walls stand")
        total = len(list(services.workspace.mailbox("admin").history()))
        assert total == 1
        read(services, "admin")
        after = again(services, task)
        assert after.status == ("done" if result == "success" else "blocked")
        assert after.completion_result == result

    def test_a_task_that_was_taken_up_again_is_reported_again(
        self, services: Services, session: LiveSession, admin: Agent
    ) -> None:
        task = bound(services, session)
        report(services, session, "failed", "first try")
        read(services, "admin")
        services.task_changes.set_status(admin, task.id, "in_progress")
        report(services, session, "success", "second try")
        assert inbox(services, "admin") == [("task_complete", "worker-a", "second try")]

    @pytest.mark.parametrize("result", ["failed", "blocked"])
    def test_reading_the_report_later_changes_nothing_it_has_not_said(
        self, services: Services, session: LiveSession, owner: Agent, result: str
    ) -> None:
        task = bound(services, session)
        services.task_changes.set_status(owner, task.id, "blocked", "new plan")
        done = report(services, session, result, "stopped")
        assert read(services, "admin")["dashboard_updated"]
        after = again(services, task)
        assert (after.status, after.completion_result, after.blocked_reason) == ("blocked", result, "new plan")
        assert after.reopened == done.reopened

    def test_reading_a_report_late_does_not_block_what_was_reopened_since(
        self, services: Services, session: LiveSession, owner: Agent, clock: Clock
    ) -> None:
        task = bound(services, session)
        report(services, session, "failed", "no key")
        clock.advance(1)
        services.task_changes.set_status(owner, task.id, "todo")
        clock.advance(1)
        read(services, "admin")
        assert again(services, task).status == "todo"

    def test_who_has_nobody_above_reports_all_the_same(self, services: Services) -> None:
        owner = open_session(services, "owner")
        new(services, "rest", "owner", by="owner")
        action(services, owner)
        assert report(services, owner, "success").status == "done"

    def test_a_report_that_is_no_text_changes_nothing(self, services: Services, session: LiveSession) -> None:
        bound(services, session)
        before = snapshot(services)
        with pytest.raises(InvalidArguments):
            report(services, session, "success", "\udc80")
        assert snapshot(services) == before

    def test_a_session_without_a_task_has_nothing_to_report(self, services: Services, session: LiveSession) -> None:
        with pytest.raises(TaskNotFound):
            report(services, session, "success")

    def test_a_session_that_was_never_handed_it_reports_the_task_in_progress(
        self, services: Services, session: LiveSession
    ) -> None:
        task = running(services)
        assert report(services, session, "success").id == task.id

    def test_a_session_that_was_never_handed_it_reports_on_what_was_taken_from_the_agent_last(
        self, services: Services, session: LiveSession, owner: Agent, clock: Clock
    ) -> None:
        for title in ("first", "last"):
            clock.advance(1)
            task = running(services, title)
            services.task_changes.set_status(owner, task.id, "blocked")
        assert report(services, session, "blocked").title == "last"

    def test_who_lost_the_task_cannot_report_on_it(
        self, services: Services, session: LiveSession, admin: Agent
    ) -> None:
        task = bound(services, session)
        services.task_changes.assign(admin, task.id, "worker-b")
        with pytest.raises(Unauthorized):
            report(services, session, "success")
        assert again(services, task).status == "todo"

    @pytest.mark.parametrize("result", RESULTS)
    def test_a_task_file_that_has_gone_is_said_to_have_gone(
        self, services: Services, session: LiveSession, result: str
    ) -> None:
        task = bound(services, session)
        (services.workspace.path / "tasks" / "worker-a" / f"{task.id}.md").unlink()
        with pytest.raises(Refusal) as refused:
            report(services, session, result)
        assert refused.value.code == "task_not_found"


def test_a_new_session_goes_on_with_what_was_begun(services: Services) -> None:
    task = running(services)
    fresh = open_session(services, "worker-a")
    assert fresh.record.task_id == task.id
    assert action(services, fresh)["task"]["task_id"] == task.id


def test_of_two_task_sessions_each_goes_on_with_its_own(services: Services, clock: Clock) -> None:
    first, second = running(services, "first"), running(services, "second")
    sessions = [open_session(services, "worker-a") for _ in range(2)]
    assert [session.record.task_id for session in sessions] == [
        task.id for task in sorted((first, second), key=lambda task: (task.created_at, task.id))
    ]
    for session in sessions:
        assert action(services, session)["task"]["task_id"] == session.record.task_id


def test_a_report_says_what_it_is_about_when_it_says_nothing_else(services: Services, session: LiveSession) -> None:
    bound(services, session, "the house")
    report(services, session, "success")
    assert inbox(services, "admin") == [("task_complete", "worker-a", "Done: the house")]


def test_a_long_summary_reaches_the_superior_whole(services: Services, session: LiveSession) -> None:
    task = bound(services, session)
    summary = "長い報告。" * 2_000
    assert report(services, session, "success", summary).completion_summary == summary
    assert ("task_complete", "worker-a", summary) in inbox(services, "admin")
    read(services, "admin", whole=True)
    assert again(services, task).completion_summary == summary


def test_a_summary_that_cannot_be_sent_is_refused_before_anything_is_changed(
    services: Services, session: LiveSession
) -> None:
    task = bound(services, session)
    with pytest.raises(ContentTooLarge):
        report(services, session, "success", "x" * (1 << 20) + "x")
    assert again(services, task).status == "in_progress"
    assert services.executions.running(session.record) is not None
