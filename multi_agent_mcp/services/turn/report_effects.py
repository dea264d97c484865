"""Applies workers' reports to their tasks when the Admin reads them (docs/protocol.md, Reports)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING

from multi_agent_mcp.domain.entity import age
from multi_agent_mcp.domain.ids import entity_id
from multi_agent_mcp.domain.task import Task, checklist_item, progressed, reported
from multi_agent_mcp.domain.task_history import Change
from multi_agent_mcp.errors import InvalidId, InvalidStatusTransition, NotProven, Refusal, TaskNotFound
from multi_agent_mcp.services.tasks.changes import require_startable
from multi_agent_mcp.texts import catalogue

if TYPE_CHECKING:
    from multi_agent_mcp.domain.message import Message
    from multi_agent_mcp.services.notifications.derived import DerivedNotices
    from multi_agent_mcp.services.overview.snapshot import Dashboard
    from multi_agent_mcp.store.workspace import Workspace

logger = logging.getLogger(__name__)


@dataclass(eq=False)
class Reports:
    """Applies `task_progress`, `task_complete` and `task_failed` messages, once each, in order, in the assignee's
    name."""

    workspace: Workspace
    dashboard: Dashboard
    derived: DerivedNotices
    clock: Callable[[], datetime]

    def apply(self, reports: Iterable[Message]) -> dict[str, Refusal]:
        """Applies reports to their tasks. Idempotent: a report read twice, because its reader died, counts once.

        Returns, by message id, why a report could not be applied; the task's history records that, too.
        """
        refused: dict[str, Refusal] = {}
        for message in sorted(reports, key=age):
            try:
                self.workspace.tasks.update(_task_id(message), self._change(message, refused))
            except Refusal as refusal:
                logger.warning("report %s was not applied: %s", message.id, _in_words(refusal))
        return refused

    def follow_up(self, reports: Iterable[Message]) -> bool:
        """Sends the notifications that follow from reports, and rewrites the dashboard. Returns whether the dashboard
        was rewritten."""
        for report in reports:
            with suppress(InvalidId, TaskNotFound):
                self.derived.follow_up(self.workspace.tasks.get(_task_id(report)))
        return self.dashboard.update()

    def _change(self, message: Message, refused: dict[str, Refusal]) -> Callable[[Task], Task]:
        change = Change(by=message.sender_id, at=self.clock(), message_id=message.id)

        def apply(task: Task) -> Task:
            if task.final or task.has_applied(message.id) or "result" in message.metadata:
                return task  # `report_completed` has changed the task itself
            task.require_assignee(message.sender_id)
            try:
                return self._followed(task, message, change)
            except (InvalidStatusTransition, NotProven) as refusal:
                refused[message.id] = refusal
                return task.refused_report(change, message.message_type, refusal.key.removeprefix("error."))

        return apply

    def _followed(self, task: Task, message: Message, change: Change) -> Task:
        """The task after the report. A report that starts a task needs what any start needs: it cannot bypass an
        approval or a dependency. Raises `InvalidStatusTransition`."""
        outcome = _outcome(task, message, change)
        begins = task.status != "in_progress" and outcome.status != task.status
        if begins or task.approval_status != "approved":
            require_startable(self.workspace, task)
        return outcome


def _task_id(report: Message) -> str:
    """The report's task id, checked so that a sender cannot name a file elsewhere. Raises `InvalidId`."""
    return entity_id("tsk", report.metadata.get("task_id"))


def _in_words(refusal: Refusal) -> str:
    """The refusal for the server's log, in English whatever the session's language."""
    return catalogue("en").sentence(refusal)


def _outcome(task: Task, message: Message, change: Change) -> Task:
    """The task with the report's progress or result."""
    if message.message_type == "task_progress":
        return progressed(task, change, _progress(message), _checklist(message), message.created_at)
    summary = message.metadata.get("summary") or message.content
    failed = message.message_type == "task_failed"
    reason = message.content if failed else None
    return reported(task, replace(change, reason=reason), failed=failed, summary=str(summary))


def _progress(message: Message) -> int | None:
    value = message.metadata.get("progress")
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 100 else None


def _checklist(message: Message) -> tuple[Mapping[str, object], ...] | None:
    value = message.metadata.get("checklist")
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        return None
    return tuple(map(checklist_item, value))
