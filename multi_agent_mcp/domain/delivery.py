"""How far a message got, honestly: `stored → rung → submitted → read`, and when to ring again
(docs/protocol.md, Delivery states, When to ring)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from multi_agent_mcp.domain.times import parse_time

DeliveryState = Literal["stored", "rung", "submitted", "read"]


@dataclass(frozen=True)
class Delivery:
    """`rung`: the line stands in the pane (or a desktop notice was shown). `submitted`: it was also entered. Only the
    recipient's own reading proves `read`. `reason` says why it got no further."""

    state: DeliveryState = "stored"
    reason: str | None = None
    entered_after: timedelta | None = None
    """From the beginning of the ring to the Enter; what follows is only looking whether it worked."""
    left: bool = False
    """A line of ours was left in a composer, typed but not entered: it must be entered later."""

    def as_answer(self) -> dict[str, Any]:
        return {"state": self.state} if self.reason is None else {"state": self.state, "reason": self.reason}


@dataclass(frozen=True)
class ChannelReport:
    """A channel of an agent, and why it could not ring at this moment; None: it could."""

    name: str
    reason: str | None = None


@dataclass(frozen=True)
class Ring:
    """A doorbell that reached its recipient, from the delivery log: when, about which messages, which attempt."""

    at: datetime
    message_ids: frozenset[str]
    attempt: int = 1

    @classmethod
    def of(cls, entry: Mapping[str, Any]) -> Ring | None:
        """From an entry of the delivery log, which may be edited by hand; None for what makes no sense."""
        at, attempt = parse_time(entry.get("at")), entry.get("attempt", 1)
        if at is None or not isinstance(attempt, int):
            return None
        return cls(at, frozenset(message_ids_of(entry)), max(attempt, 1))

    def rests_for(self, now: datetime, pause: timedelta, longest: timedelta) -> timedelta:
        """How long the next one waits while this one is outstanding: a pause that doubles from `pause` up to
        `longest`. Zero when it is over, or when the clock was set back by more than a small step since: a ring that
        lies in the future must not silence the next until the clock has caught up."""
        if self.at - now > pause:
            return timedelta(0)
        seconds = min(pause.total_seconds() * (1 << min(self.attempt - 1, 30)), longest.total_seconds())
        remaining = timedelta(seconds=seconds) - max(now - self.at, timedelta(0))
        return max(remaining, timedelta(0))


def message_ids_of(entry: Mapping[str, Any]) -> list[str]:
    """The messages that an entry of the delivery log is about."""
    messages = entry.get("messages")
    return [str(message_id) for message_id in messages] if isinstance(messages, list) else []


@dataclass(frozen=True)
class UnreadMessage:
    """A message that is not read yet."""

    id: str
    sender_id: str
    message_type: str

    @property
    def purpose(self) -> str:
        """Which session of the receiver is meant: words in a conversation are for the chat session."""
        return "chat" if self.message_type == "conversation" else "task"


@dataclass(frozen=True)
class Due:
    """What to do about a recipient's doorbell now: ring about `messages`, or look again `after` a pause."""

    messages: tuple[UnreadMessage, ...] = ()
    attempt: int = 1
    after: timedelta | None = None


def due(unread: Iterable[UnreadMessage], last: Ring | None, now: datetime, pause: timedelta, longest: timedelta) -> Due:
    """At most one doorbell is outstanding: while a message it was about is unread, the next waits for a pause that
    doubles from `pause` up to `longest`. Nothing unread: nothing to ring about (docs/protocol.md, When to ring)."""
    waiting = tuple(unread)
    if not waiting:
        return Due()
    if last is None or not any(message.id in last.message_ids for message in waiting):
        return Due(waiting)
    remaining = last.rests_for(now, pause, longest)
    return Due(after=remaining) if remaining else Due(waiting, last.attempt + 1)
