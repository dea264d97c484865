"""Tasks: what is to be done, by whom, and every change anybody made to it.

A transition returns a new task and knows no files; what is not allowed raises `InvalidStatusTransition` or
`Unauthorized` (contract §5, §8).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, ClassVar, Literal, get_args

from multi_agent_mcp.domain.agent import Agent, is_superior
from multi_agent_mcp.domain.entity import EPOCH, Entity
from multi_agent_mcp.domain.times import format_time
from multi_agent_mcp.errors import InvalidStatusTransition, Unauthorized

TaskStatus = Literal["backlog", "todo", "in_progress", "blocked", "done", "cancelled"]
TaskPriority = Literal["low", "medium", "high", "urgent"]
ReportStatus = Literal["completed", "failed"]

TASK_STATUSES: tuple[str, ...] = get_args(TaskStatus)
TASK_PRIORITIES: tuple[str, ...] = get_args(TaskPriority)
FINAL = frozenset({"done", "cancelled"})

TRANSITIONS: Mapping[str, tuple[str, ...]] = {
    "backlog": ("todo", "cancelled"),
    "todo": ("in_progress", "backlog", "blocked", "cancelled"),
    "in_progress": ("done", "blocked", "todo", "cancelled"),
    "blocked": ("in_progress", "todo", "cancelled"),
    "done": (),
    "cancelled": (),
}


@dataclass(frozen=True, kw_only=True)
class Change:
    """Who changes a task, when, why, and (from a chat) on whose request."""

    by: str
    at: datetime
    reason: str | None = None
    requester_id: str | None = None
    message_id: str | None = None

    def entry(self, **changed: Any) -> dict[str, Any]:
        """One line of the task's history; unset fields are left out."""
        facts = {
            "at": format_time(self.at),
            "by": self.by,
            "reason": self.reason,
            "requester_id": self.requester_id,
            "message_id": self.message_id,
        }
        return {**{key: value for key, value in facts.items() if value is not None}, **changed}


@dataclass(frozen=True, kw_only=True)
class Task(Entity):
    BODY: ClassVar[str | None] = "description"

    id: str
    title: str = ""
    status: str = "backlog"
    priority: str = "medium"
    assignee_id: str | None = None
    created_by: str = "unknown"
    parent_task_id: str | None = None
    dependencies: tuple[str, ...] = ()
    approval_status: str = "approved"
    approved_by: str | None = None
    requester_id: str | None = None
    progress: int = 0
    checklist: tuple[Mapping[str, Any], ...] = ()
    blocked_reason: str | None = None
    completion_result: str | None = None
    completion_summary: str | None = None
    next_steps: str | None = None
    interrupt_id: str | None = None
    started_from_conversation_id: str | None = None
    status_changed_by: str | None = None
    status_changed_at: datetime | None = None
    created_at: datetime = EPOCH
    updated_at: datetime = EPOCH
    started_at: datetime | None = None
    completed_at: datetime | None = None
    history: tuple[Mapping[str, Any], ...] = ()
    description: str = ""

    @property
    def final(self) -> bool:
        return self.status in FINAL

    def has_applied(self, message_id: str) -> bool:
        """Whether the report in that message already went into this task: applying is idempotent."""
        return any(entry.get("message_id") == message_id for entry in self.history)

    def recorded(self, change: Change, **changed: Any) -> Task:
        """The task with a line more in its history."""
        return replace(self, updated_at=change.at, history=(*self.history, change.entry(**changed)))

    def require_assignee(self, agent_id: str) -> None:
        """Only the assignee reports on a task."""
        if self.assignee_id != agent_id:
            raise Unauthorized("not_assignee", task_id=self.id, assignee_id=self.assignee_id or "-")

    def require_writer(self, agent_id: str, agents: Mapping[str, Agent]) -> None:
        """Writers: the assignee, the creator, superiors of the assignee (contract §5)."""
        if agent_id in {self.assignee_id, self.created_by}:
            return
        if (
            self.assignee_id is not None
            and self.assignee_id in agents
            and is_superior(agent_id, self.assignee_id, agents)
        ):
            return
        raise Unauthorized("not_task_writer", task_id=self.id, agent_id=agent_id)

    def require_open(self) -> None:
        """Raises `InvalidStatusTransition` when the task is done or cancelled."""
        if self.final:
            raise InvalidStatusTransition("task_is_final", task_id=self.id, status=self.status)

    def move_to(self, status: str, change: Change) -> Task:
        """The plain transition by the table; dependencies and approval are the caller's business."""
        if status not in TRANSITIONS.get(self.status, ()):
            allowed = ", ".join(TRANSITIONS.get(self.status, ())) or "-"
            raise InvalidStatusTransition(task_id=self.id, current=self.status, new=status, allowed=allowed)
        moved = replace(
            self,
            status=status,
            status_changed_by=change.by,
            status_changed_at=change.at,
            started_at=self.started_at or (change.at if status == "in_progress" else None),
            completed_at=change.at if status in FINAL else None,
            blocked_reason=change.reason if status == "blocked" else None,
        )
        return moved.recorded(change, status=[self.status, status])

    def progressed(self, change: Change, progress: int | None, checklist: tuple[Mapping[str, Any], ...] | None) -> Task:
        """A progress report: work has visibly begun, so a waiting task moves to `in_progress`."""
        task = self.move_to("in_progress", change) if self.status in ("todo", "blocked") else self
        task = replace(
            task,
            progress=task.progress if progress is None else progress,
            checklist=task.checklist if checklist is None else checklist,
        )
        return task.recorded(change, progress=task.progress)

    def reported(self, change: Change, *, failed: bool, summary: str | None) -> Task:
        """A completion report: `done`, or `blocked` when it failed; through `in_progress` where the table asks it."""
        begun = self.through_in_progress(change)
        if failed:
            return replace(begun.move_to("blocked", change), completion_result="failed", completion_summary=summary)
        done = begun.move_to("done", replace(change, reason=None))
        return replace(done, progress=100, completion_result="success", completion_summary=summary)

    def through_in_progress(self, change: Change) -> Task:
        """The steps the table asks for before a task may be `done` or `blocked`."""
        steps: Mapping[str, tuple[str, ...]] = {
            "backlog": ("todo", "in_progress"),
            "todo": ("in_progress",),
            "blocked": ("in_progress",),
        }
        task = self
        for step in steps.get(self.status, ()):
            task = task.move_to(step, replace(change, reason=None))
        return task


TaskChange = Callable[[Task], Task]
