"""Done is said once: a report of the end ends the work (docs/protocol.md, Completion, Executions)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import pytest

from multi_agent_mcp import Refused, Team
from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.history import Change
from multi_agent_mcp.domain.task import Task
from multi_agent_mcp.pytest_plugin import MakeTeam
from multi_agent_mcp.repository import edit_log
from multi_agent_mcp.services.tasks.board import NewTask
from multi_agent_mcp.services.turn.reading import Query
from multi_agent_mcp.wiring import Services
from tests.conftest import Clock
from tests.crash.stage import Seat
from tests.planned import planned
from tests.services import forks
from tests.services.tasks_support import again, dies, moved, new, open_session, running


def runs(services: Services) -> list[tuple[str, int | None]]:
    found, _ = services.executions.history("worker-a")
    return [(item.status, item.exit_code) for item in found]


def report(seat: Seat, task_id: str, status: str = "completed") -> dict[str, Any]:
    return seat.call("report_task_completion", task_id=task_id, status=status, message="built")


@pytest.mark.parametrize(
    ("status", "ended", "after"), [("completed", "completed", "done"), ("failed", "failed", "blocked")]
)
def test_the_report_of_the_end_ends_the_work_and_the_task_moves_when_it_is_read(
    services: Services, admin: Agent, status: str, ended: str, after: str
) -> None:
    task, seat = running(services), Seat(services, "worker-a")
    assert seat.call("get_next_action")["task"]["task_id"] == task.id
    answer = report(seat, task.id, status)
    assert answer["action"] == "exit"
    assert answer["instruction"]
    assert runs(services) == [(ended, 0 if ended == "completed" else 1)]
    assert again(services, task).status == "in_progress"
    assert seat.call("get_next_action")["action"] == "exit"
    assert services.missing_sessions.waiting() == []
    services.reading.read(admin, Query())
    assert again(services, task).status == after
    assert again(services, task).reported_at is None
    seat.call("logout")
    assert runs(services) == [(ended, 0 if ended == "completed" else 1)]


@pytest.mark.parametrize("status", ["todo", "blocked"])
def test_an_earlier_report_of_progress_that_is_read_before_the_end_does_not_bring_the_work_back(
    services: Services, admin: Agent, status: str
) -> None:
    (task,) = services.task_creation.create(admin, [NewTask(title="Build", assignee_id="worker-a")])
    if status == "blocked":
        services.task_changes.set_status(services.agents.get("worker-a"), task.id, "blocked", reason="later")
    seat = Seat(services, "worker-a")
    seat.call("report_task_progress", task_id=task.id, progress=50)
    report(seat, task.id)
    services.reading.read(admin, Query(message_type="task_progress"))
    assert (again(services, task).status, again(services, task).progress) == ("in_progress", 50)
    assert services.task_changes.current("worker-a") is None, "or a window is opened for it"
    assert seat.call("get_next_action")["action"] != "work"
    services.reading.read(admin, Query())
    assert again(services, task).status == "done"


def test_an_earlier_report_of_progress_that_cannot_be_followed_does_not_bring_the_ended_work_back(
    services: Services, admin: Agent
) -> None:
    before = new(services, "Plan", assignee_id="worker-b")
    task, seat = new(services, dependencies=[before.id]), Seat(services, "worker-a")
    seat.call("report_task_progress", task_id=task.id, progress=50)
    report(seat, task.id)
    services.reading.read(admin, Query(message_type="task_progress"))
    moved(services, before, "in_progress", "done")
    assert services.task_changes.startable("worker-a") == []
    services.reading.read(admin, Query())
    assert again(services, task).status == "done"


@pytest.mark.parametrize(("first", "second"), [("completed", "failed"), ("failed", "completed")])
def test_an_unread_report_is_not_silently_followed_by_another_that_says_otherwise(
    agent_team: MakeTeam, first: Literal["completed", "failed"], second: Literal["completed", "failed"]
) -> None:
    team = agent_team()
    worker, (task_id,) = team["worker-a"], planned(team, "Build")
    worker.get_next_action()
    sent = worker.report_task_completion(task_id, first, "built")["message_id"]
    with pytest.raises(Refused, match=rf"invalid_status_transition.* as {first};"):
        worker.report_task_completion(task_id, second, "built")
    with pytest.raises(Refused, match=rf"invalid_status_transition.* as {first};"):
        worker.report_completed("success" if second == "completed" else "failed", task_id=task_id)
    assert worker.report_task_completion(task_id, first, "built")["message_id"] == sent
    team["admin"].read_messages()
    (task,) = worker.get_my_tasks("done" if first == "completed" else "blocked")["tasks"]
    assert task["task_id"] == task_id


def test_what_waits_is_handed_out_next(agent_team: MakeTeam) -> None:
    team = agent_team()
    worker, (first, second) = team["worker-a"], planned(team, "first", "next")
    worker.get_next_action()
    assert "get_next_action" in worker.report_task_completion(first, "completed", "built")["instruction"]
    assert worker.get_next_action()["task"]["task_id"] == second


def test_a_report_about_another_task_than_the_one_in_hand_ends_only_that_one(agent_team: MakeTeam) -> None:
    team = agent_team()
    worker, (in_hand, other) = team["worker-a"], planned(team, "in hand", "other")
    worker.get_next_action()
    assert "action" not in worker.report_task_completion(other, "completed", "built")
    assert worker.get_next_action()["task"]["task_id"] == in_hand
    worker.report_completed("success")
    assert worker.get_next_action()["action"] == "exit"


def test_a_report_that_cannot_be_followed_gives_the_task_back(agent_team: MakeTeam) -> None:
    team = agent_team()
    (first,) = planned(team, "first", assignee_id="worker-b")
    worker, (second,) = team["worker-a"], planned(team, "second", dependencies=[first])
    worker.report_task_completion(second, "completed", "built")
    team["admin"].read_messages()
    team["worker-b"].report_completed("success", task_id=team["worker-b"].get_next_action()["task"]["task_id"])
    assert worker.get_next_action()["task"]["task_id"] == second


def test_who_stops_a_task_whose_end_is_reported_interrupts_nobody(agent_team: MakeTeam) -> None:
    team = agent_team()
    worker, (task_id,) = team["worker-a"], planned(team, "Build")
    worker.get_next_action()
    worker.report_task_completion(task_id, "completed", "built")
    team["owner"].update_task_status(task_id, "cancelled")
    assert [notice["action"] for notice in worker.get_notifications()["notifications"]] == ["task_withdrawn"]


def test_the_execution_open_when_its_task_becomes_done_is_completed_whoever_made_it_done(
    services: Services, admin: Agent
) -> None:
    task, session = running(services), open_session(services, "worker-a")
    services.next_action.begin(session, task)
    services.task_changes.set_status(admin, task.id, "done")
    assert runs(services) == [("completed", 0)]


def test_so_is_one_that_a_killed_process_left_open(services: Services, admin: Agent) -> None:
    task, session = running(services), open_session(services, "worker-a")
    services.next_action.begin(session, task)
    change = Change(by=admin.id, at=services.clock())
    services.workspace.tasks.update(task.id, lambda found: found.move_to("done", change))  # and killed after that
    dies(services, session)
    late = forks.context(services.workspace.root)
    late.sessions.recover("worker-a")
    assert runs(late) == [("completed", 0)]


def test_a_task_that_another_takes_back_to_todo_is_announced_again(
    services: Services, owner: Agent, clock: Clock
) -> None:
    task, seat = running(services), Seat(services, "worker-a")
    seat.call("get_next_action")
    clock.advance(1)
    services.task_changes.set_status(owner, task.id, "todo")
    (notice,) = services.notifications.ringing("worker-a")
    assert (notice.action, notice.sender_id, notice.task_id) == ("task_assigned", "owner", task.id)


def test_only_an_agent_with_a_past_is_briefed(agent_team: MakeTeam) -> None:
    with agent_team() as team:
        planned(team, "today")
        worker = team["worker-a"]
        worker.read_messages()
        assert "briefing" not in worker.get_next_action()
        worker.report_completed("success")
    with Team.open(team.path.parent, doorbell=False) as later:
        planned(later, "tomorrow")
        assert "briefing" in later["worker-a"].get_next_action()


def test_a_reported_task_is_in_nobodys_hands_wherever_that_is_asked(services: Services, admin: Agent) -> None:
    task, seat = running(services), Seat(services, "worker-a")
    seat.call("get_next_action")
    assert edit_log.task_in_hand(str(services.path), "worker-a") == task.id
    report(seat, task.id)
    (row,) = (row for row in services.snapshots.agents() if row.agent.id == "worker-a")
    assert row.task is None
    assert edit_log.task_in_hand(str(services.path), "worker-a") is None
    services.task_changes.edit(task.id, {"title": "Another"}, Change(by="admin", at=services.clock()))
    assert services.notifications.waiting("worker-a") == []
    services.reading.read(admin, Query())
    assert again(services, task).status == "done"


def renamed(services: Services, task: Task, title: str) -> None:
    services.task_changes.edit(task.id, {"title": title}, Change(by="admin", at=services.clock()))


def test_an_update_that_was_not_read_outlasts_a_report_that_is_not_followed(
    services: Services, admin: Agent, clock: Clock
) -> None:
    task, seat = running(services), Seat(services, "worker-a")
    seat.call("get_next_action")
    clock.advance(1)
    renamed(services, task, "Rebuild")
    report(seat, task.id)
    clock.advance(1)
    renamed(services, task, "Rebuild all")
    (before,) = services.notifications.waiting("worker-a")
    services.workspace.tasks.update(task.id, lambda found: replace(found, done_when=("review",)))  # by hand
    assert "reports_not_followed" in services.reading.read(admin, Query())
    found = services.notifications.waiting("worker-a")
    assert [(notice.action, notice.id == before.id) for notice in found] == [("task_updated", False)], "the last one"
    assert services.task_changes.current("worker-a") is not None


def test_an_update_ends_with_the_task(services: Services, admin: Agent) -> None:
    task, seat = running(services), Seat(services, "worker-a")
    seat.call("get_next_action")
    renamed(services, task, "Rebuild")
    report(seat, task.id)
    services.reading.read(admin, Query())
    assert again(services, task).status == "done"
    assert services.notifications.waiting("worker-a") == []
