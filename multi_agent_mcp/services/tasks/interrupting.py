"""Interrupting and resuming agents: `interrupt`, `resume` (docs/protocol.md, Interrupts)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from multi_agent_mcp.domain.agent import Agent, is_superior
from multi_agent_mcp.domain.notification import TASK_WITHDRAWN, Notification
from multi_agent_mcp.errors import InvalidArguments, InvalidStatusTransition, Unauthorized
from multi_agent_mcp.services.operations import Apply, Operation, Operations, Run, read_as
from multi_agent_mcp.services.validation import words_or_none

if TYPE_CHECKING:
    from multi_agent_mcp.domain.task import Task
    from multi_agent_mcp.services.notifications.writing import Interrupts
    from multi_agent_mcp.services.tasks.changes import TaskChanges


@dataclass(frozen=True, kw_only=True)
class ResumeAgent(Operation):
    """A paused agent goes on."""

    KIND = "resume_agent"

    notice: Notification = field(metadata=read_as(Notification))


@dataclass(eq=False)
class Interrupting:
    """Interrupts and resumes agents below the actor; an Owner may interrupt any agent."""

    task_changes: TaskChanges
    interrupts: Interrupts
    operations: Operations

    def interrupt(
        self, actor: Agent, agent_id: str, action: str, task_id: str | None, reason: str | None
    ) -> Notification | None:
        """Implements `interrupt AGENT`: blocks or cancels the agent's task (the given one, else the one it works on),
        or asks it to pause. An agent without a task is interrupted, too. Returns the notification for the agent: None
        if its task waited, and it had not heard of it."""
        reason = words_or_none("reason", reason)
        target = self._below(actor, agent_id)
        task = self._task(target, task_id)
        cause = {"sender_id": actor.id, "reason": reason}
        if action == "pause":
            return self.interrupts.pause(target.id, task.id if task else None, **cause)
        if task is None:
            return self.interrupts.stop(target.id, action, **cause)
        status = "blocked" if action == "blocked" else "cancelled"
        moved, _ = self.task_changes.set_status(actor, task.id, status, reason)
        told = self.task_changes.derived.ensure(moved)
        return next((notice for notice in told if notice.interrupts or notice.action == TASK_WITHDRAWN), None)

    def resume(self, actor: Agent, agent_id: str) -> Notification:
        """Implements `resume AGENT`: ends a pause, whether the agent has read of it or not. Raises
        `InvalidStatusTransition` for an agent that is not paused."""
        target = self._below(actor, agent_id)
        pause = self.task_changes.derived.pause_of(target.id)
        if pause is None:
            raise InvalidStatusTransition("not_paused", agent_id=target.id)
        notice = self.interrupts.resumption(pause, actor.id)
        resumed: Notification = self.operations.run(ResumeAgent(notice=notice))
        return resumed

    def applied(self) -> Mapping[type[Operation], Apply]:
        return {ResumeAgent: self.apply_resumption}

    def apply_resumption(self, operation: ResumeAgent, run: Run) -> Notification:
        """Notifies the agent, and ends its pauses. Raises `InvalidStatusTransition` if somebody else has resumed
        the agent meanwhile."""
        notice = operation.notice
        if not self.interrupts.writer.put_first(notice) and not run.again:
            raise InvalidStatusTransition("not_paused", agent_id=notice.target_agent_id)
        self.task_changes.derived.end(notice.target_agent_id)
        return notice

    def _below(self, actor: Agent, agent_id: str) -> Agent:
        target = self.task_changes.agents.get(agent_id)
        if actor.role != "owner" and not is_superior(actor.id, target.id, self.task_changes.agents.all()):
            raise Unauthorized("not_superior", agent_id=target.id)
        return target

    def _task(self, target: Agent, task_id: str | None) -> Task | None:
        """The task to interrupt, or None. Raises `InvalidArguments` if it is not the agent's own."""
        task = self.task_changes.get(task_id) if task_id is not None else self.task_changes.current(target.id)
        if task is not None and task.assignee_id != target.id:
            raise InvalidArguments("not_its_task", task_id=task.id, agent_id=target.id)
        return task
