"""Reports about tasks. They are mail; reading them changes the task (docs/protocol.md, Reports;
`services/turn/reading.py`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from multi_agent_mcp.domain.agent import Agent, report_recipient
from multi_agent_mcp.domain.entity import entity_id
from multi_agent_mcp.domain.task import INTERRUPT_ACTIONS, Task
from multi_agent_mcp.domain.task_reports import LINES
from multi_agent_mcp.domain.text import quoted
from multi_agent_mcp.errors import AgentNotFound, InvalidArguments
from multi_agent_mcp.services.validation import Draft, require_text, words_or_none
from multi_agent_mcp.session import Service

if TYPE_CHECKING:
    from multi_agent_mcp.domain.history import History
    from multi_agent_mcp.services.mail import Messages, Sent
    from multi_agent_mcp.services.tasks.delivered import DeliveryRecords
    from multi_agent_mcp.services.team.agents import Agents


@dataclass(eq=False)
class TaskReports(Service):
    """Sends reports to an agent's superior."""

    agents: Agents
    messages: Messages
    delivery_records: DeliveryRecords

    def delivered(self, task: Task, summary: str | None = None, *, failed: bool = False) -> None:
        """Records what a task delivers as its assignee reports that it is over, before anything else. Never raises."""
        self.contributions.tell("task_reported", task, summary, failed)

    def report_progress(
        self,
        reporter: Agent,
        task_id: str,
        progress: int | None = None,
        message: str | None = None,
        checklist: Sequence[Mapping[str, Any]] | None = None,
    ) -> tuple[Task, int]:
        """Sends a `task_progress` message to the reporter's Admin; reading it updates the task.

        Returns the task and the reported progress in percent (the task's present one if none is given).
        """
        task = self._reportable(reporter, task_id)
        if progress is not None and not 0 <= progress <= 100:
            raise InvalidArguments("not_percent", progress=progress)
        current = task.progress if progress is None else progress
        metadata: dict[str, Any] = {"task_id": task.id, LINES: len(task.history)}
        if progress is not None:  # else it may be behind what an unread report says
            metadata["progress"] = progress
        if checklist is not None:
            metadata["checklist"] = [dict(item) for item in checklist]
        content = words_or_none("message", message) or self.texts("report.progress", progress=current)
        self._report(reporter, task, "task_progress", content, metadata)
        return task, current

    def report_completion(
        self,
        reporter: Agent,
        task_id: str,
        status: str,
        message: str,
        summary: str | None = None,
        *,
        before: History | None = None,
    ) -> tuple[Task, Sent]:
        """Sends `task_complete` or `task_failed` to the reporter's Admin; no further `send_message` is needed. `before`
        is the task's history when it was decided to report that, if that was not just now."""
        task = self._reportable(reporter, task_id)
        known = task if before is None else replace(task, history=before)
        require_text("summary", summary)
        failed = status != "completed"
        self.delivered(task, summary or message, failed=failed)
        facts = {"status": status, "summary": summary, LINES: len(known.history)}
        result = "failed" if failed else "success"
        content = words_or_none("message", message) or self.texts(f"report.{result}", title=task.quoted_title)
        return task, self._report_end(reporter, known, content, failed=failed, **facts)

    def require_reportable(self, reporter: Agent, task_id: str, message: str, summary: str | None) -> Task:
        """The task whose end may be reported. Raises as `report_completion`."""
        task = self._reportable(reporter, task_id)
        require_text("summary", summary)
        self.require_sendable(message)
        report_recipient(reporter.id, self.agents.all())
        return task

    def require_sendable(self, summary: str | None) -> None:
        """Raises `InvalidArguments` or `ContentTooLarge` for a summary that `announce_completion` could not send."""
        Draft(content=summary or "").require_sound(self.session.settings.limits.content_bytes)

    def announce_completion(self, reporter: Agent, task: Task, result: str, summary: str | None) -> Sent | None:
        """Reports to the superior that work on a task has ended, unless that was reported already; returns None if
        there is no superior. The summary becomes the message's content. A task that somebody else has stopped did not
        fail: the message names who stopped it."""
        try:
            if task.status in INTERRUPT_ACTIONS and task.status_changed_by not in (None, reporter.id):
                return self._report_stop(reporter, task, result, summary)
            content = words_or_none("summary", summary) or self.texts(f"report.{result}", title=task.quoted_title)
            return self._report_end(reporter, task, content, failed=result != "success", result=result)
        except AgentNotFound:
            return None

    def announce_review(self, reporter: Agent, task: Task, reviewer_id: str) -> Sent:
        """Tells a reviewer by mail, once per delivery, that a task waits for its review."""
        summary = (task.delivery or {}).get("summary")
        subject = self.texts("subject.task_review", title=task.quoted_title)
        draft = Draft(
            content=words_or_none("summary", None if summary is None else str(summary)) or subject,
            receiver_id=reviewer_id,
            message_type="status_update",
            subject=subject,
            metadata={"task_id": task.id, "result": "success"},
            idempotency_key=f"review:{task.id}:{(task.delivery or {}).get('at')}",
        )
        return self.messages.send(reporter, draft)

    def _report_stop(self, reporter: Agent, task: Task, result: str, summary: str | None) -> Sent:
        """As `_report_end`, for a task that another agent or a person has blocked or cancelled."""
        by = quoted(self.agents.name_of(str(task.status_changed_by)))
        subject = self.texts("subject.task_stopped", by=by, status=task.status, title=task.quoted_title)
        metadata = {"task_id": task.id, "result": result}
        key = _end_key(task)
        content = words_or_none("summary", summary) or subject
        return self._report(reporter, task, "status_update", content, metadata, key, subject)

    def _report_end(
        self, reporter: Agent, task: Task, content: str, *, failed: bool, **facts: str | int | None
    ) -> Sent:
        """Sends the message about the end of work, once: both ways of reporting use the same idempotency key. It says
        how much is known of a task that was done when it was sent."""
        metadata: dict[str, Any] = {"task_id": task.id}
        metadata |= {key: value for key, value in facts.items() if value is not None}
        if task.done_when and task.proof is not None:
            metadata |= {"proof": task.proof, "receipts": task.receipts}
        kind = "task_failed" if failed else "task_complete"
        if not failed and (left := self.delivery_records.left_behind(task)):
            metadata["uncommitted"] = list(left)
        return self._report(reporter, task, kind, content, metadata, _end_key(task))

    def _reportable(self, reporter: Agent, task_id: str) -> Task:
        task = self.workspace.tasks.get(entity_id("tsk", task_id))
        task.require_assignee(reporter.id)
        task.require_open()
        return task

    def _report(
        self,
        reporter: Agent,
        task: Task,
        message_type: str,
        content: str,
        metadata: Mapping[str, Any],
        idempotency_key: str | None = None,
        subject: str | None = None,
    ) -> Sent:
        draft = Draft(
            content=content,
            receiver_id=report_recipient(reporter.id, self.agents.all()).id,
            message_type=message_type,
            subject=subject or self.texts(f"subject.{message_type}", title=task.quoted_title),
            metadata=metadata,
            idempotency_key=idempotency_key,
        )
        return self.messages.send(reporter, draft)


def _end_key(task: Task) -> str:
    """The idempotency key of the message about the end of work on a task: one per reopening."""
    return f"completion:{task.id}:{task.reopened}"
