"""Notifications: what an agent is to know with its next tool call (docs/protocol.md, Notifications)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from hashlib import sha256
from typing import Any, ClassVar, NamedTuple, Self

from multi_agent_mcp.domain.agent import WHOEVER, Agent, report_recipient
from multi_agent_mcp.domain.entity import EPOCH, Readable
from multi_agent_mcp.domain.history import QUESTION, Line, new_value, old_value
from multi_agent_mcp.domain.message import Delegation
from multi_agent_mcp.domain.reviews import open_reviews
from multi_agent_mcp.domain.task import (
    BROUGHT_BY,
    CLAIMABLE,
    FINAL,
    INTERRUPT,
    INTERRUPT_ACTIONS,
    INTERRUPTED,
    WITH_ASSIGNEE,
    Task,
)
from multi_agent_mcp.domain.times import parse_time
from multi_agent_mcp.errors import InvalidStatusTransition, Refusal

CHAT_NOTICE = "chat_session_notification"
TYPES = ("interrupt", "status_change", CHAT_NOTICE, "message")
ACTIONS = (
    *("blocked", "cancel", "pause", "resume"),
    *("task_assigned", "task_updated", "task_withdrawn", "task_blocked"),
    *("agent_stuck", "agent_limited", "loop_suspected", "budget_reached", "handoff_soon"),
    *("delegation", "check_chat"),
    *("question", "answered", "question_overdue", "deadlock_suspected"),
    *("check_failed", "check_passed", "check_repeats", "not_committed", "review_requested", "review_rejected"),
    *("reservation_conflict", "reservation_ended", "edit_overlap"),
    *("not_taken", "work_returned", "state_reached", "task_claimable", "circle_suspected"),
)
ASKED, ANSWER, OVERDUE, DEADLOCK = "question", "answered", "question_overdue", "deadlock_suspected"
"""The actions of the notifications about questions."""
CIRCLE = "circle_suspected"
"""The action of the notifications of a circle that leads through leases or tasks."""
PAUSING = ("pause", "resume")
TOLD_APART = frozenset({"agent_stuck", "reservation_conflict", "reservation_ended", "edit_overlap", "resume"})
"""The actions of notifications that several machines may make under one id, each in its own words: they tell what each
has seen. All others with an id of their cause say the same wherever they are made."""
BETWEEN_SESSIONS = frozenset({"delegation", "check_chat", "task_assigned", "task_updated"})
"""The actions of notifications that, if an agent caused them itself, come from one of its sessions to the other."""


@dataclass(frozen=True, kw_only=True)
class Notification(Readable):
    """A notification, one file, for the agent sessions of one agent with one purpose."""

    BODY: ClassVar[str | None] = "instruction"
    LEFT_OUT: ClassVar[frozenset[str]] = frozenset(
        {"sender_id", "reason", "question_id", "answer", "note", "choices", "settled", "head"}
    )

    id: str
    target_agent_id: str = ""
    target_purpose: str | None = None
    type: str = "message"
    action: str | None = None
    task_id: str | None = None
    conversation_id: str | None = None
    message: str = ""
    created_at: datetime = EPOCH
    read_at: datetime | None = None
    sender_id: str | None = None
    """The agent that caused it; None for the system (and in files of the first version)."""
    reason: str | None = None
    question_id: str | None = None
    answer: str | None = None
    """The answer to the question, of which `note` holds what was added to it."""
    note: str | None = None
    choices: tuple[str, ...] | None = None
    """What the answer to the question must be one of."""
    settled: bool | None = None
    """Whether it was marked read because its cause was over, and nobody was handed it."""
    head: str | None = None
    """What is to be reviewed: a commit, or a report."""
    instruction: str = ""

    def mark_read(self, at: datetime | None) -> Self:
        return replace(self, read_at=at, settled=None)

    def mark_ended(self, at: datetime) -> Self:
        return replace(self, read_at=at, settled=True)

    @property
    def was_handed_out(self) -> bool:
        """Whether its agent has read it."""
        return self.read_at is not None and not self.settled

    def meant_for(self, purpose: str) -> bool:
        """Whether it is for agent sessions of this purpose; no target purpose (or `both`) means every session."""
        return self.target_purpose in (None, "both", purpose)

    @property
    def interrupts(self) -> bool:
        return self.type == "interrupt"

    @property
    def waits_for_resumption(self) -> bool:
        """Whether it does not ring while its target is paused: what is for a task session, but an interrupt
        (docs/protocol.md, Interrupts)."""
        return self.meant_for("task") and not self.interrupts

    @property
    def rings(self) -> bool:
        """Whether it rings the agent: not if the agent caused it itself, unless it is for its other session, as is
        every interrupt (docs/protocol.md, When to ring)."""
        return self.sender_id != self.target_agent_id or self.interrupts or self.action in BETWEEN_SESSIONS


def pressing_order(notice: Notification) -> tuple[bool, datetime, str]:
    """A sort key: interrupts before the rest, then oldest first."""
    return not notice.interrupts, notice.created_at, notice.id


# Notifications that follow from a task or a delegation alone, so that every process derives the same ones
# (docs/protocol.md, Notifications).
#
# Their ids are derived from the line of the task's history that caused them, so each cause is announced once. `message`
# and `instruction`, texts of the catalogue, are left empty.

TASK_ASSIGNED, TASK_UPDATED, TASK_BLOCKED = "task_assigned", "task_updated", "task_blocked"
TASK_WITHDRAWN, TASK_CLAIMABLE = "task_withdrawn", "task_claimable"
DELEGATION, CHECK_CHAT = "delegation", "check_chat"
REVIEW_REQUESTED, REVIEW_REJECTED = "review_requested", "review_rejected"
CONTENT = frozenset({"title", "description", "priority"})
"""The fields of a task whose change its assignee must know while it works on the task."""
REASON_CHARACTERS = 1_000
REMINDERS = 2
"""How often an idle assignee is notified again of a task that it has not begun."""


class Arrival(NamedTuple):
    """A task's arrival at its assignee: the notification's id, the time, who caused it, whether its task session knows
    (mail announced it, or it did so itself), and the reason that was given."""

    notice_id: str
    at: datetime
    by: str
    known: bool
    reason: str | None = None


def derived_id(*cause: object) -> str:
    """A notification id that is the same for the same cause in every process."""
    digest = sha256("\n".join(map(str, cause)).encode(errors="backslashreplace")).hexdigest()
    return f"ntf_{digest[:12]}"


def interrupt_of(task: Task) -> Notification | None:
    """The interrupt of whoever had a task in progress when somebody else blocked or cancelled it, or None: not if it
    was taken up again since."""
    number, line = _stop_of(task) or (-1, {})
    if number < 0 or not isinstance(line.get(INTERRUPTED), str):
        return None
    return Notification(
        id=str(line[INTERRUPT]),
        target_agent_id=line[INTERRUPTED],
        target_purpose="task",
        type="interrupt",
        action=INTERRUPT_ACTIONS.get(str(new_value(line, "status")), INTERRUPT_ACTIONS["blocked"]),
        task_id=task.id,
        created_at=parse_time(line.get("at")) or task.updated_at,
        sender_id=str(line["by"]) if "by" in line else None,
        reason=_reason(line),
    )


def _stop_of(task: Task) -> tuple[int, Line] | None:
    """The number and content of the line of the history that stopped work on the task, or None. Blocking and cancelling
    it further leaves that as it is; taking it up ends it. A task of an earlier version says so in no line."""
    for number, line in task.history.at_hand():
        if INTERRUPT in line:
            return number, line
        if "status" in line and new_value(line, "status") not in (*INTERRUPT_ACTIONS, *FINAL):
            break
    known = task.latest("status")
    if task.interrupt_id is None or known is None or task.status not in INTERRUPT_ACTIONS:
        return None
    return known[0], {**known[1], INTERRUPT: task.interrupt_id, INTERRUPTED: task.assignee_id}


def still_stops(notice: Notification, task: Task) -> bool:
    """Whether an interrupt about this task, `blocked` or `cancel`, is still to be shown to an agent that has not read
    it. It is if it stops work of the agent, even if the task is over or another's by now; it is not if the agent never
    had the task in progress, or has it in progress again."""
    if not task.has_been_worked_on(notice.target_agent_id):
        return False
    present = interrupt_of(task)
    if present is not None and present.target_agent_id == notice.target_agent_id:
        return present.id == notice.id
    if task.assignee_id != notice.target_agent_id:
        return True
    is_so = INTERRUPT_ACTIONS.get(task.status) == notice.action  # written by a person, or another's own block meanwhile
    return is_so and task.status_since <= notice.created_at


def withdrawal_of(task: Task) -> Notification | None:
    """The notification of an assignee that somebody else, or its own chat session, has blocked or cancelled a task of
    its on which nobody worked; None if that did not happen. It is only for one that knows of the task
    (`owed_withdrawal`)."""
    number, line = task.latest("status") or (-1, {})
    by = str(line.get("by") or task.created_by)
    waited = task.status in INTERRUPT_ACTIONS and old_value(line, "status") is not None and INTERRUPT not in line
    own = by == task.assignee_id and not _by_chat_session(line)
    if not waited or own or task.assignee_id is None or task.interrupt_id is not None or QUESTION in line:
        return None
    return _status_change(TASK_WITHDRAWN, task, task.assignee_id, number, line, by)


def _status_change(action: str, task: Task, assignee_id: str, number: int, line: Line, by: str) -> Notification:
    """The notification of an assignee that somebody has changed its task, as this line of the history says."""
    at = parse_time(line.get("at"))
    return Notification(
        id=derived_id(action, task.id, number, at, assignee_id),
        target_agent_id=assignee_id,
        target_purpose="task",
        type="status_change",
        action=action,
        task_id=task.id,
        created_at=at or task.updated_at,
        sender_id=by,
        reason=_reason(line),
    )


def owed_withdrawal(task: Task, found: Callable[[str], Notification | None]) -> Notification | None:
    """As `withdrawal_of`, if the assignee knows of the task: it has worked on it, mail has brought it, or it was handed
    an announcement. `found` returns a notification of the assignee by its id, read or not."""
    notice = withdrawal_of(task)
    if notice is None or task.has_been_worked_on(notice.target_agent_id):
        return notice
    if any(BROUGHT_BY in line for line in task.history):
        return notice
    read = ((told := found(notice_id)) is not None and told.was_handed_out for notice_id in announcements(task))
    return notice if any(read) else None


def announcements(task: Task) -> Iterator[str]:
    """The ids of the notifications by which its assignee may have heard of the task, the last first."""
    for number, line in task.history.at_hand():
        if {"status", "assignee_id", "approval_status"} & line.keys():
            yield _announcement_id(task, number, line)


def _announcement_id(task: Task, number: int, line: Line) -> str:
    return derived_id(TASK_ASSIGNED, task.id, number, parse_time(line.get("at")), task.assignee_id)


def arrival_of(task: Task) -> Arrival | None:
    """The arrival of a task that waits for its assignee; None for one that does not wait, or that the assignee's task
    session has started itself. What its chat session starts counts as arriving then, even if it was announced
    before."""
    if task.assignee_id is None or task.status not in WITH_ASSIGNEE or task.reported_at is not None:
        return None
    index, entry = task.latest("status", "assignee_id", "approval_status") or (-1, {})
    by = str(entry.get("by") or task.created_by)
    own = by == task.assignee_id and not _by_chat_session(entry)
    if task.status == "in_progress" and (own or old_value(entry, "status") == "review"):
        return None
    if task.status == "in_progress" and by != task.assignee_id and old_value(entry, "status") == "todo":
        return arrival_of(replace(task, status="todo", history=task.history.before(index)))
    at = parse_time(entry.get("at")) or task.created_at
    notice_id = _announcement_id(task, index, entry)
    comes_back = QUESTION in entry and task.status == "in_progress"  # its answer is told instead
    return Arrival(notice_id, at, by, own or comes_back or BROUGHT_BY in entry, None if own else _reason(entry))


def assignment_of(task: Task, dependencies: Mapping[str, Task | None]) -> Notification | None:
    """The notification of an assignee about a task that somebody else, or its own chat session, gave it, or whose
    dependencies are done. None while the task cannot be started, or if its task session knows."""
    arrival = arrival_of(task)
    if arrival is None or not _is_startable(task, dependencies):
        return None
    at, by, known = arrival.at, arrival.by, arrival.known
    for finished in dependencies.values():
        if task.status != "in_progress" and finished is not None and (finished.completed_at or at) >= at:
            at, by = finished.completed_at or at, _giver(arrival, finished, task)
            known = by == task.assignee_id
    return None if known else _assignment(arrival, task, at, by)


def _assignment(arrival: Arrival, task: Task, at: datetime, by: str | None) -> Notification:
    return Notification(
        id=arrival.notice_id,
        target_agent_id=str(task.assignee_id),
        target_purpose="task",
        type="status_change",
        action=TASK_ASSIGNED,
        task_id=task.id,
        created_at=at,
        sender_id=by,
        reason=arrival.reason,
    )


def announcement_of(task: Task) -> Notification | None:
    """What tells an assignee of a task that waits for it, or was given back by a reviewer, whether it knows or not;
    None for one that does not wait."""
    return arrived(task) or rejection_of(task)


def arrived(task: Task) -> Notification | None:
    """As `announcement_of`, for a task that waits."""
    if (arrival := arrival_of(task)) is None:
        return None
    return _assignment(arrival, task, arrival.at, None if arrival.by == task.assignee_id else arrival.by)


def reminders_of(told: Notification, at: datetime) -> list[Notification]:
    """The notifications, in this order, by which an assignee is notified again at `at` of a task that it has not
    begun."""
    return [replace(told, id=reminder_id, created_at=at) for reminder_id in _reminder_ids(told.id)]


def _reminder_ids(notice_id: str) -> list[str]:
    return [derived_id(notice_id, "again", number) for number in range(REMINDERS)]


def tells(notice_id: str, present: str) -> bool:
    """Whether a notification is the one with the id `present`, or a reminder of it."""
    return notice_id == present or notice_id in _reminder_ids(present)


def update_of(task: Task) -> Notification | None:
    """The notification of an assignee that the content of the task it works on was changed, or None. Of several changes
    the last one counts; once the end is reported, the last one before that: the assignee may have reported before it
    knew of it, and a report that is not followed gives the task back."""
    if task.assignee_id is None or task.status != "in_progress":
        return None
    begun, _ = task.latest("status", "assignee_id") or (-1, {})
    lines = [(number, entry) for number, entry in task.history.at_hand() if number > begun]
    ended = next((number for number, entry in lines if "reported" in entry), -1) if task.reported_at else -1
    number, entry = next((line for line in lines if _edits(line[1]) and (ended < 0 or line[0] < ended)), (-1, {}))
    if number < 0 or (entry.get("by") == task.assignee_id and not _by_chat_session(entry)):
        return None
    return Notification(
        id=derived_id(TASK_UPDATED, task.id, number, parse_time(entry.get("at")), task.assignee_id),
        target_agent_id=task.assignee_id,
        target_purpose="task",
        type="status_change",
        action=TASK_UPDATED,
        task_id=task.id,
        created_at=parse_time(entry.get("at")) or task.updated_at,
        sender_id=str(entry.get("by") or task.created_by),
    )


def blocks_of(task: Task, told: Iterable[str]) -> list[Notification]:
    """The notifications of these agents that an assignee has blocked its own task; none if it did so by a report, which
    is mail, or parked it with a question, which is told instead."""
    found = task.latest("status")
    if task.status != "blocked" or task.assignee_id is None or found is None:
        return []
    index, entry = found
    if entry.get("by") != task.assignee_id or "message_id" in entry or QUESTION in entry:
        return []
    return [
        Notification(
            id=derived_id(TASK_BLOCKED, task.id, index, parse_time(entry.get("at")), agent_id),
            target_agent_id=agent_id,
            target_purpose="task",
            type="status_change",
            action=TASK_BLOCKED,
            task_id=task.id,
            created_at=parse_time(entry.get("at")) or task.updated_at,
            sender_id=task.assignee_id,
            reason=_reason(entry),
        )
        for agent_id in told
    ]


def review_requests_of(task: Task, reviewers: Iterable[str]) -> list[Notification]:
    """The notifications of these agents that a task waits for their review."""
    found = task.latest("status")
    if task.status != "review" or found is None:
        return []
    index, entry = found
    said = task.delivery or {}
    words = "\n".join(str(said[key]) for key in ("summary", "next_steps") if said.get(key))
    return [
        Notification(
            id=derived_id(REVIEW_REQUESTED, task.id, index, parse_time(entry.get("at")), agent_id),
            target_agent_id=agent_id,
            type="status_change",
            action=REVIEW_REQUESTED,
            task_id=task.id,
            created_at=task.status_since,
            sender_id=task.assignee_id,
            reason=_reason({"reason": words}),
            head=None if said.get("head") is None else str(said["head"]),
        )
        for agent_id in reviewers
    ]


def rejection_of(task: Task) -> Notification | None:
    """The notification of an assignee that a reviewer has given its task back, if it is in its hands since, or None."""
    _, entry = task.latest("status", "assignee_id") or (-1, {})
    return last_rejection(task) if task.status == "in_progress" and old_value(entry, "status") == "review" else None


def last_rejection(task: Task) -> Notification | None:
    """The notification of an assignee that a reviewer has given its task back, also while it is in review again, as the
    assignee may have reported before it knew why; None once the task is over or another's."""
    if task.status not in ("in_progress", "review") or task.assignee_id is None:
        return None
    for index, entry in task.history.at_hand():
        if "assignee_id" in entry:
            break
        by = str(entry.get("by") or task.created_by)
        is_back = old_value(entry, "status") == "review" and new_value(entry, "status") == "in_progress"
        if is_back and by != task.assignee_id:
            return _status_change(REVIEW_REJECTED, task, task.assignee_id, index, entry, by)
    return None


def words_with(task: Task) -> dict[str, dict[str, str]]:
    """Who last moved the task to its assignee, and the reason: `rejected` from a review, else `moved`; empty if none
    was given."""
    for _, line in task.history.at_hand():
        if "assignee_id" in line or QUESTION in line:
            break
        if "status" in line and line.get("by") != task.assignee_id:
            key, reason = "rejected" if old_value(line, "status") == "review" else "moved", _reason(line)
            is_given = reason is not None and new_value(line, "status") in WITH_ASSIGNEE
            return {key: {"by": str(line.get("by")), "reason": str(reason)}} if is_given else {}
    return {}


def delegation_of(delegation: Delegation) -> Notification | None:
    """The notification of an agent's chat sessions about a delegation that none of them has taken, or None; also while
    it is not known to whom they are to talk."""
    waits = delegation.target_agent_id.startswith(WHOEVER)
    if waits or delegation.status != "pending" or delegation.taken_by is not None:
        return None
    return Notification(
        id=derived_id(DELEGATION, delegation.id),
        target_agent_id=delegation.agent_id,
        target_purpose="chat",
        type="status_change",
        action=DELEGATION,
        task_id=delegation.task_id,
        created_at=delegation.created_at,
        sender_id=delegation.agent_id,
    )


def was_reopened(task: Task, since: datetime) -> bool:
    """Whether the task was taken up again after a block since then."""
    reopenings = (
        entry
        for entry in task.history.having("status")
        if old_value(entry, "status") == "blocked" and new_value(entry, "status") not in FINAL
    )
    return any((parse_time(entry.get("at")) or since) > since for entry in reopenings)


def _by_chat_session(entry: Line) -> bool:
    """Whether an agent's chat session made this change: for its task session that is somebody else's doing."""
    return entry.get("purpose") == "chat"


def _edits(entry: Line) -> bool:
    fields = entry.get("edited")
    return isinstance(fields, (list, tuple)) and not CONTENT.isdisjoint(map(str, fields))


def _is_startable(task: Task, dependencies: Mapping[str, Task | None]) -> bool:
    try:
        task.require_startable(dependencies)
    except InvalidStatusTransition:
        return False
    return True


def _giver(arrival: Arrival, finished: Task, waiting: Task) -> str:
    """The agent in whose name a task is announced that waits no longer: the one that gave it, whoever finished the
    dependency. An agent that gave it to itself hears of it from the one that finished."""
    given = (arrival.by, waiting.created_by, finished.status_changed_by)
    return next((by for by in given if by not in (None, waiting.assignee_id)), waiting.created_by) or ""


def _reason(entry: Mapping[str, Any]) -> str | None:
    """The reason in a history line, cut to `REASON_CHARACTERS` with its length appended; None if it is blank."""
    reason = str(entry.get("reason") or "")
    if len(reason) > REASON_CHARACTERS:
        return f"{reason[:REASON_CHARACTERS]}… ({len(reason)})"
    return reason if reason.strip() else None


# What follows from entities: the notifications that one gives rise to while it is as it is, and whether one that was
# written follows still. A kind of entities names its rules in its `features.Kind`.
#
# Everything here is computed from entities and the team alone. So every process computes the same, under the same ids:
# whoever looks next writes what a killed process did not, and marks read what follows no more.

Agents = Mapping[str, Agent]
"""The agents of a team by id, removed ones included."""


class Following(NamedTuple):
    """Notifications of one kind. `of` returns those that follow from an entity (None counts as none); without it some
    service writes them, as more than the entity decides. `stands` says whether a written one follows still: by default
    if it is one of them, or a reminder of one. `from_all`: it follows from all open entities of the kind together.
    `feature`: the feature that has to be on."""

    of: Callable[[Any, Agents], Iterable[Notification | None]] | None = None
    stands: Callable[[Notification, Any, Agents], bool] | None = None
    from_all: bool = False
    feature: str = ""

    def is_cause(self, notice: Notification, entity: Any, agents: Agents) -> bool:
        """Whether the notification follows from this entity now."""
        if self.stands is not None:
            return self.stands(notice, entity, agents)
        present = self.of(entity, agents) if self.of is not None else ()
        return any(found is not None and tells(notice.id, found.id) for found in present)


Rules = Mapping[str, Following]
"""By the action of notifications. One whose action is in no rules follows from nothing that could change: it
stays until it is read."""


def following(rules: Rules, entity: Any, agents: Agents) -> Iterator[Notification]:
    """Everything that follows from an entity, for agents that are in the team: a hand-written file may name anything as
    an agent."""
    for rule in dict.fromkeys(rules.values()):
        for notice in rule.of(entity, agents) if rule.of is not None else ():
            if notice is not None and (target := agents.get(notice.target_agent_id)) and not target.removed:
                yield notice


def told_of_block(task: Task, agents: Agents) -> set[str]:
    """The agents to notify when an assignee blocks its task: its reports' recipient and the task's creator."""
    told = {task.created_by}
    with suppress(Refusal):  # it has no superior, or the hierarchy is broken
        told.add(report_recipient(task.assignee_id or "", agents).id)
    return told - {task.assignee_id}


def _blocks(task: Task, agents: Agents) -> Iterable[Notification]:
    return blocks_of(task, told_of_block(task, agents)) if task.status == "blocked" else ()


def _is_block(notice: Notification, task: Task, _: Agents) -> bool:
    """Whoever it was that had to be told, if the hierarchy has changed since."""
    return any(notice.id == found.id for found in blocks_of(task, [notice.target_agent_id]))


def _reviews(task: Task, agents: Agents) -> Iterable[Notification]:
    if task.status != "review":
        return ()
    return review_requests_of(task, {who for who in open_reviews(task, agents).values() if who is not None})


def _stops(notice: Notification, task: Task, _: Agents) -> bool:
    return not notice.interrupts or still_stops(notice, task)


_STOPPED = Following(lambda task, _: [interrupt_of(task)], _stops)

OF_TASK: Rules = {
    **dict.fromkeys(INTERRUPT_ACTIONS.values(), _STOPPED),
    TASK_ASSIGNED: Following(lambda task, _: [arrived(task)]),
    TASK_UPDATED: Following(lambda task, _: [update_of(task)]),
    REVIEW_REJECTED: Following(lambda task, _: [last_rejection(task)]),
    TASK_WITHDRAWN: Following(lambda task, _: [withdrawal_of(task)]),
    TASK_BLOCKED: Following(_blocks, _is_block),
    TASK_CLAIMABLE: Following(
        stands=lambda _, task, __: task.assignee_id is None and task.status in CLAIMABLE, feature="pool"
    ),
    REVIEW_REQUESTED: Following(_reviews),
}


OF_DELEGATION: Rules = {DELEGATION: Following(lambda delegation, _: [delegation_of(delegation)])}


def _is_last(notice: Notification, others: Iterable[Notification], _: Agents) -> bool:
    """Whether no later resumption ended this pause, nor a later pause this resumption."""
    opposites = (other for other in others if other.action in PAUSING and other.action != notice.action)
    return not any(other.created_at > notice.created_at for other in opposites)


OF_NOTIFICATION: Rules = dict.fromkeys(PAUSING, Following(stands=_is_last, from_all=True))
