"""The record of the unread mail and notifications that `hook` has announced.

For mail it is mainly a point in time, before which everything has been announced. So neither the record nor a lookup
grows with the amount of unread mail.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any

from multi_agent_mcp.domain.delivery import NAMED, Ring, UnreadItem
from multi_agent_mcp.domain.message import Message
from multi_agent_mcp.domain.notification import Notification
from multi_agent_mcp.domain.times import format_time
from multi_agent_mcp.system.file_status import RACY_NS


@dataclass(frozen=True)
class Unread:
    """The unread items that an event may have to announce: notifications, newest first, and mail in reading order."""

    notices: Sequence[Notification]
    mail: Sequence[Message]

    @property
    def interrupts(self) -> list[Notification]:
        return [notice for notice in self.notices if notice.interrupts]

    @property
    def pressing(self) -> set[str]:
        """The ids of the items that prevent the end of a turn: interrupts and urgent mail."""
        return ids(self.interrupts) | {message.id for message in self.mail if message.priority == "urgent"}

    @cached_property
    def all_ids(self) -> set[str]:
        return ids(self.notices) | ids(self.mail)

    def without(self, item_ids: set[str]) -> Unread:
        if item_ids.isdisjoint(self.all_ids):
            return self
        return Unread(
            [notice for notice in self.notices if notice.id not in item_ids],
            [message for message in self.mail if message.id not in item_ids],
        )


@dataclass(frozen=True)
class ChangedMail:
    """An unread file of the mailbox and when it was last changed (nanoseconds)."""

    name: str
    message: Message
    at: int


@dataclass
class HookState:
    """The state of announcements. `announced` are the ids announced by any event, `stopped` those for which the end of
    a turn was prevented, `ring` is the last announcement that reached the model, `host_session` the host's own id of
    its session.

    `until`: mail from before this time (in nanoseconds, by the mailbox's own time) was announced, and is not in
    `announced`; `urgent` are the files of such mail that still have to prevent the end of a turn. In the file,
    `announced` is called `told`.
    """

    announced: set[str] = field(default_factory=set)
    stopped: set[str] = field(default_factory=set)
    ring: Ring | None = None
    host_session: str | None = None
    until: int = 0
    urgent: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> HookState:
        """Parses the file's content; anything invalid gives an empty state."""
        try:
            announced, stopped = (set(map(str, facts.get(key, ()))) for key in ("told", "stopped"))
            urgent = [str(name) for name in facts.get("urgent", ()) if "/" not in str(name)]
            ring, until = Ring.of(facts.get("ring") or {}), int(facts.get("until", 0))
            return cls(announced, stopped, ring, facts.get("host_session"), until, urgent)
        except (AttributeError, TypeError, ValueError, OverflowError):
            return cls()

    def since(self, seen: int) -> int:
        """The time from which mail must be examined, given that the mailbox last changed at `seen`: 0, the beginning,
        if the clock was set back."""
        return self.until if self.until <= seen else 0

    def forget_all_but(self, unread: set[str]) -> None:
        self.announced &= unread
        self.stopped &= unread

    def announce(self, item_ids: Iterable[str], at: datetime) -> None:
        self.announced.update(item_ids)
        self.rung(at, item_ids)

    def rung(self, at: datetime, item_ids: Iterable[str], attempt: int = 1) -> None:
        """Records a ring, which is outstanding while one of these items, or of an earlier ring's, is unread."""
        earlier = self.ring.item_ids if self.ring else frozenset[str]()
        self.ring = Ring(at, frozenset([*dict.fromkeys([*item_ids, *earlier])][:NAMED]), attempt)

    def remember(self, mail: Sequence[ChangedMail], notices: Sequence[Notification], seen: int) -> None:
        """Records that the examined mail was announced, if all of it was: then it need not be examined again, except
        what may have arrived at the same moment."""
        if all(item.message.id in self.announced for item in mail):
            self.until = seen
        border = self.until - RACY_NS
        pressing = (item for item in mail if item.message.priority == "urgent" and item.at <= border)
        self.urgent = [item.name for item in pressing if item.message.id not in self.stopped]
        self.forget_all_but(ids(notices) | {item.message.id for item in mail if item.at > border})

    def speaks(self, unread: Unread) -> list[str]:
        """The events that have something to announce even if nothing new arrives."""
        events = ["PreToolUse"] if unread.interrupts else []
        events += ["PostToolUse", "UserPromptSubmit"] if unread.all_ids - self.announced else []
        return events + (["Stop"] if unread.pressing - self.stopped else [])

    def facts(self) -> dict[str, Any]:
        """The content of the file."""
        ring = self.ring and {
            "at": format_time(self.ring.at),
            "messages": sorted(self.ring.item_ids),
            "attempt": self.ring.attempt,
        }
        return {
            "told": sorted(self.announced),
            "stopped": sorted(self.stopped),
            "ring": ring,
            "host_session": self.host_session,
            "until": self.until,
            "urgent": self.urgent,
        }


def ids(items: Iterable[Message] | Iterable[Notification] | Iterable[UnreadItem]) -> set[str]:
    return {item.id for item in items}
