"""Statistics of a period, computed from its events, by agent, task and day (docs/protocol.md, Statistics)."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, tzinfo
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from multi_agent_mcp.domain.times import format_time, in_zone

if TYPE_CHECKING:
    from multi_agent_mcp.domain.question import Question
    from multi_agent_mcp.domain.task import Task
    from multi_agent_mcp.timeline.events import Arrow, Bar, Life, Timeline

Interval = tuple[datetime, datetime]


@dataclass(frozen=True, kw_only=True)
class AgentFigures:
    """The statistics of an agent in the period; durations are in seconds. `present` is the time with a running server,
    `busy` with a task in progress, `waiting` present without one, `blocked` the sum of its tasks' blocked times.
    `until_read` is the median time from doorbell to reading, `until_answer` from a question to its answer by whomever
    it was asked, `lead` from a task's creation to its end; None if there is nothing to measure."""

    agent_id: str
    role: str
    tool_calls: int
    sent: int
    received: int
    done: int
    present: float
    busy: float
    waiting: float
    blocked: float
    until_read: float | None
    until_answer: float | None
    lead: float | None


@dataclass(frozen=True, kw_only=True)
class TaskFigures:
    """The statistics of a task, in seconds. `lead` is the time from its creation to its end (None: not ended);
    `working`, `blocked` and `review` are the times in progress, blocked and in review within the period."""

    task_id: str
    title: str
    assignee_id: str | None
    status: str
    lead: float | None
    working: float
    blocked: float
    review: float


@dataclass(frozen=True, kw_only=True)
class DayFigures:
    """The statistics of a day: by agent, seconds `busy` and tasks `done`; and the number of messages sent."""

    day: date
    busy: Mapping[str, float]
    done: Mapping[str, int]
    messages: int


@dataclass(frozen=True, kw_only=True)
class Statistics:
    """The statistics of a period; `left_out` counts its older events that were not examined."""

    start: datetime
    end: datetime
    agents: tuple[AgentFigures, ...]
    tasks: tuple[TaskFigures, ...]
    days: tuple[DayFigures, ...]
    left_out: int

    def as_answer(self) -> dict[str, Any]:
        """The statistics as JSON-ready values."""
        return {
            "start": format_time(self.start),
            "end": format_time(self.end),
            "agents": [{**vars(figures)} for figures in self.agents],  # `asdict` copies each value
            "tasks": [{**vars(figures)} for figures in self.tasks],
            "days": [{**vars(figures), "day": figures.day.isoformat()} for figures in self.days],
            "left_out": self.left_out,
        }


T = TypeVar("T")


def compute(
    timeline: Timeline, tasks: Iterable[Task], questions: Iterable[Question], calls: Mapping[str, int], zone: tzinfo
) -> Statistics:
    """Computes the statistics of a timeline. `tasks` are those of its bars, `questions` those answered in its period,
    `calls` the numbers of tool calls by agent; days begin at midnight in `zone`."""
    known = {task.id: task for task in tasks}
    period = timeline.start, timeline.end
    of_task, of_agent = _by("task_id", timeline.bars), _by("agent_id", timeline.bars)
    sent, received = _by("sender_id", timeline.arrows), _by("receiver_id", timeline.arrows)
    lives, asked = _by("agent_id", timeline.lives), _by("to_id", questions)

    def agent(agent_id: str, role: str) -> AgentFigures:
        own = _Own(of_agent[agent_id], sent[agent_id], received[agent_id], lives[agent_id], asked[agent_id])
        return _agent(agent_id, role, own, period, known, calls.get(agent_id, 0))

    return Statistics(
        start=timeline.start,
        end=timeline.end,
        agents=tuple(agent(lane.agent_id, lane.role) for lane in timeline.lanes if lane.agent_id),
        tasks=tuple(_task(task, of_task[task.id], period) for task in known.values()),
        days=_by_day(timeline, of_agent, zone),
        left_out=timeline.left_out,
    )


class _Own(NamedTuple):
    """What a timeline holds of one agent; `answered` are the questions to it."""

    bars: Sequence[Bar]
    sent: Sequence[Arrow]
    received: Sequence[Arrow]
    lives: Sequence[Life]
    answered: Sequence[Question]


def _by(name: str, items: Iterable[T]) -> Mapping[str, list[T]]:
    """Returns the items by the value of this attribute; none for an unknown value."""
    found: defaultdict[str, list[T]] = defaultdict(list)
    for item in items:
        found[getattr(item, name)].append(item)
    return found


def _agent(
    agent_id: str, role: str, own: _Own, period: Interval, tasks: Mapping[str, Task], calls: int
) -> AgentFigures:
    present = merged(cut((life.start, life.end), period) for life in own.lives)
    busy = merged(_spans(own.bars, "in_progress", period))
    done = _done(own.bars, period)
    return AgentFigures(
        agent_id=agent_id,
        role=role,
        tool_calls=calls,
        sent=len(own.sent),
        received=len(own.received),
        done=len(done),
        present=total(present),
        busy=total(busy),
        waiting=total(present) - total(overlap(present, busy)),
        blocked=total(_spans(own.bars, "blocked", period)),
        until_read=_median(map(_until_read, own.received)),
        until_answer=_median(map(_until_answer, own.answered)),
        lead=_median(_lead(tasks[bar.task_id]) for bar in done),
    )


def _task(task: Task, mine: Sequence[Bar], period: Interval) -> TaskFigures:
    return TaskFigures(
        task_id=task.id,
        title=task.title,
        assignee_id=task.assignee_id,
        status=task.status,
        lead=_lead(task),
        working=total(_spans(mine, "in_progress", period)),
        blocked=total(_spans(mine, "blocked", period)),
        review=total(_spans(mine, "review", period)),
    )


def _by_day(timeline: Timeline, bars: Mapping[str, Sequence[Bar]], zone: tzinfo) -> tuple[DayFigures, ...]:
    period = timeline.start, timeline.end
    of = {lane.agent_id: bars[lane.agent_id] for lane in timeline.lanes if lane.agent_id}
    busy_of = {agent_id: merged(_spans(bars, "in_progress", period)) for agent_id, bars in of.items()}
    sent = sorted(arrow.sent_at for arrow in timeline.arrows)

    def figures(day: date, begin: datetime, end: datetime) -> DayFigures:
        busy = {agent_id: total(overlap([(begin, end)], spans)) for agent_id, spans in busy_of.items()}
        done = {agent_id: len(_done(bars, (begin, end))) for agent_id, bars in of.items()}
        return DayFigures(
            day=day,
            busy={agent_id: seconds for agent_id, seconds in busy.items() if seconds},
            done={agent_id: count for agent_id, count in done.items() if count},
            messages=bisect_left(sent, end) - bisect_left(sent, begin),
        )

    return tuple(figures(day, *part) for day, part in _days(*period, zone))


def _days(start: datetime, end: datetime, zone: tzinfo) -> Iterable[tuple[date, Interval]]:
    """The days that overlap the period, each with its part within the period."""
    day = in_zone(start, zone).date()
    while (midnight := datetime.combine(day, time(), zone)) <= end:
        following = datetime.combine(day + timedelta(days=1), time(), zone)
        yield day, (max(midnight, start), min(following, end))
        day += timedelta(days=1)


def _spans(bars: Iterable[Bar], status: str, period: Interval) -> list[Interval]:
    """The intervals, within the period, in which the bars' tasks had this status."""
    spans = (cut((span.start, span.end), period) for bar in bars for span in bar.spans if span.status == status)
    return [span for span in spans if span is not None]


def _done(bars: Iterable[Bar], period: Interval) -> list[Bar]:
    """The bars whose task was finished in the period by the bar's agent."""
    return [bar for bar in bars if bar.outcome == "done" and bar.end is not None and period[0] <= bar.end <= period[1]]


def _lead(task: Task) -> float | None:
    return max((task.ended_at - task.created_at).total_seconds(), 0.0) if task.final else None


def _until_read(arrow: Arrow) -> float | None:
    rung_at = arrow.submitted_at or arrow.rung_at
    return None if rung_at is None or arrow.read_at is None else (arrow.read_at - rung_at).total_seconds()


def _until_answer(question: Question) -> float | None:
    at = question.answered_at
    return None if at is None else (at - question.created_at).total_seconds()


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None and value >= 0]
    return median(known) if known else None


def cut(span: tuple[datetime, datetime | None], period: Interval) -> Interval | None:
    """The part of a span within the period, or None; a span without an end continues."""
    start, end = max(span[0], period[0]), min(span[1] or period[1], period[1])
    return (start, end) if start < end else None


def merged(spans: Iterable[Interval | None]) -> list[Interval]:
    """The spans in order, with overlapping ones merged."""
    found: list[Interval] = []
    for start, end in sorted(span for span in spans if span is not None):
        if found and start <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((start, end))
    return found


def overlap(some: Iterable[Interval], others: Iterable[Interval]) -> list[Interval]:
    """The intersection of two lists of merged spans."""
    pairs = (cut(one, other) for one in some for other in others)
    return [span for span in pairs if span is not None]


def total(spans: Iterable[Interval]) -> float:
    """The sum of the spans' lengths, in seconds."""
    return sum((end - start).total_seconds() for start, end in spans)
