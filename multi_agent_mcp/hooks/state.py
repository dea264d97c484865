"""What an agent has not read, and what of it `hook` has told it already."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from multi_agent_mcp.domain.delivery import Ring
from multi_agent_mcp.domain.message import Message
from multi_agent_mcp.domain.times import format_time


@dataclass(frozen=True)
class UnreadItems:
    """What an agent has not read yet: notifications as `get_notifications` shows them, mail in reading order."""

    notices: Sequence[Mapping[str, Any]]
    mail: Sequence[Message]

    @property
    def interrupts(self) -> list[Mapping[str, Any]]:
        return [notice for notice in self.notices if notice["type"] == "interrupt"]

    @property
    def pressing(self) -> set[str]:
        """The ids of what an agent must not end its turn over: interrupts and urgent mail."""
        return ids(self.interrupts) | {message.id for message in self.mail if message.priority == "urgent"}

    @property
    def all_ids(self) -> set[str]:
        return ids(self.notices) | {message.id for message in self.mail}

    def without(self, told: set[str]) -> UnreadItems:
        return UnreadItems(
            [notice for notice in self.notices if notice["id"] not in told],
            [message for message in self.mail if message.id not in told],
        )


@dataclass
class HookState:
    """What was told already, as `hook` keeps it in its state file: `told` by any event, `stopped` what an end of the
    turn was prevented over, `ring` the last announcement of mail that reached the model."""

    told: set[str]
    stopped: set[str]
    ring: Ring | None
    host_session: str | None

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> HookState:
        """From the file; one that makes no sense is as good as none."""
        try:
            ring = facts.get("ring") or {}
            told, stopped = (set(map(str, facts.get(key, ()))) for key in ("told", "stopped"))
            return cls(told, stopped, Ring.of(ring), facts.get("host_session"))
        except (AttributeError, TypeError, ValueError):
            return cls(set(), set(), None, None)

    def forget_all_but(self, unread: set[str]) -> None:
        self.told &= unread
        self.stopped &= unread

    def rung(self, at: datetime, message_ids: Iterable[str], attempt: int = 1) -> None:
        self.ring = Ring(at, frozenset(message_ids), attempt)

    def facts(self, news: UnreadItems) -> dict[str, Any]:
        """As it is written. `speaks` are the events that have something to say even if nothing is added."""
        speaks = ["PreToolUse"] if news.interrupts else []
        speaks += ["PostToolUse", "UserPromptSubmit"] if news.all_ids - self.told else []
        speaks += ["Stop"] if news.pressing - self.stopped else []
        ring = self.ring and {
            "at": format_time(self.ring.at),
            "messages": sorted(self.ring.message_ids),
            "attempt": self.ring.attempt,
        }
        return {
            "speaks": speaks,
            "told": sorted(self.told),
            "stopped": sorted(self.stopped),
            "ring": ring,
            "host_session": self.host_session,
        }


def ids(notices: Iterable[Mapping[str, Any]]) -> set[str]:
    return {str(notice["id"]) for notice in notices}
