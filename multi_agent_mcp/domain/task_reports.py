"""The effects of an assignee's reports on its task (docs/protocol.md, Completion)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, NamedTuple

from multi_agent_mcp.domain.history import Change, Line, new_value
from multi_agent_mcp.domain.task import SUPERSEDED, WITH_ASSIGNEE, Task
from multi_agent_mcp.domain.times import parse_time
from multi_agent_mcp.errors import InvalidStatusTransition

_ASKED = re.compile(r"^[ \t]*(?:[-*+]|\d{1,9}[.)])[ \t]+\[[ xX]\][ \t]+(\S.*)$", re.MULTILINE)
"""An item of a task list (GitHub Flavored Markdown, Task list items)."""

LINES = "history_lines"
"""The key of a report's metadata that holds how many lines the task's history had when it was written."""


def compare(description: str, reported: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The items of the description's task lists in order, then those only reported, each with `text`, `completed`,
    `asked` (it is in the description) and `reported`. Texts that differ only in case and blanks are the same item."""
    answers = {_same(item["text"]): item for item in reported}
    asked = {_same(text): text.strip() for text in _ASKED.findall(description)}
    texts = asked | {key: item["text"] for key, item in answers.items() if key not in asked}
    return [
        {
            "text": text,
            "completed": bool(answers.get(key, {}).get("completed")),
            "asked": key in asked,
            "reported": key in answers,
        }
        for key, text in texts.items()
    ]


def without_items(description: str) -> str:
    """The description without its task list, which `compare` shows; whole if its items are more than one list or have
    text of their own between them, which explains them only in its place."""
    lines = description.split("\n")
    items = [number for number, line in enumerate(lines) if _ASKED.match(line)]
    if not items:
        return description
    first, last = items[0], items[-1]
    blank = {number for number, line in enumerate(lines) if not line.strip()}
    if not blank.issuperset(set(range(first, min(last + 2, len(lines)))) - set(items)):
        return description
    return "\n".join(lines[:first] + lines[last + 1 :]).strip("\n")


def _same(text: str) -> str:
    return " ".join(text.split()).casefold()


def completed(task: Task, change: Change, result: str, summary: str | None, next_steps: str | None) -> Task:
    """The task after `report_completed`: `success` finishes it; `failed` and `blocked` block it, unless somebody else
    has blocked or cancelled it meanwhile: then it keeps that status and only the report is recorded; so it is for a
    success while the task is in review. Raises `InvalidStatusTransition` for `success` with such a task."""
    wanted = "done" if result == "success" else "blocked"
    if wanted == "done" and task.status == "review":
        return task.recorded(change, completion_result=result)
    if task.status == wanted or (wanted == "blocked" and task.status == "cancelled"):
        return _ended_before(task, change, result, summary, next_steps)
    begun = task.through_in_progress(change) if wanted == "done" and task.status != "blocked" else task
    ended = begun.move_to(wanted, change)
    return replace(ended, completion_result=result, completion_summary=summary, next_steps=next_steps)


def _ended_before(task: Task, change: Change, result: str, summary: str | None, next_steps: str | None) -> Task:
    """A task that had ended, with what is said of that now. What is not said again stays; what replaces it is in the
    history with what it replaces, as no further mail has it."""
    summary, next_steps = summary or task.completion_summary, next_steps or task.next_steps
    words = {"completion_summary": (task.completion_summary, summary), "next_steps": (task.next_steps, next_steps)}
    changed = {key: [before, now] for key, (before, now) in words.items() if before != now}
    noted = task.recorded(change, completion_result=result, **changed)
    return replace(noted, completion_result=result, completion_summary=summary, next_steps=next_steps)


class ReportTime(NamedTuple):
    """When a report was written: by its sender's clock, and by the number of `lines` that the task's history had, which
    no clock and no other machine disturbs; None if the message does not say (a person's, or an earlier version's)."""

    at: datetime
    lines: int | None = None

    def since(self, task: Task, now: datetime) -> Iterable[Line]:
        """The changes of the task since. Without `lines` those that say that they are later, but not yet to come: a
        clock was set back."""
        if self.lines is not None:
            return task.history.since(self.lines)
        lines = (line for _, line in task.history.at_hand())
        return [line for line in lines if (at := parse_time(line.get("at"))) is not None and self.at < at <= now]

    def is_followed_by(self, line: Line) -> bool:
        """Whether the line is the effect of a report of the same agent that was written later."""
        at = parse_time(line.get("written_at"))
        return at is not None and at > self.at

    def is_before_status(self, task: Task, now: datetime) -> bool:
        """Whether the task has got its status since."""
        if self.lines is not None:
            return any("status" in line for line in self.since(task, now))
        changed_at = task.status_changed_at or self.at
        set_back = changed_at > now  # the clock was set back; a task in `todo` may begin nevertheless
        return self.at < changed_at and not (set_back and task.status == "todo")

    def is_before_end(self, task: Task, now: datetime) -> bool:
        """Whether the end of the task was reported since, and is still to be read."""
        if task.reported_at is None or self.lines is None:
            return task.reported_at is not None and self.at <= task.reported_at
        return any("reported" in line for line in self.since(task, now))


def require_current(task: Task, written: ReportTime, now: datetime, *, of_end: bool) -> None:
    """Raises `InvalidStatusTransition` for a report that says nothing any more of what the task is now: since it was
    written, the task has changed hands, or a later report has taken effect; one of the end, too, if the task was put
    back or taken up again. A block or a cancellation leaves it true that the work is over."""
    for line in written.since(task, now):
        is_later = _is_later_end(line, written) if of_end else "progress" in line and written.is_followed_by(line)
        if is_later or ("message_id" not in line and _changes_hands(line, of_end=of_end)):
            facts = {"by": line.get("by", "-"), "at": str(line.get("at", "-")), "status": task.status}
            raise InvalidStatusTransition(SUPERSEDED, task_id=task.id, **facts)


def _changes_hands(line: Line, *, of_end: bool) -> bool:
    if "assignee_id" in line:
        return "status" not in line  # else it was made by this change
    return of_end and new_value(line, "status") in {"backlog", *WITH_ASSIGNEE}


def _is_later_end(line: Line, written: ReportTime) -> bool:
    return written.is_followed_by(line) and (new_value(line, "status") == "blocked" or "completion_result" in line)


def progressed(
    task: Task,
    change: Change,
    progress: int | None,
    checklist: tuple[Mapping[str, Any], ...] | None,
    written: ReportTime,
) -> Task:
    """The task after a progress report, which moves a task in `todo` or `blocked` to `in_progress`, because work has
    begun. A report written before the task was blocked does not reopen it: that would undo the interrupt. One written
    before the end was reported leaves it ended: else the task would be handed out again until that is read, too."""
    begins = task.status in ("todo", "blocked") and not written.is_before_status(task, change.at)
    moved = task.move_to("in_progress", change) if begins else task
    has_ended = written.is_before_end(task, change.at)
    taken = replace(
        moved,
        reported_at=task.reported_at if has_ended else moved.reported_at,
        progress=moved.progress if progress is None else progress,
        checklist=moved.checklist if checklist is None else checklist,
    )
    return taken.recorded(change, progress=taken.progress)


def reported(task: Task, change: Change, *, failed: bool, summary: str | None) -> Task:
    """The task after a completion report: `done`, or `blocked` if it failed, by way of `in_progress` if the table of
    transitions requires it. A failed task that is already blocked keeps its reason, one in review waits for it."""
    if failed and task.status == "blocked":
        reason = task.blocked_reason or change.reason
        return replace(_ended_before(task, change, "failed", summary, None), blocked_reason=reason)
    if not failed and task.status == "review":
        return task.recorded(change, completion_result="success")
    begun = task.through_in_progress(change)
    if failed:
        return replace(begun.move_to("blocked", change), completion_result="failed", completion_summary=summary)
    done = begun.move_to("done", replace(change, reason=None))
    return replace(done, completion_result="success", completion_summary=summary)
