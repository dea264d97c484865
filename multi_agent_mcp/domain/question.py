"""Questions between agents and people, and their transitions (docs/protocol.md, Questions).

A transition returns a new question with a line more in its history and does no I/O; one of a question that is closed
raises `QuestionClosed`. What follows from a question (the notifications, the asker's task that waits for it) follows
from its file alone, so that every process derives the same."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, ClassVar, Literal, Protocol, TypeVar

from multi_agent_mcp.domain.entity import EPOCH, ITEM, Identified
from multi_agent_mcp.domain.history import QUESTION, Change, old_value
from multi_agent_mcp.domain.notification import (
    ANSWER,
    ASKED,
    DEADLOCK,
    OVERDUE,
    Agents,
    Following,
    Notification,
    Rules,
    derived_id,
)
from multi_agent_mcp.domain.task import Task, history_entry
from multi_agent_mcp.domain.text import quoted
from multi_agent_mcp.domain.times import format_time
from multi_agent_mcp.errors import InvalidArguments, QuestionClosed

OPEN, ANSWERED, DEFAULTED, WITHDRAWN = "open", "answered", "defaulted", "withdrawn"
CLOSED = frozenset({ANSWERED, DEFAULTED, WITHDRAWN})
QUESTION_CHARACTERS = 4_000
"""The longest question, and the longest answer."""
CHOICES_MAX = 9
CHOICE_CHARACTERS = 200
NOTE_CHARACTERS = 1_000
MINUTES_MAX = 366 * 24 * 60

Why = Literal["task_over", "asker_removed", "nobody_left"]
"""Why a question was withdrawn although its asker did not do so: its task ended or went to another agent; its asker was
removed; or its addressee was, and nobody above is left who could answer."""


@dataclass(frozen=True, kw_only=True)
class Question(Identified):
    BODY: ClassVar[str | None] = "question"

    id: str
    asker_id: str = ""
    to_id: str = ""
    task_id: str | None = None
    park: bool = False
    choices: tuple[str, ...] = ()
    default: str | None = None
    deadline: datetime | None = None
    status: str = OPEN
    answer: str | None = None
    answered_by: str | None = None
    answered_at: datetime | None = None
    created_at: datetime = EPOCH
    history: tuple[Mapping[str, Any], ...] = field(default=(), metadata={ITEM: history_entry})
    question: str = ""

    @property
    def closed(self) -> bool:
        return self.status in CLOSED

    @property
    def note(self) -> str | None:
        """The remark of whoever closed the question, or None."""
        found = self._last("note")
        return None if found is None else str(found)

    @property
    def withdrawn_as(self) -> str | None:
        """See `Why`; None for a question that was not withdrawn, or that its asker withdrew."""
        found = self._last("why") if self.status == WITHDRAWN else None
        return None if found is None else str(found)

    def is_due(self, now: datetime) -> bool:
        """Whether the question is open and its deadline has passed."""
        return not self.closed and self.deadline is not None and self.deadline <= now

    @property
    def patience(self) -> timedelta | None:
        """The time to answer that its asker has given."""
        return None if self.deadline is None else self.deadline - self.created_at

    def repeats(self, other: Question) -> bool:
        """Whether this question asks what the other one asks, of the same agent, about the same task and with the same
        time to answer."""
        about = ("asker_id", "to_id", "task_id", "choices", "default", "question", "patience")
        return all(getattr(self, name) == getattr(other, name) for name in about)

    def require_open(self) -> None:
        """Raises `QuestionClosed` for a closed question."""
        if self.closed:
            if self.answer is None:
                raise QuestionClosed("question_withdrawn", question_id=self.id, status=self.status)
            raise QuestionClosed(question_id=self.id, status=self.status, answer=quoted(self.answer))

    def require_choice(self, answer: str) -> None:
        """Raises `InvalidArguments` for an answer that is none of the choices, if there are any."""
        if self.choices and answer not in self.choices:
            raise InvalidArguments("no_such_answer", allowed=" / ".join(self.choices))

    def answered(self, by: str, at: datetime, answer: str, note: str | None) -> Question:
        """The question with its answer. Raises `QuestionClosed` and `InvalidArguments`."""
        self.require_open()
        self.require_choice(answer)
        return replace(self._closed(ANSWERED, by, at, note=note), answer=answer)

    def defaulted(self) -> Question:
        """The question whose default was taken, at its deadline, whenever that is noticed."""
        return replace(self._closed(DEFAULTED, None, self.deadline or self.created_at), answer=self.default)

    def withdrawn(self, by: str | None, at: datetime, *, note: str | None = None, why: Why | None = None) -> Question:
        """The question taken back by its asker, or by nobody, for the reason `why`. Raises `QuestionClosed`."""
        self.require_open()
        return self._closed(WITHDRAWN, by, at, note=note, why=why)

    def readdressed(self, to_id: str, at: datetime) -> Question:
        """The open question for another agent, as its addressee was removed."""
        line = {"at": format_time(at), "to_id": [self.to_id, to_id]}
        return replace(self, to_id=to_id, history=(*self.history, line))

    def _closed(self, status: str, by: str | None, at: datetime, **facts: str | None) -> Question:
        told = {"by": by, "status": [self.status, status], **facts}
        line = {"at": format_time(at), **{key: value for key, value in told.items() if value is not None}}
        return replace(self, status=status, answered_by=by, answered_at=at, history=(*self.history, line))

    def _last(self, key: str) -> Any:
        return next((line[key] for line in reversed(self.history) if line.get(key) is not None), None)


def asking_order(question: Question) -> tuple[bool, datetime, datetime, str]:
    """A sort key: those with a deadline before the others, the earliest first, then the oldest first."""
    due = question.deadline
    return due is None, due or question.created_at, question.created_at, question.id


def owing_agents(questions: Sequence[Question]) -> frozenset[str]:
    """The agents that can answer one of these open questions now: an agent that has asked something itself since it was
    asked may need that answer first."""
    asked_at: dict[str, datetime] = {}
    for question in questions:
        asked_at[question.asker_id] = max(question.created_at, asked_at.get(question.asker_id, EPOCH))
    return frozenset(found.to_id for found in questions if asked_at.get(found.to_id, EPOCH) < found.created_at)


# The asker's task, parked while the question is open.


def parked(task: Task, question: Question, reason: str) -> Task:
    """The task blocked until the question is closed; with only a line in its history if it is not in progress in the
    asker's hands any more. The same task the second time, so that it is parked once."""
    if task.history.naming(QUESTION, question.id):
        return task
    change = Change(by=question.asker_id, at=question.created_at, reason=reason, question_id=question.id)
    if task.status != "in_progress" or task.assignee_id != question.asker_id:
        return task.recorded(replace(change, reason=None))
    return task.move_to("blocked", change)


def parked_by(task: Task) -> str | None:
    """The id of the question that the task waits for, if nobody has moved it since it was parked; else None."""
    _, line = task.latest("status") or (-1, {})
    found = line.get(QUESTION) if task.status == "blocked" else None
    return None if found is None else str(found)


def is_parked_by(task: Task, question: Question) -> bool:
    """Whether the task waits for this question."""
    return parked_by(task) == question.id


def unparked(task: Task, question: Question) -> Task:
    """The task with the status it had before it was parked, or in `todo` if it went to another agent since; the same
    task if it does not wait for this question."""
    if not is_parked_by(task, question):
        return task
    at = question.answered_at or question.created_at
    if task.assignee_id == question.asker_id:
        _, line = task.latest("status") or (-1, {})
        change = Change(by=question.answered_by or question.asker_id, at=at, question_id=question.id)
        return task.move_to(str(old_value(line, "status") or "in_progress"), change)
    _, given = task.latest("assignee_id") or (-1, {})
    return task.move_to("todo", Change(by=str(given.get("by") or task.created_by), at=at, question_id=question.id))


def is_over_for(task: Task, question: Question) -> bool:
    """Whether nobody needs the answer any more: the task ended or is another agent's."""
    return task.final or task.assignee_id != question.asker_id


# The notifications about a question. `message` and `instruction`, texts of the catalogue, are left empty.


def asked_notice(question: Question) -> Notification:
    """The notification of an open question's addressee."""
    return _notice(question, ASKED, question.to_id, question.created_at, question.asker_id)


def answered_notice(question: Question) -> Notification | None:
    """The notification of a closed question's asker; None if it took the question back itself, or has another
    notification of what happened to its task."""
    if not question.closed or (question.status == WITHDRAWN and question.withdrawn_as != "nobody_left"):
        return None
    at = question.answered_at or question.created_at
    notice = _notice(question, ANSWER, question.asker_id, at, question.answered_by)
    return replace(notice, answer=question.answer, note=question.note)


def overdue_notice(question: Question, told: str) -> Notification:
    """The notification that an open question's deadline has passed, of the agent that can do something about it."""
    return _notice(question, OVERDUE, told, question.deadline or question.created_at, None)


def deadlock_notice(cycle: Iterable[Question], told: str) -> Notification:
    """The notification of one agent about questions whose askers, all parked, wait for each other."""
    questions = sorted(cycle, key=lambda question: question.id)
    own = next((question for question in questions if question.asker_id == told), questions[0])
    at = max(question.created_at for question in questions)
    notice = _notice(own, DEADLOCK, told, at, None)
    return replace(notice, id=derived_id(DEADLOCK, told, *(question.id for question in questions)))


def _notice(question: Question, action: str, told: str, at: datetime, by: str | None) -> Notification:
    return Notification(
        id=derived_id(action, question.id, told),
        target_agent_id=told,
        type="status_change",
        action=action,
        task_id=question.task_id,
        created_at=at,
        sender_id=by,
        question_id=question.id,
    )


class Waiting(Protocol):
    """One agent waits for another one: it has parked its task until that one answers a question."""

    @property
    def id(self) -> str: ...

    @property
    def asker_id(self) -> str: ...

    @property
    def to_id(self) -> str: ...


W = TypeVar("W", bound=Waiting)


def cycles(waiting: Iterable[W]) -> list[tuple[W, ...]]:
    """The circles of agents that wait for each other, each once."""
    by_asker: dict[str, list[W]] = {}
    for question in waiting:
        by_asker.setdefault(question.asker_id, []).append(question)
    found: dict[frozenset[str], tuple[W, ...]] = {}
    for first in (question for questions in by_asker.values() for question in questions):
        circle = _circle(first, by_asker)
        found.setdefault(frozenset(question.id for question in circle), circle)
    return [circle for circle in found.values() if circle]


def _circle(first: W, by_asker: Mapping[str, list[W]]) -> tuple[W, ...]:
    """A shortest way from the one awaited back to the one that waits, this wait itself first; empty if there is
    none."""
    ways: list[tuple[W, ...]] = [(first,)]
    seen = {first.to_id}
    while ways:
        way = ways.pop(0)
        if way[-1].to_id == first.asker_id:
            return way
        onward = [question for question in by_asker.get(way[-1].to_id, ()) if question.to_id not in seen]
        seen |= {question.to_id for question in onward}
        ways += [(*way, question) for question in onward]
    return ()


def _is_asked(notice: Notification, question: Question, _: Agents) -> bool:
    return not question.closed and notice.target_agent_id == question.to_id


def _is_overdue(_notice: Notification, question: Question, _: Agents) -> bool:
    return not question.closed


def _is_circle(notice: Notification, questions: Iterable[Question], _: Agents) -> bool:
    circles = cycles(question for question in questions if question.park and not question.closed)
    return any(deadlock_notice(circle, notice.target_agent_id).id == notice.id for circle in circles)


OF_QUESTION: Rules = {
    ASKED: Following(stands=_is_asked),
    OVERDUE: Following(stands=_is_overdue),
    DEADLOCK: Following(stands=_is_circle, from_all=True),
}
"""They are written by `services.questions`, which also parks tasks and lets deadlines pass."""
