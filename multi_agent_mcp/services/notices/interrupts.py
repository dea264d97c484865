"""Notifications that somebody requests and that follow from no file: pausing, resuming and stopping an agent, and a
task that was reassigned (docs/protocol.md, Interrupts)."""

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
    """Interrupts that do not follow from a task's file."""

    workspace: Workspace
    writer: NoticeWriter
    clock: Callable[[], datetime]

    def pause(self, agent_id: str, task_id: str | None, **cause: str | None) -> Notification:
        """Asks an agent to pause; the task's status stays. `cause` may hold `sender_id` and `reason`."""
        fields = {"type": "interrupt", "action": "pause", "task_id": task_id, **cause}
        return self._put(agent_id, "interrupt.pause", created_at=self._next_moment(agent_id), **fields)

    def resumption(self, pause: Notification, by: str) -> Notification:
        """The notification that this pause is over, not written yet. Its id is derived from the pause's, so that of two
        concurrent attempts to end it one succeeds."""
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
        """Interrupts an agent that has no task to block or cancel. `cause` as in `pause`."""
        return self._put(agent_id, f"interrupt.{action}", type="interrupt", action=action, **cause)

    def tell_reassigned(self, agent_id: str, task_id: str, notice_id: str, by: str | None = None) -> None:
        """Notifies an agent, once, that the task it works on was reassigned. Not an interrupt: the task continues."""
        if self.workspace.notices(agent_id).find(notice_id) is None:
            self._put(agent_id, "reassigned", id=notice_id, type="status_change", task_id=task_id, sender_id=by)

    def newest_of_pausing(self, agent_id: str) -> Notification | None:
        """The agent's newest pause or resumption, or None."""
        return max(self._pausing(agent_id), key=lambda notice: notice.created_at, default=None)

    def is_overtaken(self, notice: Notification) -> bool:
        """Whether a later resumption ended this pause, or a later pause this resumption."""
        others = (other for other in self._pausing(notice.target_agent_id) if other.action != notice.action)
        return any(other.created_at > notice.created_at for other in others)

    def _pausing(self, agent_id: str) -> list[Notification]:
        inbox = self.workspace.notices(agent_id)
        unread = [notice for _, notice in inbox.unread() if notice.action in PAUSING]
        return unread + inbox.read_of(PAUSING)

    def _next_moment(self, agent_id: str) -> datetime:
        """The current time, but always after the last pause or resumption, even if the clock was set back: the newest
        one counts."""
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
