"""Done is said once: a report of the end ends the work (docs/protocol.md, Completion, Executions)."""

from __future__ import annotations

from typing import Any

import pytest

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.history import Change
from multi_agent_mcp.repository import edit_log
from multi_agent_mcp.services.turn.reading import Query
from multi_agent_mcp.wiring import Services
from tests.conftest import Clock
from tests.crash.stage import Seat
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


@pytest.mark.parametrize(("first", "second"), [("completed", "failed"), ("failed", "completed")])
def test_an_unread_report_is_not_silently_followed_by_another_that_says_otherwise(
    services: Services, admin: Agent, first: str, second: str
) -> None:
    task, seat = running(services), Seat(services, "worker-a")
    seat.call("get_next_action")
    sent = report(seat, task.id, first)["message_id"]
    with pytest.raises(AssertionError, match=f"invalid_status_transition.* as {first};"):
        report(seat, task.id, second)
    with pytest.raises(AssertionError, match=f"invalid_status_transition.* as {first};"):
        seat.call("report_completed", result="success" if second == "completed" else "failed", task_id=task.id)
    assert report(seat, task.id, first)["message_id"] == sent
    services.reading.read(admin, Query())
    assert again(services, task).status == ("done" if first == "completed" else "blocked")


def test_what_waits_is_handed_out_next(services: Services) -> None:
    task, other, seat = running(services), new(services, "next"), Seat(services, "worker-a")
    seat.call("get_next_action")
    assert "get_next_action" in report(seat, task.id)["instruction"]
    assert seat.call("get_next_action")["task"]["task_id"] == other.id


def test_a_report_about_another_task_than_the_one_in_hand_ends_only_that_one(services: Services) -> None:
    task, other, seat = running(services), new(services, "other"), Seat(services, "worker-a")
    seat.call("get_next_action")
    assert "action" not in report(seat, other.id)
    assert seat.call("get_next_action")["task"]["task_id"] == task.id
    seat.call("report_completed", result="success")
    assert seat.call("get_next_action")["action"] == "exit"


def test_a_report_that_cannot_be_followed_gives_the_task_back(services: Services, admin: Agent) -> None:
    first = new(services, "first", "worker-b")
    task, seat = new(services, "second", dependencies=[first.id]), Seat(services, "worker-a")
    report(seat, task.id)
    services.reading.read(admin, Query())
    moved(services, first, "in_progress", "done")
    assert seat.call("get_next_action")["task"]["task_id"] == task.id


def test_who_stops_a_task_whose_end_is_reported_interrupts_nobody(services: Services, owner: Agent) -> None:
    task, seat = running(services), Seat(services, "worker-a")
    seat.call("get_next_action")
    report(seat, task.id)
    services.task_changes.set_status(owner, task.id, "cancelled")
    assert [notice.action for notice in services.notifications.waiting("worker-a")] == ["task_withdrawn"]


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


def test_only_an_agent_with_a_past_is_briefed(services: Services) -> None:
    new(services)
    first = Seat(services, "worker-a")
    first.call("read_messages")
    assert "briefing" not in first.call("get_next_action")
    first.call("report_completed", result="success")
    first.binding.close()
    new(services, "tomorrow")
    assert "briefing" in Seat(forks.context(services.workspace.root), "worker-a").call("get_next_action")


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
