"""Notifications that follow from a task or a delegation alone: every process that derives one derives the same
(docs/protocol.md, Notifications).

Their ids come from the line of the task's history that caused them, so each cause is told once. They are returned
without words: `message` and `instruction` are the catalogue's business.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from hashlib import sha256
from typing import Any

from multi_agent_mcp.domain.conversation import Delegation
from multi_agent_mcp.domain.notification import Notification
from multi_agent_mcp.domain.task import BROUGHT_BY, FINAL, INTERRUPT_ACTIONS, Task
from multi_agent_mcp.domain.task_history import new_value, old_value
from multi_agent_mcp.domain.times import parse_time
from multi_agent_mcp.errors import InvalidStatusTransition

TASK_ASSIGNED, TASK_BLOCKED, DELEGATION = "task_assigned", "task_blocked", "delegation"
REASON_CHARACTERS = 1_000


@dataclass(frozen=True)
class Arrival:
    """How a task came to its assignee: the notification's id, when, who did it, and whether mail brought it."""

    notice_id: str
    at: datetime
    by: str
    mailed: bool


def derived_id(*cause: object) -> str:
    """The same id for the same cause, in every process."""
    digest = sha256("\n".join(map(str, cause)).encode(errors="backslashreplace")).hexdigest()
    return f"ntf_{digest[:12]}"


def interrupt_of(task: Task) -> Notification | None:
    """The interrupt that belongs to a task that somebody else has blocked or cancelled."""
    if task.interrupt_id is None or task.assignee_id is None or task.status not in INTERRUPT_ACTIONS:
        return None
    _, entry = task.latest("status") or (-1, {})
    return Notification(
        id=task.interrupt_id,
        target_agent_id=task.assignee_id,
        target_purpose="task",
        type="interrupt",
        action=INTERRUPT_ACTIONS[task.status],
        task_id=task.id,
        created_at=task.status_changed_at or task.updated_at,
        sender_id=task.status_changed_by,
        reason=_reason(entry),
    )


def arrival_of(task: Task) -> Arrival | None:
    """How a task that waits to be worked on came to its assignee; None for one that does not wait, or that the assignee
    has begun itself."""
    if task.assignee_id is None or not (task.waits_for_assignee or task.status == "in_progress"):
        return None
    index, entry = task.latest("status", "assignee_id", "approval_status") or (-1, {})
    by = str(entry.get("by") or task.created_by)
    if task.status == "in_progress" and by == task.assignee_id:
        return None
    if task.status == "in_progress" and old_value(entry, "status") == "todo":
        return arrival_of(replace(task, status="todo", history=task.history.before(index)))  # somebody else started it
    at = parse_time(entry.get("at")) or task.created_at
    notice_id = derived_id(TASK_ASSIGNED, task.id, index, parse_time(entry.get("at")), task.assignee_id)
    return Arrival(notice_id, at, by, BROUGHT_BY in entry)


def assignment_of(task: Task, dependencies: Mapping[str, Task | None]) -> Notification | None:
    """What tells an assignee of work: a task that somebody else gave it, or that waits no more for its dependencies.
    None while it cannot be started, for what mail has brought, and for an agent's own doing."""
    arrival = arrival_of(task)
    if arrival is None or not _is_startable(task, dependencies):
        return None
    at, by, told_by_mail = arrival.at, arrival.by, arrival.mailed
    for finished in dependencies.values():
        if task.status != "in_progress" and finished is not None and (finished.completed_at or at) >= at:
            at, by, told_by_mail = finished.completed_at or at, _finisher(finished, task), False
    if told_by_mail or by == task.assignee_id:
        return None
    return Notification(
        id=arrival.notice_id,
        target_agent_id=str(task.assignee_id),
        target_purpose="task",
        type="status_change",
        action=TASK_ASSIGNED,
        task_id=task.id,
        created_at=at,
        sender_id=by,
    )


def blocks_of(task: Task, told: Iterable[str]) -> list[Notification]:
    """What tells these agents that an assignee has blocked its own task. A report that it failed is mail already."""
    found = task.latest("status")
    if task.status != "blocked" or task.assignee_id is None or found is None:
        return []
    index, entry = found
    if entry.get("by") != task.assignee_id or "message_id" in entry:
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


def delegation_of(delegation: Delegation) -> Notification | None:
    """What tells an agent's chat sessions of a delegation that none of them has taken."""
    if delegation.status != "pending" or delegation.taken_by is not None:
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
    """Whether the task was blocked and taken up again since then."""
    reopenings = (
        entry
        for entry in task.history.having("status")
        if old_value(entry, "status") == "blocked" and new_value(entry, "status") not in FINAL
    )
    return any((parse_time(entry.get("at")) or since) > since for entry in reopenings)


def _is_startable(task: Task, dependencies: Mapping[str, Task | None]) -> bool:
    try:
        task.require_startable(dependencies)
    except InvalidStatusTransition:
        return False
    return True


def _finisher(finished: Task, waiting: Task) -> str:
    """Whose doing it is that a task waits no more. One that the assignee has finished itself makes room for the work of
    who planned it so."""
    by = finished.status_changed_by or waiting.created_by
    return waiting.created_by if by == waiting.assignee_id else by


def _reason(entry: Mapping[str, Any]) -> str | None:
    """Why, as far as a notification has room for it; its length stands at its end when it was cut."""
    reason = str(entry.get("reason") or "")
    if len(reason) > REASON_CHARACTERS:
        return f"{reason[:REASON_CHARACTERS]}… ({len(reason)})"
    return reason if reason.strip() else None
