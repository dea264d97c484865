"""Writes notifications, with texts of the catalogue, each one once; interrupts, and warnings of loops among them."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from multi_agent_mcp.domain.entity import new_id
from multi_agent_mcp.domain.notification import PAUSING, Notification, derived_id
from multi_agent_mcp.session import Service
from multi_agent_mcp.store.inbox import deliver_all, file_name

logger = logging.getLogger(__name__)


@dataclass(eq=False)
class NoticeWriter(Service):
    """Stores notifications and rings for them; all notifications are written here."""

    def ring(self, notice: Notification) -> None:
        """Rings the target's doorbell for a notification that is safely stored. Never raises."""
        self.contributions.tell("notified", notice)

    def put(self, notice: Notification, text: str | None = None) -> Notification:
        """Writes a notification and rings, unless it exists, even read and archived. With `text` it gets the message
        and the instruction of this text key; a person's may be read in sessions of either purpose."""
        notice = self._addressed(notice if text is None else self.worded(notice, text))
        self._write(notice)
        return notice

    def put_all(self, notices: Iterable[tuple[Notification, str]]) -> None:
        """As `put`, for notifications with their texts, which are made durable together before anybody is rung."""
        worded = [self._addressed(self.worded(notice, text)) for notice, text in notices]
        lacking = [notice for notice in worded if not self.is_there(notice)]
        for notice in self._delivered(lacking):
            self._ring(notice)

    def put_new(self, notice: Notification, text: str) -> bool:
        """As `put`; returns whether the notification was written."""
        return self._write(self._addressed(self.worded(notice, text)))

    def put_first(self, notice: Notification) -> bool:
        """As `put`, unless a notification with this id exists, of any time. Returns whether it was written: of several
        concurrent writers one succeeds."""
        notice = self._addressed(notice)
        inbox = self.workspace.notices(notice.target_agent_id)
        with self.workspace.locks.held(inbox.lock):
            written = inbox.find(notice.id) is None and self._deliver(notice)
        if written:
            self._ring(notice)
        return written

    def _write(self, notice: Notification) -> bool:
        if self.is_there(notice) or not self._deliver(notice):
            return False
        self._ring(notice)
        return True

    def _ring(self, notice: Notification) -> None:
        if self.workspace.authority.here is not None:
            from multi_agent_mcp.services.mail import Parcel, remote_delivery  # a hook on one machine needs none

            path = self.workspace.notices(notice.target_agent_id).path / file_name(notice)
            remote_delivery(self.workspace, [Parcel(notice.target_agent_id, notice.id, path)])
        self.ring(notice)

    def _delivered(self, notices: Sequence[Notification]) -> Sequence[Notification]:
        """Those of the notifications that were written."""
        if len(notices) > 1:
            with suppress(FileExistsError):  # another process was faster: continue one by one
                pairs = [(self.workspace.notices(notice.target_agent_id), notice) for notice in notices]
                deliver_all(pairs)
                return [notice for inbox, notice in pairs if not inbox.take_back(notice)]
        return [notice for notice in notices if self._deliver(notice)]

    def _deliver(self, notice: Notification) -> bool:
        """Writes it; returns False if another process has: its target may even have read it since somebody looked."""
        inbox = self.workspace.notices(notice.target_agent_id)
        try:
            inbox.deliver(notice)
        except FileExistsError:
            return False
        return not inbox.take_back(notice)

    def is_there(self, notice: Notification) -> bool:
        return self.workspace.notices(notice.target_agent_id).has(notice)

    def worded(self, notice: Notification, text: str) -> Notification:
        """The notification with the message and the instruction of this text key; its action in place of words that a
        feature of another package has forgotten."""
        keys = f"{text}.message", f"{text}.instruction"
        message, instruction = (self.texts(key) if key in self.texts else str(notice.action) for key in keys)
        return replace(notice, message=message, instruction=instruction)

    def _addressed(self, notice: Notification) -> Notification:
        target = self.workspace.registry.all().get(notice.target_agent_id)
        human = target is not None and target.type == "human"
        anywhere = human and notice.target_purpose == "task" and not notice.interrupts
        return replace(notice, target_purpose=None) if anywhere else notice


# Notifications that somebody requests and that follow from no file: pausing, resuming and stopping an agent, and a task
# that was reassigned (docs/protocol.md, Interrupts).


@dataclass(eq=False)
class Interrupts(Service):
    """Interrupts that do not follow from a task's file."""

    writer: NoticeWriter

    def pause(self, agent_id: str, task_id: str | None, **cause: str | None) -> Notification:
        """Asks an agent to pause; the task's status stays. `cause` may hold `sender_id` and `reason`."""
        fields = {"type": "interrupt", "action": "pause", "task_id": task_id, **cause}
        return self._put(agent_id, "interrupt.pause", created_at=self._next_moment(agent_id), **fields)

    def pause_once(self, notice_id: str, agent_id: str, task_id: str | None, reason: str) -> Notification | None:
        """As `pause`, by the system; None if a notification with this id exists, of any time."""
        notice = Notification(
            id=notice_id,
            target_agent_id=agent_id,
            target_purpose="task",
            type="interrupt",
            action="pause",
            task_id=task_id,
            created_at=self._next_moment(agent_id),
            reason=reason,
        )
        notice = self.writer.worded(notice, "interrupt.pause")
        return notice if self.writer.put_first(notice) else None

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
        return self._put(agent_id, "interrupt.stop", type="interrupt", action=action, **cause)

    def tell_reassigned(self, agent_id: str, task_id: str, notice_id: str, by: str | None = None) -> None:
        """Notifies an agent, once, that the task it works on was reassigned. Not an interrupt: the task continues."""
        if self.workspace.notices(agent_id).find(notice_id) is None:
            self._put(agent_id, "reassigned", id=notice_id, type="status_change", task_id=task_id, sender_id=by)

    def newest_of_pausing(self, agent_id: str) -> Notification | None:
        """The agent's newest pause or resumption, or None."""
        return max(self._pausing(agent_id), key=lambda notice: notice.created_at, default=None)

    def _pausing(self, agent_id: str) -> list[Notification]:
        return [notice for _, notice in self.workspace.notices(agent_id).hot.entities() if notice.action in PAUSING]

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
