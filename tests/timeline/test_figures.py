"""Figures of a period, from its events."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

from multi_agent_mcp.domain.question import Question
from multi_agent_mcp.domain.task import Task
from multi_agent_mcp.timeline.events import Arrow, Bar, Lane, Life, StatusPeriod, Timeline
from multi_agent_mcp.timeline.figures import Statistics, compute, merged, overlap, total

START = datetime(2026, 11, 20, tzinfo=UTC)


def at(hours: float) -> datetime:
    return START + timedelta(hours=hours)


def arrow(**fields: Any) -> Arrow:
    given: dict[str, Any] = {
        "message_id": "m",
        "sender_id": "admin",
        "receiver_id": "worker-a",
        "sent_at": at(1),
    } | fields
    return Arrow(message_type="request", priority="normal", subject="", **given)


def figures(
    *,
    hours: float = 24,
    zone: timezone = UTC,
    tasks: tuple[Task, ...] = (),
    questions: tuple[Question, ...] = (),
    **events: Any,
) -> Statistics:
    lanes = (Lane(agent_id="worker-a", role="worker"), Lane(agent_id=""))
    return compute(Timeline(start=START, end=at(hours), lanes=lanes, **events), tasks, questions, {"worker-a": 7}, zone)


def bar(*spans: tuple[str, float, float | None], **fields: Any) -> Bar:
    given: dict[str, Any] = {
        "task_id": "tsk_1",
        "title": "t",
        "agent_id": "worker-a",
        "start": at(spans[0][1]),
    } | fields
    divided = (StatusPeriod(status=status, start=at(a), end=None if b is None else at(b)) for status, a, b in spans)
    return Bar(**given, spans=tuple(divided))


def test_two_tasks_at_once_are_one_agent_busy_once_and_blocked_time_counts_each() -> None:
    bars = (
        bar(("in_progress", 1, 3), ("blocked", 3, 4)),
        bar(("in_progress", 2, 5), ("blocked", 5, 6), task_id="tsk_2"),
    )
    (worker,) = figures(bars=bars).agents
    assert (worker.busy, worker.blocked, worker.tool_calls) == (4 * 3600, 2 * 3600, 7)


def test_waiting_is_being_there_without_a_task_in_progress() -> None:
    lives = (Life(session_id="s", agent_id="worker-a", purpose="task", start=at(0), end=at(4)),)
    (worker,) = figures(lives=lives, bars=(bar(("in_progress", 3, 6)),)).agents
    assert (worker.present, worker.busy, worker.waiting) == (4 * 3600, 3 * 3600, 3 * 3600)


def test_what_goes_on_counts_until_the_end_of_the_period_and_what_began_before_from_its_start() -> None:
    lives = (Life(session_id="s", agent_id="worker-a", purpose="task", start=at(-5)),)
    (worker,) = figures(hours=2, lives=lives, bars=(bar(("in_progress", -1, None)),)).agents
    assert (worker.present, worker.busy, worker.waiting) == (2 * 3600, 2 * 3600, 0)


def test_the_median_from_the_doorbell_to_the_reading_leaves_out_what_was_not_rung_or_read() -> None:
    arrows = (
        *(arrow(rung_at=at(1), read_at=at(1) + timedelta(seconds=seconds)) for seconds in (1, 5, 100)),
        arrow(rung_at=at(1)),
        arrow(read_at=at(9)),
    )
    (worker,) = figures(arrows=arrows).agents
    assert (worker.received, worker.until_read) == (5, 5)
    assert figures().agents[0].until_read is None


def test_the_median_to_an_answer_is_that_of_the_questions_to_an_agent() -> None:
    asked = [("worker-a", 1), ("worker-a", 5), ("worker-a", 90), ("admin", 7)]
    questions = tuple(
        Question(id=f"qst_{after}", to_id=to_id, created_at=at(1), answered_at=at(1) + timedelta(seconds=after))
        for to_id, after in asked
    )
    assert figures(questions=questions).agents[0].until_answer == 5
    assert figures().agents[0].until_answer is None


def test_a_task_that_is_done_counts_for_the_day_and_the_hands_it_ended_in() -> None:
    task = Task(id="tsk_1", status="done", created_at=at(1), completed_at=at(30), assignee_id="worker-a")
    done = bar(("in_progress", 2, 30), end=at(30), outcome="done")
    found = figures(hours=48, bars=(done,), tasks=(task,))
    assert (found.agents[0].done, found.agents[0].lead, found.tasks[0].lead) == (1, 29 * 3600, 29 * 3600)
    assert [dict(day.done) for day in found.days] == [{}, {"worker-a": 1}, {}][: len(found.days)]
    assert [day.busy.get("worker-a", 0) for day in found.days][:2] == [22 * 3600, 6 * 3600]


def test_days_begin_at_midnight_where_the_reader_is() -> None:
    tokyo = timezone(timedelta(hours=9))
    found = figures(hours=24, zone=tokyo, arrows=(arrow(sent_at=at(14.5)), arrow(sent_at=at(15.5))))
    assert [(day.day.day, day.messages) for day in found.days] == [(20, 1), (21, 1)]


def test_spans_that_overlap_are_merged_and_intersected() -> None:
    some = merged([(at(0), at(2)), (at(1), at(3)), None, (at(5), at(6))])
    assert some == [(at(0), at(3)), (at(5), at(6))]
    assert total(overlap(some, [(at(2), at(5.5))])) == 1.5 * 3600
