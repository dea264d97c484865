"""The transitions of a task, as pure values."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.history import Change
from multi_agent_mcp.domain.task import FINAL, TASK_STATUSES, TRANSITIONS, Task
from multi_agent_mcp.domain.task_reports import ReportTime, progressed, reported
from multi_agent_mcp.errors import InvalidStatusTransition, NotProven, Unauthorized

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
BY_WORKER = Change(by="worker-a", at=NOON, message_id="m1")
TASK = Task(id="tsk_0123456789ab", title="Build", status="todo", assignee_id="worker-a", created_by="admin")

ALLOWED = {
    ("backlog", "todo"),
    ("backlog", "cancelled"),
    ("todo", "in_progress"),
    ("todo", "backlog"),
    ("todo", "blocked"),
    ("todo", "cancelled"),
    ("in_progress", "review"),
    ("in_progress", "done"),
    ("in_progress", "blocked"),
    ("in_progress", "todo"),
    ("in_progress", "cancelled"),
    ("blocked", "in_progress"),
    ("blocked", "todo"),
    ("blocked", "cancelled"),
    ("review", "done"),
    ("review", "in_progress"),
    ("review", "blocked"),
    ("review", "cancelled"),
}
PROVEN = replace(BY_WORKER, proof={"receipts": [], "reviews": {"review": "admin"}})


@pytest.mark.parametrize("status", TASK_STATUSES)
@pytest.mark.parametrize("target", TASK_STATUSES)
def test_a_task_moves_only_as_documented(status: str, target: str) -> None:
    task = replace(TASK, status=status)
    if (status, target) in ALLOWED:
        moved = task.move_to(target, PROVEN)
        assert (moved.status, moved.status_changed_by, moved.status_changed_at) == (target, "worker-a", NOON)
        assert moved.history[-1]["status"] == [status, target]
    else:
        with pytest.raises(InvalidStatusTransition):
            task.move_to(target, PROVEN)


def test_an_unknown_status_is_refused_and_an_unknown_present_one_leads_nowhere() -> None:
    with pytest.raises(InvalidStatusTransition):
        TASK.move_to("sleeping", BY_WORKER)
    with pytest.raises(InvalidStatusTransition):
        replace(TASK, status="sleeping").move_to("todo", BY_WORKER)


@pytest.mark.parametrize(
    ("status", "done_when", "target"),
    [("in_progress", ("tests",), "done"), ("in_progress", ("tests",), "review"), ("review", (), "done")],
)
def test_what_has_conditions_or_is_in_review_needs_a_proof(
    status: str, done_when: tuple[str, ...], target: str
) -> None:
    task = replace(TASK, status=status, done_when=done_when)
    with pytest.raises(NotProven):
        task.move_to(target, BY_WORKER)
    assert task.move_to(target, PROVEN).status == target


@pytest.mark.parametrize(
    ("done_when", "proof", "how"),
    [
        ((), None, "reported"),
        (("review",), {"reviews": {"review": "admin"}}, "proven"),
        (("review",), {"overruled": True}, "overruled"),
    ],
)
def test_a_finished_task_says_how_much_is_known_of_it(
    done_when: tuple[str, ...], proof: dict[str, Any] | None, how: str
) -> None:
    begun = replace(TASK, done_when=done_when, status="in_progress")
    assert begun.proof is None
    assert begun.move_to("done", replace(BY_WORKER, proof=proof)).proof == how


def test_the_first_start_and_the_end_are_remembered() -> None:
    later = replace(BY_WORKER, at=NOON + timedelta(hours=1))
    begun = TASK.move_to("in_progress", BY_WORKER)
    again = begun.move_to("todo", later).move_to("in_progress", later)
    done = again.move_to("done", later)
    assert (begun.started_at, again.started_at, again.completed_at) == (NOON, NOON, None)
    assert done.completed_at == later.at


def test_a_reason_is_there_while_the_task_is_blocked_and_no_longer() -> None:
    blocked = TASK.move_to("blocked", replace(BY_WORKER, reason="no key"))
    assert blocked.blocked_reason == "no key"
    assert blocked.move_to("todo", BY_WORKER).blocked_reason is None


@pytest.mark.parametrize("status", sorted(set(TASK_STATUSES) - FINAL - {"review"}))
@pytest.mark.parametrize(("failed", "expected"), [(False, "done"), (True, "blocked")])
def test_a_completion_report_finds_its_way_from_every_open_status(status: str, failed: bool, expected: str) -> None:
    change = replace(BY_WORKER, reason="broken" if failed else None)
    told = reported(replace(TASK, status=status), change, failed=failed, summary="all of it")
    assert (told.status, told.completion_summary) == (expected, "all of it")
    assert told.completion_result == ("failed" if failed else "success")
    assert told.blocked_reason == ("broken" if failed else None)
    assert told.has_applied("m1")


def test_a_second_report_of_a_failure_keeps_what_it_does_not_say_again() -> None:
    blocked = reported(TASK, BY_WORKER, failed=True, summary="all of it")
    assert reported(blocked, BY_WORKER, failed=True, summary=None).completion_summary == "all of it"


@pytest.mark.parametrize("status", sorted(FINAL))
def test_a_final_task_says_so(status: str) -> None:
    with pytest.raises(InvalidStatusTransition):
        replace(TASK, status=status).require_open()
    assert TRANSITIONS[status] == ()


def test_progress_begins_the_work_and_keeps_what_it_does_not_name() -> None:
    half = progressed(TASK, BY_WORKER, 50, ({"text": "a", "completed": True},), ReportTime(NOON))
    assert (half.status, half.progress, len(half.checklist)) == ("in_progress", 50, 1)
    assert progressed(half, replace(BY_WORKER, message_id="m2"), None, None, ReportTime(NOON)).progress == 50
    assert (
        progressed(half, replace(BY_WORKER, message_id="m2"), None, None, ReportTime(NOON)).checklist == half.checklist
    )


def test_progress_from_before_a_task_was_blocked_does_not_reopen_it() -> None:
    begun = TASK.move_to("in_progress", BY_WORKER)
    blocked = begun.interrupted("blocked", replace(BY_WORKER, by="admin"), "ntf_0123456789ab")
    late = progressed(blocked, replace(BY_WORKER, message_id="m2"), 70, None, ReportTime(NOON - timedelta(seconds=1)))
    assert (late.status, late.progress, late.interrupt_id) == ("blocked", 70, "ntf_0123456789ab")
    assert late.has_applied("m2")
    taken_up = progressed(
        blocked, replace(BY_WORKER, message_id="m2"), 70, None, ReportTime(NOON + timedelta(seconds=1))
    )
    assert taken_up.status == "in_progress"


@given(st.lists(st.sampled_from(TASK_STATUSES), max_size=12))
def test_every_change_is_in_the_history_whatever_is_tried(targets: list[str]) -> None:
    task, changes = TASK, 0
    for target in targets:
        try:
            task = task.move_to(target, BY_WORKER)
            changes += 1
        except InvalidStatusTransition:
            assert target not in TRANSITIONS[task.status]
        except NotProven:
            assert (task.status, target) == ("review", "done")
    assert len(task.history) == changes


AGENTS = {
    agent.id: agent
    for agent in (
        Agent(id="owner", role="owner"),
        Agent(id="admin", role="admin", parent_id="owner"),
        Agent(id="worker-a", parent_id="admin"),
        Agent(id="worker-b", parent_id="admin"),
    )
}


@pytest.mark.parametrize("agent_id", ["worker-a", "admin", "owner"])
def test_the_assignee_the_creator_and_the_assignees_superiors_may_write(agent_id: str) -> None:
    TASK.require_writer(agent_id, AGENTS)


@pytest.mark.parametrize("task", [TASK, replace(TASK, assignee_id=None), replace(TASK, assignee_id="gone")])
def test_a_colleague_may_not_write(task: Task) -> None:
    with pytest.raises(Unauthorized):
        task.require_writer("worker-b", AGENTS)


def test_only_the_assignee_reports() -> None:
    TASK.require_assignee("worker-a")
    with pytest.raises(Unauthorized):
        TASK.require_assignee("admin")
