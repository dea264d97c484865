"""The events of a period as values, and statistics of them (docs/protocol.md, Statistics). The console draws them, the
`timeline` command prints them."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date, datetime, time, timedelta, tzinfo
from itertools import chain, groupby
from statistics import median
from typing import Any, NamedTuple, TypeVar

from multi_agent_mcp.domain.question import Question
from multi_agent_mcp.domain.task import FINAL, Task, new_value
from multi_agent_mcp.domain.times import format_time, in_zone, json_values, parse_time

BETWEEN_MACHINES = frozenset({"machine", "on_hub_at", "came_at"})
OTHERS = ""
"""The lane of senders that are not registered, and of tasks without an assignee."""


@dataclass(frozen=True, kw_only=True)
class Lane:
    """An agent; `depth` is the number of its superiors, `machine` its home in a shared session."""

    agent_id: str
    role: str = ""
    depth: int = 0
    machine: str | None = None


@dataclass(frozen=True, kw_only=True)
class Arrow:
    """A message: when it was stored, rung, submitted and read, as far as it got. Between machines also when it was on
    the hub (known on the sender's machine), and when it arrived (known on the receiver's)."""

    message_id: str
    sender_id: str
    receiver_id: str
    message_type: str
    priority: str
    subject: str
    sent_at: datetime
    on_hub_at: datetime | None = None
    came_at: datetime | None = None
    rung_at: datetime | None = None
    submitted_at: datetime | None = None
    read_at: datetime | None = None

    @property
    def arrived_at(self) -> datetime:
        """When the receiver could know of the message: at its doorbell, else its arrival from another machine, else its
        reading, else its sending."""
        return self.submitted_at or self.rung_at or self.came_at or self.on_hub_at or self.read_at or self.sent_at


@dataclass(frozen=True, kw_only=True)
class StatusPeriod:
    """A period of a task in one status; without an end it lasts."""

    status: str
    start: datetime
    end: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class Bar:
    """A task while it was assigned to one agent; without an end it still is. `outcome` is `done` or `cancelled` if the
    task ended with this agent."""

    task_id: str
    title: str
    agent_id: str
    start: datetime
    end: datetime | None = None
    spans: tuple[StatusPeriod, ...] = ()
    outcome: str | None = None


@dataclass(frozen=True, kw_only=True)
class Mark:
    """An interrupt: who caused it (`by`; None: unknown), why, when, and when its agent read it."""

    notification_id: str
    agent_id: str
    action: str
    message: str
    at: datetime
    by: str | None = None
    task_id: str | None = None
    rung_at: datetime | None = None
    submitted_at: datetime | None = None
    read_at: datetime | None = None
    reason: str | None = None

    @property
    def words(self) -> str:
        """The message with the reason, if one was given."""
        return self.message if self.reason is None else f"{self.message}: {self.reason}"


@dataclass(frozen=True, kw_only=True)
class Life:
    """An agent session, from its opening to its end; without an end it still runs. `machine` is set in a shared
    session."""

    session_id: str
    agent_id: str
    purpose: str
    start: datetime
    end: datetime | None = None
    machine: str | None = None


@dataclass(frozen=True, kw_only=True)
class Talk:
    """A conversation between two agents."""

    conversation_id: str
    initiator_id: str
    target_agent_id: str
    purpose: str
    status: str
    start: datetime
    end: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class PaneAnswer:
    """A person's answer to a host's dialog from elsewhere: the agent, the person, the time, the question, the choice,
    and whether the host was seen to take it (`answered`, else `pressed`)."""

    agent_id: str
    by: str
    at: datetime
    question: str
    choice: str
    label: str
    state: str

    @property
    def words(self) -> str:
        """The choice, then the question."""
        return f"{self.choice} {self.label} ← {self.question}"


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """The events that overlap the period from `start` to `end`. `left_out` counts the older messages and finished tasks
    of the period that are not included."""

    start: datetime
    end: datetime
    lanes: tuple[Lane, ...] = ()
    arrows: tuple[Arrow, ...] = ()
    bars: tuple[Bar, ...] = ()
    marks: tuple[Mark, ...] = ()
    lives: tuple[Life, ...] = ()
    talks: tuple[Talk, ...] = ()
    answers: tuple[PaneAnswer, ...] = ()
    left_out: int = 0

    def since(self, start: datetime) -> Timeline:
        """What of it overlaps the time from `start` on."""
        lasts = lambda item: item.end is None or item.end >= start  # noqa: E731
        return replace(
            self,
            start=start,
            arrows=tuple(arrow for arrow in self.arrows if arrow.sent_at >= start),
            bars=tuple(filter(lasts, self.bars)),
            marks=tuple(mark for mark in self.marks if mark.at >= start),
            lives=tuple(filter(lasts, self.lives)),
            talks=tuple(filter(lasts, self.talks)),
            answers=tuple(answer for answer in self.answers if answer.at >= start),
        )

    def occurrences(self) -> Counter[str]:
        """How often each agent occurs."""
        pairs = (
            *((arrow.sender_id, arrow.receiver_id) for arrow in self.arrows),
            *((bar.agent_id,) for bar in self.bars),
            *((mark.agent_id,) for mark in self.marks),
            *((answer.agent_id, answer.by) for answer in self.answers),
            *((life.agent_id,) for life in self.lives),
        )
        return Counter(chain.from_iterable(pairs))

    def teams(self) -> dict[str, list[str]]:
        """For each agent directly below the top those below it; agents without any are left out."""
        found, head = dict[str, list[str]](), None
        for lane in self.lanes:  # in tree order
            if lane.depth <= 1:
                head = lane.agent_id if lane.depth else None
            elif head is not None:
                found.setdefault(head, []).append(lane.agent_id)
        return found

    def on_lanes(self, agents: Collection[str]) -> Timeline:
        """What of it is on the lanes of these agents, or between two of them."""
        shown = set(agents)
        return replace(
            self,
            lanes=tuple(lane for lane in self.lanes if lane.agent_id in shown),
            arrows=tuple(arrow for arrow in self.arrows if {arrow.sender_id, arrow.receiver_id} <= shown),
            bars=tuple(bar for bar in self.bars if bar.agent_id in shown),
            marks=tuple(mark for mark in self.marks if mark.agent_id in shown),
            lives=tuple(life for life in self.lives if life.agent_id in shown),
            answers=tuple(answer for answer in self.answers if answer.agent_id in shown),
        )

    def as_answer(self) -> dict[str, Any]:
        """The timeline as JSON-ready values, without the unset fields of shared sessions (`BETWEEN_MACHINES`)."""
        return asdict(self, dict_factory=_values)


def _values(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return json_values([(name, value) for name, value in pairs if value is not None or name not in BETWEEN_MACHINES])


def bars_of(task: Task) -> list[Bar]:
    """The bars of a task's history: one for each assignee in turn, divided by status. A history by hand need not tell
    that the task is finished, as its status does."""
    turns = _turns(task) or [_Turn(task.created_at, task.status, task.assignee_id or OTHERS)]
    if task.final and turns[-1].status != task.status:
        turns.append(_Turn(max(task.ended_at, turns[-1].at), task.status, turns[-1].agent_id))
    ends = [turn.at for turn in turns[1:]]
    bars = []
    pairs = zip(turns, [*ends, None], strict=True)
    for agent_id, had in groupby(pairs, key=lambda pair: pair[0].agent_id):
        mine = list(had)
        (first, _), (last, end) = mine[0], mine[-1]
        final = last.status in FINAL
        lasting = [(turn, until) for turn, until in mine if turn.at != until and turn.status not in FINAL]
        bar = Bar(
            task_id=task.id,
            title=task.title,
            agent_id=agent_id,
            start=first.at,
            end=last.at if final else end,
            spans=tuple(StatusPeriod(status=turn.status, start=turn.at, end=until) for turn, until in lasting),
            outcome=last.status if final else None,
        )
        if bar.start != bar.end or bar.outcome:
            bars.append(bar)
    return bars


class _Turn(NamedTuple):
    at: datetime
    status: str
    agent_id: str


def _turns(task: Task) -> list[_Turn]:
    """The changes of status or assignee, oldest first. History lines without either, or without a time, are skipped."""
    status, assignee = "backlog", None
    turns: list[_Turn] = []
    for entry in reversed(task.history.having("status", "assignee_id")):
        status, assignee = new_value(entry, "status", status), new_value(entry, "assignee_id", assignee)
        at = parse_time(entry.get("at"))
        was = turns[-1][1:] if turns else None
        if at is not None and was != (status, assignee or OTHERS):
            turns.append(_Turn(at, str(status), str(assignee or OTHERS)))
    return sorted(turns, key=lambda turn: turn.at)


# Statistics of a period, computed from its events, by agent, task and day.

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
