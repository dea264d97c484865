"""Notifications that somebody wants at this moment, and that follow from no file: pausing and stopping an agent, going
on, a task that was given to somebody else (docs/protocol.md, Interrupts)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from multi_agent_mcp.domain.ids import new_id
from multi_agent_mcp.domain.notification import Notification
from multi_agent_mcp.services.notices.writing import NoticeWriter
from multi_agent_mcp.store.workspace import Workspace


@dataclass(eq=False)
class Interrupts:
    """Interrupts that no task carries."""

    workspace: Workspace
    writer: NoticeWriter
    clock: Callable[[], datetime]

    def pause(self, agent_id: str, task_id: str | None, **cause: str | None) -> Notification:
        """Asks an agent to pause. The task's status stays. `cause`: `sender_id`, `reason`."""
        return self._put(agent_id, "interrupt.pause", type="interrupt", action="pause", task_id=task_id, **cause)

    def stop(self, agent_id: str, action: str, **cause: str | None) -> Notification:
        """Interrupts an agent that has no task to be blocked or cancelled. `cause` as in `pause`."""
        return self._put(agent_id, f"interrupt.{action}", type="interrupt", action=action, **cause)

    def tell_reassigned(self, agent_id: str, task_id: str, notice_id: str, by: str | None = None) -> None:
        """Notifies an agent, once, that the task it works on was given to somebody else. Not an interrupt: the task
        goes on."""
        if self.workspace.notices(agent_id).find(notice_id) is None:
            self._put(agent_id, "reassigned", id=notice_id, type="status_change", task_id=task_id, sender_id=by)

    def _put(self, agent_id: str, text: str, **fields: Any) -> Notification:
        """Writes a notification to the agent's task session with the message and the instruction of this text key."""
        notice = Notification(
            **{"id": new_id("ntf"), **fields},
            target_agent_id=agent_id,
            target_purpose="task",
            created_at=self.clock(),
        )
        return self.writer.put(notice, text)
