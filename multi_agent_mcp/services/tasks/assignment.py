"""Assigning tasks by mail and reporting on them. The messages about a task are mail like any other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from multi_agent_mcp.domain.agent import Agent, report_recipient
from multi_agent_mcp.domain.change import Change
from multi_agent_mcp.domain.ids import entity_id
from multi_agent_mcp.domain.owner_wait import OwnerWait
from multi_agent_mcp.domain.task import Task
from multi_agent_mcp.errors import AgentNotFound, InvalidArguments, Unauthorized
from multi_agent_mcp.services.mail.sending import Messages, Sent
from multi_agent_mcp.services.operations import Operations
from multi_agent_mcp.services.tasks.creation import SEND_TASK, NewTask, make_task
from multi_agent_mcp.services.team.agents import Agents
from multi_agent_mcp.services.validation import Draft, require_text
from multi_agent_mcp.store.codec.frontmatter import as_text
from multi_agent_mcp.store.workspace import Workspace
from multi_agent_mcp.texts import Texts

LEADERS = ("owner", "admin")
_MESSAGE_PRIORITY = {"low": "low", "medium": "normal", "high": "high", "urgent": "urgent"}


@dataclass(frozen=True)
class Assigned:
    task: Task
    sent: Sent
    waiting: bool

    def as_answer(self) -> dict[str, Any]:
        sent = self.sent.as_answer()
        del sent["receiver_ids"]
        return {"task_id": self.task.id, **sent, "waiting": self.waiting}


@dataclass(eq=False)
class Assignments:
    """Assigns tasks with a message, and sends reports on them."""

    workspace: Workspace
    agents: Agents
    messages: Messages
    operations: Operations
    texts: Texts
    clock: Callable[[], datetime]

    def send(self, sender: Agent, agent_id: str, title: str, content: str, priority: str = "medium") -> Assigned:
        """`send_task`: a task in `todo` for the agent, a `task_assign` message, and, from an Owner to an Admin, the
        wait-lock. Fails as a whole: when the message cannot be stored there is no task either."""
        if sender.role not in LEADERS:
            raise Unauthorized("role_not_allowed", tool="send_task", role=sender.role, allowed=", ".join(LEADERS))
        assignee = self.agents.get(agent_id)
        if assignee.id == sender.id:
            raise InvalidArguments("to_oneself")
        self.agents.require_assignable(sender, assignee)
        new = NewTask(title=title, description=content, priority=priority, assignee_id=assignee.id)
        task = make_task(Change(by=sender.id, at=self.clock()), new)
        letters = self.messages.compose(sender, self._assignment(task))
        waits = sender.role == "owner" and assignee.role == "admin"
        wait = OwnerWait(
            owner_id=sender.id,
            admin_id=assignee.id,
            task_id=task.id,
            message_id=letters.messages[0].id,
            since=self.clock(),
        )
        told = task.brought_by(letters.messages[0].id)
        facts = {"tasks": [as_text(told)], "letters": letters.facts, "wait": as_text(wait) if waits else None}
        stored = self.operations.run(SEND_TASK, facts)
        return Assigned(told, self.messages.announced(letters, stored), waits)

    def report_progress(
        self,
        reporter: Agent,
        task_id: str,
        progress: int | None = None,
        message: str | None = None,
        checklist: Sequence[Mapping[str, Any]] | None = None,
    ) -> tuple[Task, int]:
        """Sends a `task_progress` message to the reporter's Admin, whose reading brings it into the task.

        Returns the task and the progress that now counts.
        """
        task = self._reportable(reporter, task_id)
        if progress is not None and not 0 <= progress <= 100:
            raise InvalidArguments("not_percent", progress=progress)
        current = task.progress if progress is None else progress
        metadata: dict[str, Any] = {"task_id": task.id, "progress": current}
        if checklist is not None:
            metadata["checklist"] = [dict(item) for item in checklist]
        content = message or self.texts("report.progress", progress=current)
        self._report(reporter, task, "task_progress", content, metadata)
        return task, current

    def report_completion(
        self, reporter: Agent, task_id: str, status: str, message: str, summary: str | None = None
    ) -> tuple[Task, Sent]:
        """Sends `task_complete` or `task_failed` to the reporter's Admin; no `send_message` is needed beside it."""
        task = self._reportable(reporter, task_id)
        require_text("summary", summary)
        failed = status != "completed"
        return task, self._report_end(reporter, task, message, failed=failed, status=status, summary=summary)

    def require_sendable(self, summary: str | None) -> None:
        """Raises `InvalidArguments` or `ContentTooLarge` for a summary that `announce_completion` could not send."""
        Draft(content=summary or "").require_sound(self.messages.limits.content_bytes)

    def announce_completion(self, reporter: Agent, task: Task, result: str, summary: str | None) -> Sent | None:
        """Reports to the superior that work on a task has ended, unless that was reported already. None when there is
        no superior. The summary becomes the message's content, which has room for it."""
        try:
            content = summary or self.texts(f"report.{result}", title=task.title)
            return self._report_end(reporter, task, content, failed=result != "success", result=result)
        except AgentNotFound:
            return None

    def _report_end(self, reporter: Agent, task: Task, content: str, *, failed: bool, **facts: str | None) -> Sent:
        """One message per end of work: both ways of reporting use the same idempotency key."""
        metadata = {"task_id": task.id, **{key: value for key, value in facts.items() if value is not None}}
        key = f"completion:{task.id}:{task.reopened}"
        return self._report(reporter, task, "task_failed" if failed else "task_complete", content, metadata, key)

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
    ) -> Sent:
        draft = Draft(
            content=content,
            receiver_id=report_recipient(reporter.id, self.agents.all()).id,
            message_type=message_type,
            subject=self.texts(f"subject.{message_type}", title=task.title),
            metadata=metadata,
            idempotency_key=idempotency_key,
        )
        return self.messages.send(reporter, draft)

    def _assignment(self, task: Task) -> Draft:
        return Draft(
            content=task.description,
            receiver_id=task.assignee_id,
            message_type="task_assign",
            subject=self.texts("subject.task_assign", title=task.title),
            priority=_MESSAGE_PRIORITY[task.priority],
            metadata={"task_id": task.id},
        )
