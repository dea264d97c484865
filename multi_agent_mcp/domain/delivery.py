"""The delivery states of a message, `stored → rung → submitted → read`, and the decision when to ring again
(docs/protocol.md, Delivery states, When to ring)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, NamedTuple, Protocol, TypeVar

from multi_agent_mcp.domain.agent import PURPOSES
from multi_agent_mcp.domain.entity import EPOCH
from multi_agent_mcp.domain.message import Message
from multi_agent_mcp.domain.times import parse_time

if TYPE_CHECKING:
    from multi_agent_mcp.domain.notification import Notification

DeliveryState = Literal["waiting", "queued", "stored", "rung", "submitted", "read"]


class Delivery(NamedTuple):
    """The outcome of one attempt to ring. `rung`: the line is in the pane (or a desktop notice was shown).
    `submitted`: it was also entered. `queued`: the message is for another machine, and the hub does not have it yet.
    Only the recipient's own reading proves `read`. `reason` says why it got no further."""

    state: DeliveryState = "stored"
    reason: str | None = None
    entered_after: timedelta | None = None
    """The time from the start of the attempt to the Enter, without the verification after it."""
    left: bool = False
    """Whether a line of ours was left in a composer, typed but not entered: a later attempt must enter it."""

    def as_answer(self) -> dict[str, Any]:
        return {"state": self.state} if self.reason is None else {"state": self.state, "reason": self.reason}


class ChannelReport(NamedTuple):
    """One channel of an agent's chain, and the reason why it could not ring now (None: it could)."""

    name: str
    reason: str | None = None


class Pauses(NamedTuple):
    """The pauses between doorbells about unread items: `shortest` after the first, doubling up to `longest`."""

    shortest: timedelta
    longest: timedelta


OFFLINE = "offline"
"""The state of the screen of a host that cannot reach its model, and the reason to ring nobody there."""
LIFELESS = frozenset(
    {"no_pane", "pane_gone", "pane_changed", "pane_dead", "tmux_gone", "tmux_restarted", "no_tmux", "shell"}
)
"""Reasons for which a pane cannot be seen that mean that no agent runs there."""
NAMED = 200
"""The most items that a log entry names. For more, the time of the newest is recorded, so that no entry holds a hundred
thousand ids."""


class Ring(NamedTuple):
    """One doorbell that reached its recipient: its time, its items, and its number among repeated attempts. `until`, if
    there were more than `NAMED` items, is the creation time of the newest."""

    at: datetime
    item_ids: frozenset[str]
    attempt: int = 1
    until: datetime | None = None

    @classmethod
    def of(cls, entry: Mapping[str, Any]) -> Ring | None:
        """Parses an entry of the delivery log or the hook state; None for an invalid one, possibly hand-written."""
        at, attempt = parse_time(entry.get("at")), entry.get("attempt", 1)
        if at is None or not isinstance(attempt, int):
            return None
        return cls(at, frozenset(item_ids_of(entry)), max(attempt, 1), parse_time(entry.get("until")))

    def announced(self, item: UnreadItem) -> bool:
        """Whether the ring was about this item, among others."""
        return item.id in self.item_ids or (self.until is not None and item.created_at <= self.until)

    def rests_for(self, now: datetime, pauses: Pauses) -> timedelta:
        """How long the next ring waits while this one is outstanding: 0 when the pause is over, or when this ring is in
        the future by more than the shortest pause: after the clock was set back, the next ring must not wait until it
        has caught up."""
        if self.at - now > pauses.shortest:
            return timedelta(0)
        doubled = pauses.shortest.total_seconds() * (1 << min(self.attempt - 1, 30))
        pause = timedelta(seconds=min(doubled, pauses.longest.total_seconds()))
        return max(pause - max(now - self.at, timedelta(0)), timedelta(0))


def item_ids_of(entry: Mapping[str, Any]) -> list[str]:
    """The ids of the messages and notifications that an entry of the delivery log names."""
    items = entry.get("messages")
    return [str(item_id) for item_id in items] if isinstance(items, list) else []


class About(NamedTuple):
    """What a ring announces, for programs: known words and ids only, never what an agent wrote. Both are empty for
    several things at once. `traceparent` is the trace of the call that caused it, if it is known."""

    kind: str = ""
    id: str = ""
    traceparent: str | None = None


MANY = About()


class UnreadItem(Protocol):
    """An unread message or notification, which a doorbell can announce."""

    @property
    def id(self) -> str: ...

    @property
    def created_at(self) -> datetime: ...

    @property
    def purposes(self) -> Sequence[str]:
        """The purposes of the sessions that can read the item; it is announced in the first of them that lives."""
        ...


Item = TypeVar("Item", bound=UnreadItem)


class UnreadNotification(NamedTuple):
    """A notification that its target has not read yet. `sender_id` is None if the system caused it."""

    id: str
    sender_id: str | None
    type: str
    action: str | None
    purposes: tuple[str, ...]
    created_at: datetime = EPOCH
    question_id: str | None = None

    @classmethod
    def of(cls, notice: Notification) -> UnreadNotification:
        return cls(
            id=notice.id,
            sender_id=notice.sender_id,
            type=notice.type,
            action=notice.action,
            purposes=tuple(filter(notice.meant_for, PURPOSES)),
            created_at=notice.created_at,
            question_id=notice.question_id,
        )


class FirstPrompt(NamedTuple):
    """The prompt that a window's host began with, to be repeated once if its first turn ended without a call."""

    id: str
    created_at: datetime
    purposes: tuple[str, ...]


class GoOn(NamedTuple):
    """What an agent that holds a task and has nothing unread is told once when its usage limit was reset."""

    id: str
    created_at: datetime
    purposes: tuple[str, ...] = ("task",)


DoorbellItem = Message | UnreadNotification | FirstPrompt | GoOn


UNTAKEN: Final = "waiting"
"""The delivery state of what waits for whoever becomes free."""
TAKEN = "taken"
"""The state of a task, question or delegation that was for whoever is free, once somebody has it."""


@dataclass(frozen=True)
class Due(Generic[Item]):
    """The decision about a doorbell: ring about `items` now, or decide again `after` a pause (None: nothing is due)."""

    items: tuple[Item, ...] = ()
    attempt: int = 1
    after: timedelta | None = None


def due(unread: Sequence[Item], rings: Iterable[Ring | None], now: datetime, pauses: Pauses) -> Due[Item]:
    """Decides whether to ring, for servers, senders and waiters (docs/protocol.md, When to ring). Of `rings`, the last
    ones of several sources, the latest counts. It is outstanding while an item that it announced is unread, and then
    the next ring waits for a pause. Nothing unread means no ring."""
    last = latest(rings, now)
    if not unread:
        return Due()
    if last is None or not any(item.id in last.item_ids for item in unread):
        return Due(tuple(unread))
    remaining = last.rests_for(now, pauses)
    return Due(after=remaining) if remaining else Due(tuple(unread), last.attempt + 1)


def latest(rings: Iterable[Ring | None], now: datetime) -> Ring | None:
    """The latest ring, or None. A ring in the future is from before the clock was set back, and counts as older than
    all others."""
    return max(filter(None, rings), key=lambda ring: (ring.at <= now, ring.at), default=None)
