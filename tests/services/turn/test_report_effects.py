"""The effect of a worker's report on its task, once the Admin has read it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from multi_agent_mcp.bootstrap import open_session
from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.task import Task
from multi_agent_mcp.services.overview.snapshot import OPEN_SHOWN
from multi_agent_mcp.services.tasks.board import NewTask
from multi_agent_mcp.wiring import Services
from tests.conftest import Clock
from tests.services.support import contents, read, send, size


@pytest.fixture
def task(services: Services, admin: Agent, clock: Clock) -> Task:
    task = services.task_creation.send(admin, "worker-a", "Build", "the house").task
    clock.advance(1)
    return task


def report(services: Services, task_id: str, kind: str, sender: str = "worker-a", **metadata: Any) -> None:
    send(services, sender, "admin", f"{kind}!", message_type=kind, metadata={"task_id": task_id, **metadata})


def test_reading_a_report_applies_it_and_rewrites_the_dashboard(services: Services, task: Task) -> None:
    report(services, task.id, "task_progress", progress=40, checklist=[{"text": "walls", "completed": True}])
    assert services.task_changes.get(task.id).progress == 0
    answer = read(services, "admin")
    applied = services.task_changes.get(task.id)
    assert answer["dashboard_updated"]
    assert (applied.status, applied.progress, applied.status_changed_by) == ("in_progress", 40, "worker-a")
    assert applied.checklist == ({"text": "walls", "completed": True},)
    assert "| Build | in_progress | worker-a | 40% |" in services.workspace.dashboard_path.read_text()


@pytest.mark.parametrize(
    ("kind", "status", "result"), [("task_complete", "done", "success"), ("task_failed", "blocked", "failed")]
)
def test_a_completion_ends_the_task_in_the_assignees_name(
    services: Services, task: Task, kind: str, status: str, result: str
) -> None:
    report(services, task.id, kind, summary="all of it")
    read(services, "admin")
    ended = services.task_changes.get(task.id)
    assert (ended.status, ended.completion_result, ended.completion_summary) == (status, result, "all of it")
    assert ended.status_changed_by == "worker-a"
    assert ended.blocked_reason == ("task_failed!" if kind == "task_failed" else None)


def test_reports_of_one_answer_are_applied_in_the_order_they_were_sent(
    services: Services, task: Task, clock: Clock
) -> None:
    for progress in (10, 90, 60):
        report(services, task.id, "task_progress", progress=progress)
        clock.advance(1)
    send(
        services,
        "worker-a",
        "admin",
        "!",
        message_type="task_progress",
        priority="urgent",
        metadata={"task_id": task.id, "progress": 70},
    )
    assert len(contents(read(services, "admin"))) == 4
    reported = [entry["progress"] for entry in services.task_changes.get(task.id).history if "progress" in entry]
    assert reported == [10, 90, 60, 70]


def test_a_report_that_is_read_again_counts_once(services: Services, task: Task) -> None:
    report(services, task.id, "task_complete")
    read(services, "admin")
    done = services.task_changes.get(task.id)
    mailbox = services.workspace.mailbox("admin")
    mailbox.bring_back({message.id for message in mailbox.history()})
    assert read(services, "admin")["count"] == 1
    assert services.task_changes.get(task.id) == done


def test_looking_without_marking_applies_nothing(services: Services, task: Task) -> None:
    report(services, task.id, "task_complete")
    assert not read(services, "admin", mark_as_read=False)["dashboard_updated"]
    assert services.task_changes.get(task.id).status == "todo"


def test_a_report_that_is_not_the_assignees_changes_nothing_and_is_still_delivered(
    services: Services, task: Task
) -> None:
    report(services, task.id, "task_complete", sender="worker-b")
    assert contents(read(services, "admin")) == ["task_complete!"]
    assert services.task_changes.get(task.id) == task


def test_a_final_task_is_left_alone(services: Services, task: Task, clock: Clock) -> None:
    report(services, task.id, "task_complete")
    clock.advance(1)
    report(services, task.id, "task_failed")
    read(services, "admin")
    assert services.task_changes.get(task.id).status == "done"


@pytest.mark.parametrize("value", ["tsk_000000000000", "", None, 7, ["x"], {"a": 1}, "x" * 300, "tsk_\x00"])
def test_a_report_about_no_task_blocks_nobody(services: Services, task: Task, value: Any) -> None:
    send(services, "worker-a", "admin", "odd", message_type="task_complete", metadata={"task_id": value})
    report(services, task.id, "task_complete")
    assert sorted(contents(read(services, "admin"))) == ["odd", "task_complete!"]
    assert services.task_changes.get(task.id).status == "done"


def test_a_report_cannot_name_a_file_outside_the_tasks(
    services: Services, task: Task, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    precious = tmp_path / "README.md"
    precious.write_text("# not a task\n")
    report(services, "../../../../README", "task_complete")
    report(services, "../../ipc/admin/x", "task_complete")
    read(services, "admin")
    assert precious.read_text() == "# not a task\n"
    assert "Invalid id '../../ipc/admin/x': it must be tsk_ and 12 hexadecimal characters." in caplog.text
    assert "value=" not in caplog.text


@pytest.mark.parametrize(
    "metadata", [{"progress": 101}, {"progress": -1}, {"progress": True}, {"progress": "50"}, {"checklist": ["x"]}]
)
def test_figures_that_make_no_sense_are_left_out(services: Services, task: Task, metadata: dict[str, Any]) -> None:
    report(services, task.id, "task_progress", **metadata)
    read(services, "admin")
    applied = services.task_changes.get(task.id)
    assert (applied.status, applied.progress, applied.checklist) == ("in_progress", 0, ())


def test_a_worker_who_reads_a_report_applies_nothing(services: Services, task: Task) -> None:
    send(services, "worker-a", "worker-b", message_type="task_complete", metadata={"task_id": task.id})
    assert not read(services, "worker-b")["dashboard_updated"]
    assert services.task_changes.get(task.id).status == "todo"


def test_progress_written_before_a_task_was_blocked_leaves_it_blocked(
    services: Services, task: Task, admin: Agent, clock: Clock
) -> None:
    report(services, task.id, "task_progress", progress=50)
    clock.advance(1)
    services.task_changes.set_status(admin, task.id, "blocked", "stop")
    read(services, "admin")
    after = services.task_changes.get(task.id)
    assert (after.status, after.progress, after.blocked_reason) == ("blocked", 50, "stop")
    assert [notice.action for notice in services.notifications.waiting("worker-a")] == ["task_withdrawn"]


@pytest.fixture
def requested(services: Services) -> Task:
    """A request of worker-a's that nobody has decided yet."""
    return services.task_creation.request(services.agents.get("worker-a"), NewTask(title="Tidy up"))[0]


@pytest.fixture
def later(services: Services, admin: Agent, task: Task) -> Task:
    """A task that waits for `task`."""
    return services.task_creation.create(
        admin, [NewTask(title="Roof", assignee_id="worker-a", dependencies=[task.id])]
    )[0]


class TestReportsThatMayNotBeFollowed:
    """A report is no way around an approval or a dependency."""

    KINDS = ("task_progress", "task_complete", "task_failed")

    def refused(self, services: Services, task: Task, kind: str, why: str) -> str:
        """Reads the report; the task must keep its status, with the reason in its history. Returns the reason that the
        Admin is given."""
        before = services.task_changes.get(task.id)
        report(services, task.id, kind, progress=40)
        answer = read(services, "admin")
        (told,) = answer["reports_not_followed"]
        after = services.task_changes.get(task.id)
        assert told["message_id"] == next(item["id"] for item in answer["messages"] if item["content"] == f"{kind}!")
        assert (after.status, after.progress, after.completion_result) == (before.status, 0, None)
        assert after.history[:-1] == before.history
        assert (after.history[-1]["report"], after.history[-1]["refused"]) == (kind, why)
        assert answer["reports_note"].startswith("Reports recorded without effect: 1.")
        return str(told["reason"])

    @pytest.mark.parametrize("kind", KINDS)
    def test_of_a_rejected_request(self, services: Services, admin: Agent, requested: Task, kind: str) -> None:
        services.task_changes.decide(admin, requested.id, approve=False)
        reason = self.refused(
            services, requested, kind, "not_approved" if kind == "task_progress" else "request_rejected"
        )
        assert "rejected" in reason
        assert services.task_changes.startable("worker-a") == []

    @pytest.mark.parametrize("kind", KINDS)
    def test_of_a_request_that_its_requester_has_put_on_the_list_undecided(
        self, services: Services, requested: Task, kind: str
    ) -> None:
        services.task_changes.set_status(services.agents.get("worker-a"), requested.id, "todo")
        assert "not approved (pending)" in self.refused(services, requested, kind, "not_approved")

    @pytest.mark.parametrize("kind", KINDS)
    def test_of_a_task_that_waits_for_another(self, services: Services, task: Task, later: Task, kind: str) -> None:
        assert task.id in self.refused(services, later, kind, "open_dependencies")

    def test_the_reason_is_japanese_in_a_japanese_session(self, services: Services, later: Task) -> None:
        japanese = open_session(services.workspace.root, "demo", language="ja", clock=services.clock)
        report(services, later.id, "task_complete")
        answer = read(japanese, "admin")
        assert "依存タスクが完了していない" in answer["reports_not_followed"][0]["reason"]
        assert "1件" in answer["reports_note"]

    def test_it_is_recorded_once_and_told_whenever_it_is_read(self, services: Services, later: Task) -> None:
        report(services, later.id, "task_complete")
        for _ in range(2):
            mailbox = services.workspace.mailbox("admin")
            mailbox.bring_back({message.id for message in mailbox.history()})
            assert len(read(services, "admin")["reports_not_followed"]) == 1
        assert [entry.get("refused") for entry in services.task_changes.get(later.id).history].count(
            "open_dependencies"
        ) == 1

    def test_read_again_it_is_followed_once_nothing_keeps_the_task(
        self, services: Services, task: Task, later: Task
    ) -> None:
        for item in (later, task):
            report(services, item.id, "task_complete")
            read(services, "admin")
        assert [services.task_changes.get(item.id).status for item in (task, later)] == ["done", "todo"]
        mailbox = services.workspace.mailbox("admin")
        mailbox.bring_back({message.id for message in mailbox.history()})
        assert "reports_not_followed" not in read(services, "admin")
        assert [services.task_changes.get(item.id).status for item in (task, later)] == ["done", "done"]

    def test_the_end_can_be_reported_again_when_it_was_not_followed(
        self, services: Services, task: Task, later: Task, clock: Clock
    ) -> None:
        worker = services.agents.get("worker-a")
        for _ in range(2):  # the second is the same report: it was not read yet
            services.task_reports.report_completion(worker, later.id, "completed", "ready")
        assert read(services, "admin")["count"] == 1
        services.task_reports.report_completion(worker, task.id, "completed", "ready")
        clock.advance(1)
        services.task_reports.report_completion(worker, later.id, "completed", "ready")
        assert read(services, "admin")["count"] == 2
        assert [services.task_changes.get(item.id).status for item in (task, later)] == ["done", "done"]

    def test_of_many_the_first_are_told_and_the_answer_keeps_its_size(
        self, services: Services, clock: Clock, admin: Agent
    ) -> None:
        needed = services.task_creation.create(admin, [NewTask(title=f"t{number}") for number in range(40)])
        dependencies = [item.id for item in needed]
        new = NewTask(title="Roof", assignee_id="worker-a", dependencies=dependencies)
        (roof,) = services.task_creation.create(admin, [new])
        for _ in range(30):
            report(services, roof.id, "task_progress")
        clock.advance(1)
        send(services, "worker-a", "admin", "x" * 9_000)
        answer = read(services, "admin")
        assert len(answer["reports_not_followed"]) == 3 < answer["count"]
        assert f": {answer['count']}." in answer["reports_note"]
        assert size(answer) < services.settings.limits.answer_characters - 1_500

    def test_of_a_task_in_progress_every_report_is_followed(self, services: Services, task: Task) -> None:
        report(services, task.id, "task_progress", progress=10)
        assert "reports_not_followed" not in read(services, "admin")
        report(services, task.id, "task_complete")
        assert "reports_not_followed" not in read(services, "admin")
        assert services.task_changes.get(task.id).status == "done"


def test_a_dashboard_that_cannot_be_written_keeps_no_mail_from_its_reader(services: Services, task: Task) -> None:
    report(services, task.id, "task_complete")
    services.workspace.dashboard_path.parent.write_text("a file where its directory should be", encoding="utf-8")
    answer = read(services, "admin")
    assert [message["content"] for message in answer["messages"]] == ["task_complete!"]
    assert not answer["dashboard_updated"]
    assert services.task_changes.get(task.id).status == "done"


def test_of_many_open_tasks_the_page_shows_those_at_work_and_counts_the_others(
    services: Services, admin: Agent, task: Task
) -> None:
    items = [NewTask(title=f"later {number}", assignee_id="worker-a") for number in range(OPEN_SHOWN + 3)]
    services.task_creation.create(admin, items)
    services.task_changes.start(services.agents.get("worker-a"), task.id)
    services.dashboard.write()
    page = services.workspace.dashboard_path.read_text()
    assert page.count("| todo |") == OPEN_SHOWN - 1
    assert "| Build | in_progress |" in page
    assert "4 more open tasks" in page
    assert len(services.dashboard.data()["tasks"]) == OPEN_SHOWN + 4


def test_an_ordinary_message_leaves_the_dashboard_alone(services: Services) -> None:
    send(services, "worker-a", "admin")
    assert not read(services, "admin")["dashboard_updated"]
    assert not services.workspace.dashboard_path.exists()


def test_the_dashboard_counts_tasks_and_keeps_hostile_titles_in_their_cells(services: Services, admin: Agent) -> None:
    services.task_creation.send(admin, "worker-a", "| a | # b", "x")
    data = services.dashboard.data()
    assert (data["counts"]["todo"], data["counts"]["total"]) == (1, 1)
    assert {agent["id"]: agent["unread"] for agent in data["agents"]}["worker-a"] == 1
    services.dashboard.write()
    (task,) = services.workspace.tasks.open("worker-a")
    services.workspace.tasks.update(task.id, lambda found: replace(found, title="| a |\n# b"))  # as a person would
    services.dashboard.write()
    text = services.workspace.dashboard_path.read_text()
    assert "| \\| a \\| # b | todo | worker-a |" in text
    assert "\n# b" not in text
