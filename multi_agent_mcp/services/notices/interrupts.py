"""Notifications that somebody wants at this moment, and that follow from no file: pausing and stopping an agent, going
on, a task that was given to somebody else (docs/protocol.md, Interrupts)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from multi_agent_mcp.domain.derived_notifications import derived_id
from multi_agent_mcp.domain.ids import new_id
from multi_agent_mcp.domain.notification import Notification
from multi_agent_mcp.services.notices.writing import NoticeWriter
from multi_agent_mcp.store.workspace import Workspace

PAUSING = ("pause", "resume")


@dataclass(eq=False)
class Interrupts:
    """Interrupts that no task carries."""

    workspace: Workspace
    writer: NoticeWriter
    clock: Callable[[], datetime]

    def pause(self, agent_id: str, task_id: str | None, **cause: str | None) -> Notification:
        """Asks an agent to pause. The task's status stays. `cause`: `sender_id`, `reason`."""
        fields = {"type": "interrupt", "action": "pause", "task_id": task_id, **cause}
        return self._put(agent_id, "interrupt.pause", created_at=self._next_moment(agent_id), **fields)

    def resumption(self, pause: Notification, by: str) -> Notification:
        """What tells an agent that this pause is over; not written yet. Its id comes from the pause: of two who end it
        at once, one does."""
        notice = Notification(
            id=derived_id("resume", pause.id, pause.created_at),
            target_agent_id=pause.target_agent_id,
            target_purpose="task",
            type="status_change",
            action="resume",
            task_id=pause.task_id,
            created_at=self._next_moment(pause.target_agent_id),
            sender_id=by,
        )
        return self.writer.worded(notice, "notice.resume")

    def stop(self, agent_id: str, action: str, **cause: str | None) -> Notification:
        """Interrupts an agent that has no task to be blocked or cancelled. `cause` as in `pause`."""
        return self._put(agent_id, f"interrupt.{action}", type="interrupt", action=action, **cause)

    def tell_reassigned(self, agent_id: str, task_id: str, notice_id: str, by: str | None = None) -> None:
        """Notifies an agent, once, that the task it works on was given to somebody else. Not an interrupt: the task
        goes on."""
        if self.workspace.notices(agent_id).find(notice_id) is None:
            self._put(agent_id, "reassigned", id=notice_id, type="status_change", task_id=task_id, sender_id=by)

    def newest_of_pausing(self, agent_id: str) -> Notification | None:
        """The last pause or resumption of an agent."""
        return max(self._pausing(agent_id), key=lambda notice: notice.created_at, default=None)

    def is_overtaken(self, notice: Notification) -> bool:
        """Whether a pause was ended later, or a new one begun."""
        others = (other for other in self._pausing(notice.target_agent_id) if other.action != notice.action)
        return any(other.created_at > notice.created_at for other in others)

    def _pausing(self, agent_id: str) -> list[Notification]:
        inbox = self.workspace.notices(agent_id)
        unread = [notice for _, notice in inbox.unread() if notice.action in PAUSING]
        return unread + inbox.read_of(PAUSING)

    def _next_moment(self, agent_id: str) -> datetime:
        """Now, but after the last pause or resumption whatever the clock says: the newer one counts."""
        newest = self.newest_of_pausing(agent_id)
        now = self.clock()
        return now if newest is None else max(now, newest.created_at + timedelta.resolution)

    def _put(self, agent_id: str, text: str, **fields: Any) -> Notification:
        """Writes a notification to the agent's task session with the message and the instruction of this text key."""
        notice = Notification(
            **{"id": new_id("ntf"), "created_at": self.clock(), **fields},
            target_agent_id=agent_id,
            target_purpose="task",
        )
        return self.writer.put(notice, text)
