"""Interrupts: a task's change and its notification cannot come apart (docs/protocol.md, Interrupts).

The task file carries the id of its interrupt, written together with the status in one atomic replace. The
notification is derived from the task alone: if its writer was killed between the two writes, the next reader writes the
very same one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from multi_agent_mcp.domain.ids import new_id
from multi_agent_mcp.domain.notification import Notification
from multi_agent_mcp.domain.task import INTERRUPT_ACTIONS, Task
from multi_agent_mcp.errors import Refusal, TaskNotFound
from multi_agent_mcp.store.inbox import file_name
from multi_agent_mcp.store.workspace import Workspace
from multi_agent_mcp.texts import Texts

logger = logging.getLogger(__name__)


@dataclass(eq=False)
class Interrupts:
    """Writes interrupts, repairs missing ones, and knows which of them still apply."""

    workspace: Workspace
    texts: Texts
    clock: Callable[[], datetime]
    announce: Callable[[Notification], None]
    """Rings the target's doorbell for a notification that is safely stored. Never raises."""
    _repaired: dict[str, int] = field(default_factory=dict, init=False)

    def ensure(self, task: Task) -> Notification | None:
        """Writes the notification of the task's interrupt unless it is there (or was read and archived)."""
        notice = self._made_from(task)
        if notice is not None and not self._is_archived(notice):
            with suppress(FileExistsError):
                self.deliver(notice)
        return notice

    def deliver(self, notice: Notification) -> None:
        """Stores a notification and rings. Every one of them passes here. Raises `FileExistsError`, `StorageError`."""
        self.workspace.notices(notice.target_agent_id).deliver(notice)
        self.announce(notice)

    def is_missing(self, task: Task) -> bool:
        """Whether the notification of the task's interrupt was never written; changes nothing."""
        notice = self._made_from(task)
        if notice is None or self._is_archived(notice):
            return False
        return not (self.workspace.notices(notice.target_agent_id).path / file_name(notice)).exists()

    def _is_archived(self, notice: Notification) -> bool:
        archive = self.workspace.notices(notice.target_agent_id).path / "archive"
        return (archive / f"{notice.created_at:%Y-%m}" / file_name(notice)).exists()

    def repair(self, agent_id: str) -> None:
        """Ensures the interrupts of an agent's tasks and settles those that are over. One stat(2) while its task
        folder does not change."""
        folder = self.workspace.tasks.directory(agent_id)
        folder.entries()
        if self._repaired.get(agent_id) == folder.version:
            return
        seen = folder.version
        for _, task in folder.open_entities():
            if task.interrupt_id is not None:
                self.ensure(task)
        self.settle(agent_id)
        self._repaired[agent_id] = seen

    def settle(self, agent_id: str) -> None:
        """Marks read those of an agent's interrupts that do not apply any more. Never raises: they are not shown, and
        the next reader tries again."""
        try:
            inbox = self.workspace.notices(agent_id)
            if any(not self.applies(notice) for _, notice in inbox.unread()):
                with self.workspace.locks.held(inbox.lock):
                    over = [name for name, notice in inbox.unread() if not self.applies(notice)]
                    inbox.mark_read(over, self.clock())
        except Refusal as refusal:
            logger.warning("interrupts of %s that are over are not marked read yet: %s", agent_id, refusal)

    def pause(self, agent_id: str, task_id: str | None) -> Notification:
        """Asks an agent to pause. The task's status stays."""
        return self._deliver(agent_id, "interrupt.pause", type="interrupt", action="pause", task_id=task_id)

    def stop(self, agent_id: str, action: str) -> Notification:
        """Interrupts an agent that has no task to be blocked or cancelled."""
        return self._deliver(agent_id, f"interrupt.{action}", type="interrupt", action=action)

    def tell_reassigned(self, agent_id: str, task_id: str, notice_id: str) -> None:
        """Notifies an agent, once, that the task it works on was given to somebody else. Not an interrupt: the task
        goes on."""
        if self.workspace.notices(agent_id).find(notice_id) is None:
            self._deliver(agent_id, "reassigned", id=notice_id, type="status_change", task_id=task_id)

    def applies(self, notice: Notification) -> bool:
        """Whether an interrupt is still to be shown: not when its task has been reopened, finished, or interrupted anew
        since."""
        if not notice.interrupts or notice.task_id is None:
            return True
        try:
            task = self.workspace.tasks.get(notice.task_id)
        except TaskNotFound:
            return True
        if notice.action == "pause":
            return not task.final
        if notice.action not in INTERRUPT_ACTIONS.values():
            return True
        return INTERRUPT_ACTIONS.get(task.status) == notice.action and task.interrupt_id in (None, notice.id)

    def _deliver(self, agent_id: str, text: str, **fields: Any) -> Notification:
        """Writes a notification to the agent's task session with the message and the instruction of this text key."""
        notice = Notification(
            **{"id": new_id("ntf"), **fields},
            target_agent_id=agent_id,
            target_purpose="task",
            message=self.texts(f"{text}.message"),
            created_at=self.clock(),
            instruction=self.texts(f"{text}.instruction"),
        )
        self.deliver(notice)
        return notice

    def _made_from(self, task: Task) -> Notification | None:
        action = INTERRUPT_ACTIONS.get(task.status)
        if action is None or task.assignee_id not in self.workspace.registry.all():
            return None  # a hand-written assignee may be anything
        return task.interrupt(self.texts(f"interrupt.{action}.message"), self.texts(f"interrupt.{action}.instruction"))
