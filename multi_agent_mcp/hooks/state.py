"""The hook state: what an agent has not read, and what of it `hook` has announced already."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from multi_agent_mcp.domain.delivery import Ring, UnreadItem
from multi_agent_mcp.domain.message import Message
from multi_agent_mcp.domain.notification import Notification
from multi_agent_mcp.domain.times import format_time


@dataclass(frozen=True)
class Unread:
    """What an agent has not read yet: notifications, newest first, and mail in reading order."""

    notices: Sequence[Notification]
    mail: Sequence[Message]

    @property
    def interrupts(self) -> list[Notification]:
        return [notice for notice in self.notices if notice.interrupts]

    @property
    def pressing(self) -> set[str]:
        """The ids of what an agent must not end its turn over: interrupts and urgent mail."""
        return ids(self.interrupts) | {message.id for message in self.mail if message.priority == "urgent"}

    @property
    def all_ids(self) -> set[str]:
        return ids(self.notices) | ids(self.mail)

    def without(self, item_ids: set[str]) -> Unread:
        return Unread(
            [notice for notice in self.notices if notice.id not in item_ids],
            [message for message in self.mail if message.id not in item_ids],
        )


@dataclass
class HookState:
    """`announced` by any event, `stopped` what an end of the turn was prevented over, `ring` the last
    announcement that reached the model, `host_session` the host's own id of its session. In the file `announced` is
    `told`."""

    announced: set[str]
    stopped: set[str]
    ring: Ring | None
    host_session: str | None

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> HookState:
        """From the file; one that makes no sense is as good as none."""
        try:
            ring = facts.get("ring") or {}
            announced, stopped = (set(map(str, facts.get(key, ()))) for key in ("told", "stopped"))
            return cls(announced, stopped, Ring.of(ring), facts.get("host_session"))
        except (AttributeError, TypeError, ValueError):
            return cls(set(), set(), None, None)

    def forget_all_but(self, unread: set[str]) -> None:
        self.announced &= unread
        self.stopped &= unread

    def rung(self, at: datetime, item_ids: Iterable[str], attempt: int = 1) -> None:
        self.ring = Ring(at, frozenset(item_ids), attempt)

    def speaks(self, unread: Unread) -> list[str]:
        """The events that have something to say even if nothing is added."""
        events = ["PreToolUse"] if unread.interrupts else []
        events += ["PostToolUse", "UserPromptSubmit"] if unread.all_ids - self.announced else []
        return events + (["Stop"] if unread.pressing - self.stopped else [])

    def facts(self) -> dict[str, Any]:
        """As it is written."""
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
        }


def ids(items: Iterable[Message] | Iterable[Notification] | Iterable[UnreadItem]) -> set[str]:
    return {item.id for item in items}
