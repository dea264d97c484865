"""Reports that are read only after something has happened to their task."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import pytest

from multi_agent_mcp import Team
from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.entity import new_id
from multi_agent_mcp.errors import HubUnreachable
from multi_agent_mcp.pytest_plugin import MakeTeam
from multi_agent_mcp.services.turn.reading import Query
from multi_agent_mcp.wiring import Services
from tests.conftest import Clock
from tests.planned import planned
from tests.services.support import read, send
from tests.services.tasks_support import again, running

Kind = Literal["progress", "completed", "failed"]
KINDS: tuple[Kind, ...] = ("progress", "completed", "failed")


def reopened(team: Team, task_id: str) -> None:
    team["owner"].update_task_status(task_id, "todo")


def blocked(team: Team, task_id: str) -> None:
    team["owner"].update_task_status(task_id, "blocked", "stop")


def blocked_and_released(team: Team, task_id: str) -> None:
    blocked(team, task_id)
    team["owner"].update_task_status(task_id, "in_progress")


def taken_up_again(team: Team, task_id: str) -> None:
    for status in ("todo", "in_progress"):
        team["worker-a"].update_task_status(task_id, status)


def cancelled(team: Team, task_id: str) -> None:
    team["owner"].update_task_status(task_id, "cancelled")


def given_away(team: Team, task_id: str) -> None:
    team["owner"].assign_task(task_id, "worker-b")


def given_away_and_back(team: Team, task_id: str) -> None:
    given_away(team, task_id)
    team["owner"].assign_task(task_id, "worker-a")


def report(team: Team, task_id: str, kind: Kind) -> None:
    if kind == "progress":
        team["worker-a"].report_task_progress(task_id, 40)
    else:
        team["worker-a"].report_task_completion(task_id, kind, "built")


def work(team: Team, task_id: str) -> None:
    assert team["worker-a"].get_next_action()["task"]["task_id"] == task_id


def shown(team: Team, task_id: str) -> tuple[str, int]:
    """A task's status and progress."""
    rows = team["admin"].get_dashboard()["dashboard"]["tasks"]
    return next((row["status"], row["progress"]) for row in rows if row["task_id"] == task_id)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("meanwhile", "expected", "is_told"),
    [
        (reopened, {"progress": ("todo", 40), "completed": ("todo", 0), "failed": ("todo", 0)}, True),
        (blocked, {"progress": ("blocked", 40), "completed": ("done", 100), "failed": ("blocked", 0)}, False),
        (blocked_and_released, dict.fromkeys(KINDS, ("in_progress", 0)) | {"progress": ("in_progress", 40)}, True),
        (taken_up_again, dict.fromkeys(KINDS, ("in_progress", 0)) | {"progress": ("in_progress", 40)}, True),
        (cancelled, dict.fromkeys(KINDS, ("cancelled", 0)), False),
        (given_away, dict.fromkeys(KINDS, ("todo", 0)), True),
        (given_away_and_back, dict.fromkeys(KINDS, ("todo", 0)), True),
    ],
)
def test_a_report_says_only_what_is_still_true_when_it_is_read(
    agent_team: MakeTeam,
    kind: Kind,
    meanwhile: Callable[[Team, str], None],
    expected: dict[Kind, tuple[str, int]],
    is_told: bool,
) -> None:
    team = agent_team()
    (task_id,) = planned(team, "Build")
    work(team, task_id)
    report(team, task_id, kind)
    meanwhile(team, task_id)
    answer = team["admin"].read_messages()
    assert shown(team, task_id) == expected[kind]
    hands_changed = meanwhile in (given_away, given_away_and_back)
    assert ("reports_not_followed" in answer) is (is_told and (kind != "progress" or hands_changed))


@pytest.mark.parametrize("way", ["completed", "failed", "report_completed"])
def test_the_end_of_what_was_reopened_before_its_report_was_read_reaches_the_superior(
    agent_team: MakeTeam, way: Literal["completed", "failed", "report_completed"]
) -> None:
    team = agent_team()
    worker, (task_id,) = team["worker-a"], planned(team, "Build")
    work(team, task_id)
    report(team, task_id, "completed")
    reopened(team, task_id)
    work(team, task_id)
    if way == "report_completed":
        worker.report_completed("success", "built again")
    else:
        worker.report_task_completion(task_id, way, "built again")
    answer = team["admin"].read_messages()
    assert [message["content"] for message in answer["messages"]] == ["built", "built again"]
    assert shown(team, task_id)[0] == ("blocked" if way == "failed" else "done")
    if way != "report_completed":  # what is done needs no report, and nothing of it is said
        (told,) = answer["reports_not_followed"]
        assert "is older than what owner did with the task" in told["reason"]


def test_reading_the_older_report_leaves_the_newer_one_to_be_read(agent_team: MakeTeam) -> None:
    team = agent_team()
    (task_id,) = planned(team, "Build")
    work(team, task_id)
    report(team, task_id, "completed")
    reopened(team, task_id)
    work(team, task_id)
    report(team, task_id, "completed")
    team["admin"].read_messages(limit=1)
    assert team["worker-a"].get_next_action()["action"] == "exit", "its end is reported"
    team["worker-a"].report_completed("success", task_id=task_id)
    assert team["admin"].read_messages()["count"] == 1, "one message for each end"
    assert shown(team, task_id)[0] == "done"


def test_a_failure_that_is_read_after_its_review_was_rejected_does_not_block(agent_team: MakeTeam) -> None:
    team = agent_team()
    (task_id,) = planned(team, "Build", done_when=["review"])
    work(team, task_id)
    report(team, task_id, "completed")
    report(team, task_id, "failed")
    team["admin"].approve_task_request(task_id, approve=False, reason="again")
    team["admin"].read_messages()
    assert shown(team, task_id)[0] == "in_progress"
    report(team, task_id, "failed")
    assert team["admin"].read_messages()["count"] == 1
    assert shown(team, task_id)[0] == "blocked"


def sent(services: Services, task_id: str, kind: str, **metadata: Any) -> str:
    draft = {"message_type": kind, "metadata": {"task_id": task_id, **metadata}}
    return send(services, "worker-a", "admin", kind, **draft).message_id


def test_of_two_reports_that_are_read_in_the_wrong_order_the_later_one_counts(services: Services, clock: Clock) -> None:
    task = running(services)
    first, _, third = [
        (clock.advance(1), sent(services, task.id, "task_progress", progress=value))[1] for value in (20, 50, 80)
    ]
    read(services, "admin", message_id=third)
    answer = read(services, "admin", message_id=first)
    assert answer["reports_not_followed"][0]["message_id"] == first
    assert read(services, "admin")["count"] == 1
    assert again(services, task).progress == 80


def test_so_it_is_of_two_ends_that_contradict_each_other(services: Services, clock: Clock) -> None:
    task = running(services)
    clock.advance(1)
    complete = sent(services, task.id, "task_complete")
    clock.advance(1)
    failed = sent(services, task.id, "task_failed")
    clock.advance(1)
    read(services, "admin", message_id=failed)
    read(services, "admin", message_id=complete)
    assert again(services, task).status == "blocked"
    clock.advance(1)
    sent(services, task.id, "task_complete")
    read(services, "admin")
    assert again(services, task).status == "done"


def test_a_report_by_hand_is_judged_by_its_time(services: Services, admin: Agent, clock: Clock) -> None:
    task = running(services)
    clock.advance(1)
    sent(services, task.id, "task_complete")
    clock.advance(1)
    services.task_changes.set_status(admin, task.id, "todo")
    clock.advance(1)
    assert len(read(services, "admin")["reports_not_followed"]) == 1
    assert again(services, task).status == "todo"


@pytest.mark.parametrize("back", [0, -60])
def test_no_clock_decides_about_what_the_tools_report(
    services: Services, admin: Agent, clock: Clock, back: int
) -> None:
    task, worker = running(services), services.agents.get("worker-a")
    services.next_action.report_end(worker, task.id, "completed", "built", None)
    clock.advance(back)
    services.task_changes.set_status(admin, task.id, "todo")
    read(services, "admin")
    assert again(services, task).status == "todo"
    services.next_action.report_end(worker, task.id, "completed", "built again", None)
    read(services, "admin")
    assert again(services, task).status == "done"


def test_what_the_hub_does_not_take_stays_unread_and_takes_effect_later(
    services: Services, admin: Agent, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, worker = running(services), services.agents.get("worker-a")
    services.next_action.report_end(worker, task.id, "completed", "built", None)
    clock.advance(1)
    send(services, "worker-a", "admin", "beside it")

    def refuse(*_: object, **__: object) -> None:
        raise HubUnreachable

    with monkeypatch.context() as cut_off:
        cut_off.setattr(services.workspace.tasks, "update", refuse)
        answer = services.reading.read(admin, Query())
    assert [bool(message["read_at"]) for message in answer["messages"]] == [False, True]
    assert answer["unread_remaining"] == 1
    assert "hub" in answer["reports_not_followed"][0]["reason"]
    assert read(services, "admin")["count"] == 1
    assert again(services, task).status == "done"


def test_a_report_about_no_task_says_so_to_its_reader(services: Services) -> None:
    sent(services, new_id("tsk"), "task_complete")
    assert "There is no task" in read(services, "admin")["reports_not_followed"][0]["reason"]
