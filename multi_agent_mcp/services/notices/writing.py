"""Writes notifications, with texts of the catalogue, each one once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from multi_agent_mcp.domain.notification import Notification
from multi_agent_mcp.services.mail.remote_delivery import Parcel, remote_delivery
from multi_agent_mcp.store.inbox import deliver_all, file_name
from multi_agent_mcp.store.workspace import Workspace
from multi_agent_mcp.texts import Texts


@dataclass(eq=False)
class NoticeWriter:
    """Stores notifications and rings for them; all notifications are written here."""

    workspace: Workspace
    texts: Texts
    ring: Callable[[Notification], None]
    """Rings the target's doorbell for a notification that is safely stored. Never raises."""

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
        path = self.workspace.notices(notice.target_agent_id).path / file_name(notice)
        remote_delivery(self.workspace, [Parcel(notice.target_agent_id, notice.id, path)])
        self.ring(notice)

    def _delivered(self, notices: Sequence[Notification]) -> Sequence[Notification]:
        """Those of the notifications that were written."""
        if len(notices) > 1:
            with suppress(FileExistsError):  # another process was faster: continue one by one
                deliver_all([(self.workspace.notices(notice.target_agent_id), notice) for notice in notices])
                return notices
        return [notice for notice in notices if self._deliver(notice)]

    def _deliver(self, notice: Notification) -> bool:
        try:
            self.workspace.notices(notice.target_agent_id).deliver(notice)
        except FileExistsError:
            return False
        return True

    def is_there(self, notice: Notification) -> bool:
        return self.workspace.notices(notice.target_agent_id).has(notice)

    def worded(self, notice: Notification, text: str) -> Notification:
        """The notification with the message and the instruction of this text key."""
        return replace(notice, message=self.texts(f"{text}.message"), instruction=self.texts(f"{text}.instruction"))

    def _addressed(self, notice: Notification) -> Notification:
        target = self.workspace.registry.all().get(notice.target_agent_id)
        human = target is not None and target.type == "human"
        anywhere = human and notice.target_purpose == "task" and not notice.interrupts
        return replace(notice, target_purpose=None) if anywhere else notice
