"""What a worker's report does to its task: applied when the Admin reads it (seed 004, contract §5, §8)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from datetime import datetime

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.change import Change
from multi_agent_mcp.domain.message import REPORT_TYPES, Message, page_order
from multi_agent_mcp.domain.names import entity_id
from multi_agent_mcp.domain.outcomes import progressed, reported
from multi_agent_mcp.domain.task import Task
from multi_agent_mcp.errors import Refusal, StorageError
from multi_agent_mcp.services.dashboard import Dashboard
from multi_agent_mcp.store.workspace import Workspace

logger = logging.getLogger(__name__)


class Reports:
    """Applies `task_progress`, `task_complete` and `task_failed` messages, once each, in order, in the assignee's
    name."""

    def __init__(self, workspace: Workspace, dashboard: Dashboard, clock: Callable[[], datetime]) -> None:
        self.workspace = workspace
        self.dashboard = dashboard
        self.clock = clock

    def apply(self, reader: Agent, messages: Iterable[Message]) -> None:
        """Brings the reports into their tasks. Idempotent: a report read twice (its reader died) counts once."""
        for message in sorted(_reports(reader, messages), key=page_order):
            try:
                # Parsed like any id: the sender of a report must not name a file somewhere else.
                task_id = entity_id("tsk", message.metadata.get("task_id"))
                self.workspace.tasks.update(task_id, self._change(message))
            except Refusal as refusal:
                logger.warning("report %s was not applied: %s", message.id, refusal)

    def dashboard_after(self, reader: Agent, messages: Iterable[Message]) -> bool:
        """Rewrites the dashboard if reports were among the messages; whether it did. Being derived, it must not keep
        the mail from its reader: what refuses now is made good by the next report."""
        if not _reports(reader, messages):
            return False
        try:
            self.dashboard.write()
        except StorageError as refusal:
            logger.warning("the dashboard was not rewritten: %s", refusal)
            return False
        return True

    def _change(self, message: Message) -> Callable[[Task], Task]:
        change = Change(by=message.sender_id, at=self.clock(), message_id=message.id)

        def apply(task: Task) -> Task:
            if task.final or task.has_applied(message.id) or "result" in message.metadata:
                return task  # `report_completed` has brought its result into the task itself
            task.require_assignee(message.sender_id)
            if message.message_type == "task_progress":
                return progressed(task, change, _progress(message), _checklist(message), message.created_at)
            summary = message.metadata.get("summary") or message.content
            failed = message.message_type == "task_failed"
            reason = message.content if failed else None
            outcome = Change(by=change.by, at=change.at, message_id=change.message_id, reason=reason)
            return reported(task, outcome, failed=failed, summary=str(summary))

        return apply


def _reports(reader: Agent, messages: Iterable[Message]) -> list[Message]:
    if reader.role == "worker":
        return []
    return [message for message in messages if message.message_type in REPORT_TYPES and "task_id" in message.metadata]


def _progress(message: Message) -> int | None:
    value = message.metadata.get("progress")
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 100 else None


def _checklist(message: Message) -> tuple[dict[str, object], ...] | None:
    value = message.metadata.get("checklist")
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        return None
    return tuple(value)
