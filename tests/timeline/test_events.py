"""A task's history as bars: one for each agent that had it, cut by status."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from multi_agent_mcp.domain.history import Change, History
from multi_agent_mcp.domain.task import Task
from multi_agent_mcp.domain.times import format_time
from multi_agent_mcp.timeline.events import OTHERS, Bar, StatusPeriod, Timeline, bars_of

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


def at(minutes: int) -> datetime:
    return NOON + timedelta(minutes=minutes)


def change(minutes: int, by: str = "admin") -> Change:
    return Change(by=by, at=at(minutes))


def made(assignee_id: str | None = "worker-a", **fields: Any) -> Task:
    return Task.made("tsk_000000000001", change(0), status="todo", assignee_id=assignee_id, title="Build", **fields)


def cut(bar: Bar) -> list[tuple[str, int, int | None]]:
    return [(span.status, _minutes(span.start), _minutes(span.end) if span.end else None) for span in bar.spans]


def _minutes(moment: datetime) -> int:
    return int((moment - NOON).total_seconds() // 60)


def test_a_task_that_is_done_ends_there() -> None:
    task = made().move_to("in_progress", change(5)).move_to("done", change(9))
    (bar,) = bars_of(task)
    assert cut(bar) == [("todo", 0, 5), ("in_progress", 5, 9)]
    assert (bar.agent_id, bar.title, bar.outcome, bar.start, bar.end) == ("worker-a", "Build", "done", at(0), at(9))


def test_a_task_that_goes_on_has_no_end() -> None:
    (bar,) = bars_of(made().move_to("in_progress", change(5)).move_to("blocked", change(7)))
    assert cut(bar) == [("todo", 0, 5), ("in_progress", 5, 7), ("blocked", 7, None)]
    assert (bar.outcome, bar.end) == (None, None)


def test_steps_of_the_same_moment_keep_their_order() -> None:
    (bar,) = bars_of(made().move_to("in_progress", change(5)).move_to("done", change(5)))
    assert cut(bar) == [("todo", 0, 5)]
    assert bar.outcome == "done"


def test_whoever_it_was_taken_from_keeps_the_bar_up_to_then() -> None:
    task = made().move_to("in_progress", change(2)).assigned("worker-b", change(6)).move_to("cancelled", change(8))
    first, second = bars_of(task)
    assert (first.agent_id, cut(first), first.outcome) == ("worker-a", [("todo", 0, 2), ("in_progress", 2, 6)], None)
    assert (second.agent_id, cut(second), second.outcome) == ("worker-b", [("todo", 6, 8)], "cancelled")


def test_a_task_that_nobody_has_belongs_to_the_others() -> None:
    (bar,) = bars_of(made(assignee_id=None))
    assert bar.agent_id == OTHERS


def test_progress_reports_and_edits_cut_nothing() -> None:
    task = made().edited(change(1), title="Build it").recorded(change(2), progress=10)
    assert [cut(bar) for bar in bars_of(task)] == [[("todo", 0, None)]]


def test_a_hand_written_task_shows_what_is_known_of_it() -> None:
    bare = Task(id="tsk_000000000002", status="in_progress", assignee_id="worker-a", created_at=at(3))
    assert [cut(bar) for bar in bars_of(bare)] == [[("in_progress", 3, None)]]
    odd: Any = ("no mapping", {"at": "no time", "status": [None, "todo"]}, {"at": "2026-11-21T12:04:00Z", "status": 7})
    scribbled = Task(id="tsk_000000000003", created_at=at(3), history=odd)
    assert [cut(bar) for bar in bars_of(scribbled)] == [[("todo", 4, None)]]


def test_a_timeline_is_data_for_programs() -> None:
    bar = Bar(task_id="t", title="x", agent_id="a", start=at(0), spans=(StatusPeriod(status="todo", start=at(0)),))
    answer = Timeline(start=at(0), end=at(1), bars=(bar,)).as_answer()
    assert answer["end"] == "2026-11-21T12:01:00.000000Z"
    assert answer["bars"][0]["spans"] == ({"status": "todo", "start": "2026-11-21T12:00:00.000000Z", "end": None},)


def test_a_task_that_was_finished_by_hand_is_finished_whatever_its_history_says() -> None:
    begun = made().move_to("in_progress", change(5))
    by_hand = replace(begun, status="done", updated_at=at(9))
    (bar,) = bars_of(by_hand)
    assert (bar.outcome, bar.end) == ("done", by_hand.ended_at)
    told_by_hand = ((1, "in_progress"), (7, "done"))
    told = replace(
        by_hand,
        history=History([{"at": format_time(at(minutes)), "status": status} for minutes, status in told_by_hand]),
    )
    (bar,) = bars_of(told)
    assert (bar.start, bar.outcome, bar.end) == (at(1), "done", at(7))
    assert bars_of(replace(by_hand, history=History()))[0].outcome == "done"
