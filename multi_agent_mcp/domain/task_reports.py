"""The effects of an assignee's reports on its task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from multi_agent_mcp.domain.task import Task
from multi_agent_mcp.domain.task_change import Change


def completed(task: Task, change: Change, result: str, summary: str | None, next_steps: str | None) -> Task:
    """The task after `report_completed`: `success` finishes it; `failed` and `blocked` block it, unless somebody else
    has blocked or cancelled it meanwhile: then it keeps that status, and only the report is recorded. Raises
    `InvalidStatusTransition` for `success` with such a task."""
    wanted = "done" if result == "success" else "blocked"
    if task.status == wanted or (wanted == "blocked" and task.status == "cancelled"):
        ended = task.recorded(change, completion_result=result)
    else:
        begun = _through_in_progress(task, change) if wanted == "done" and task.status != "blocked" else task
        ended = begun.move_to(wanted, change)
    progress = 100 if ended.status == "done" else ended.progress
    return replace(
        ended, completion_result=result, completion_summary=summary, next_steps=next_steps, progress=progress
    )


def progressed(
    task: Task,
    change: Change,
    progress: int | None,
    checklist: tuple[Mapping[str, Any], ...] | None,
    written_at: datetime,
) -> Task:
    """The task after a progress report, which moves a task in `todo` or `blocked` to `in_progress`, because work has
    begun. A report written before the task was blocked does not reopen it: that would undo the interrupt."""
    changed_at = task.status_changed_at or written_at
    set_back = changed_at > change.at  # the clock was set back; a task in `todo` may begin nevertheless
    begun = written_at >= changed_at or (set_back and task.status == "todo")
    moved = task.move_to("in_progress", change) if begun and task.status in ("todo", "blocked") else task
    taken = replace(
        moved,
        progress=moved.progress if progress is None else progress,
        checklist=moved.checklist if checklist is None else checklist,
    )
    return taken.recorded(change, progress=taken.progress)


def reported(task: Task, change: Change, *, failed: bool, summary: str | None) -> Task:
    """The task after a completion report: `done`, or `blocked` if it failed, by way of `in_progress` if the table of
    transitions requires it. A failed task that is already blocked keeps its reason."""
    if failed and task.status == "blocked":
        reason = task.blocked_reason or change.reason
        noted = task.recorded(change, completion_result="failed")
        return replace(noted, completion_result="failed", completion_summary=summary, blocked_reason=reason)
    begun = _through_in_progress(task, change)
    if failed:
        return replace(begun.move_to("blocked", change), completion_result="failed", completion_summary=summary)
    done = begun.move_to("done", replace(change, reason=None))
    return replace(done, progress=100, completion_result="success", completion_summary=summary)


def _through_in_progress(task: Task, change: Change) -> Task:
    """The task after the transitions to `in_progress` that the table requires before `done` or `blocked`."""
    steps: Mapping[str, tuple[str, ...]] = {
        "backlog": ("todo", "in_progress"),
        "todo": ("in_progress",),
        "blocked": ("in_progress",),
    }
    for step in steps.get(task.status, ()):
        task = task.move_to(step, replace(change, reason=None))
    return task
