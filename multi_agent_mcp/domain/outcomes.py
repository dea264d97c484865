"""Outcomes: what an assignee's reports make of its task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from multi_agent_mcp.domain.task import Task
from multi_agent_mcp.domain.task_change import Change


def completed(task: Task, change: Change, result: str, summary: str | None, next_steps: str | None) -> Task:
    """`report_completed`: `success` finishes, `failed` and `blocked` block; a task that somebody else has blocked
    or cancelled meanwhile keeps that status and only takes the report."""
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
    """A progress report: work has visibly begun, so a waiting task moves to `in_progress`. One that was written
    before the task was blocked must not reopen it: that would take back the interrupt."""
    changed_at = task.status_changed_at or written_at
    set_back = changed_at > change.at  # the clock, since then: a task that merely waits may begin all the same
    begun = written_at >= changed_at or (set_back and task.status == "todo")
    moved = task.move_to("in_progress", change) if begun and task.status in ("todo", "blocked") else task
    taken = replace(
        moved,
        progress=moved.progress if progress is None else progress,
        checklist=moved.checklist if checklist is None else checklist,
    )
    return taken.recorded(change, progress=taken.progress)


def reported(task: Task, change: Change, *, failed: bool, summary: str | None) -> Task:
    """A completion report: `done`, or `blocked` when it failed; through `in_progress` where the table asks it. A
    task that is blocked already stays so, for the reason it was blocked for."""
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
    """The steps the table asks for before a task may be `done` or `blocked`."""
    steps: Mapping[str, tuple[str, ...]] = {
        "backlog": ("todo", "in_progress"),
        "todo": ("in_progress",),
        "blocked": ("in_progress",),
    }
    for step in steps.get(task.status, ()):
        task = task.move_to(step, replace(change, reason=None))
    return task
