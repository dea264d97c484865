"""The events of a period as values. The console draws them, the `timeline` command prints them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from itertools import chain, groupby
from typing import Any, NamedTuple

from multi_agent_mcp.domain.history import new_value
from multi_agent_mcp.domain.task import FINAL, Task
from multi_agent_mcp.domain.times import json_values, parse_time

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
class Interruption:
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
    marks: tuple[Interruption, ...] = ()
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
