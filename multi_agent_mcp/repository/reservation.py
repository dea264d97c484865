"""Reservations: files that an agent has to itself for a while, and edits of files (docs/protocol.md, Reservations,
Edits)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import ClassVar

from multi_agent_mcp.domain.entity import EPOCH, Identified, age
from multi_agent_mcp.domain.notification import Notification, derived_id
from multi_agent_mcp.domain.patterns import can_overlap
from multi_agent_mcp.errors import ReservationNotFound
from multi_agent_mcp.store.partition import WHOLE, Layout

RESERVATION_CONFLICT, RESERVATION_ENDED = "reservation_conflict", "reservation_ended"
CLAIMS = "rsvs.open"
"""The key of the open reservations on a hub, where they are enforced: each one is decided by replacing that value."""
RELEASED, TASK_ENDED, HOLDER_GONE, EXPIRED = "released", "task_ended", "holder_gone", "expired"


@dataclass(frozen=True, kw_only=True)
class Reservation(Identified):
    """A reservation. `released_at` is when it ended, `ended` why. `session_id` is the agent session that made it; None
    for one that a person made by a command. `asked_by` are the agents to whom it was named as a conflict. `ended_by`
    and `ended_at` are decided with `ended`, before anybody is told, so that all machines tell the same."""

    LEFT_OUT: ClassVar[frozenset[str]] = frozenset({"session_id", "asked_by", "ended", "ended_by", "ended_at"})

    id: str
    agent_id: str = ""
    task_id: str | None = None
    patterns: tuple[str, ...] = ()
    reason: str | None = None
    created_at: datetime = EPOCH
    expires_at: datetime | None = None
    released_at: datetime | None = None
    session_id: str | None = None
    asked_by: tuple[str, ...] | None = None
    ended: str | None = None
    ended_by: str | None = None
    ended_at: datetime | None = None

    @property
    def is_open(self) -> bool:
        return self.released_at is None

    def has_expired(self, at: datetime) -> bool:
        return self.expires_at is not None and at >= self.expires_at

    def decide(self, at: datetime, why: str, by: str | None) -> Reservation:
        """The reservation that is to end, once everybody was notified; the first end counts."""
        is_new = self.is_open and self.ended is None
        return replace(self, ended=why, ended_by=by, ended_at=at) if is_new else self

    def end(self) -> Reservation:
        """The reservation after its end, which was decided."""
        return replace(self, released_at=self.ended_at) if self.is_open else self

    def asked_for_by(self, agent_id: str) -> Reservation:
        known = self.asked_by or ()
        return self if agent_id in known or not self.is_open else replace(self, asked_by=(*known, agent_id))

    def overlaps(self, other: Reservation) -> bool:
        """Whether both can match the same file."""
        return can_overlap(self.patterns, other.patterns)


def reservations() -> Layout[Reservation]:
    """How reservations are kept."""
    return Layout(
        entity_type=Reservation,
        partition=lambda _: WHOLE,
        missing=lambda reservation_id: ReservationNotFound(reservation_id=reservation_id),
        flat=True,
        over=lambda reservation: "" if reservation.is_open else reservation.ended or RELEASED,
        order=age,
    )


def reservation_notice(
    action: str, subject: Reservation, target_id: str, by: str | None, at: datetime, reason: str, *cause: str
) -> Notification:
    """A notification about a reservation, without its text, one for each cause and target."""
    return Notification(
        id=derived_id(action, subject.id, target_id, *cause),
        target_agent_id=target_id,
        target_purpose=None,
        type="status_change",
        action=action,
        task_id=subject.task_id if subject.agent_id == target_id else None,
        created_at=at,
        sender_id=by,
        reason=reason,
    )


# Files that several agents edit (docs/protocol.md, Edits).

EDIT_OVERLAP = "edit_overlap"


@dataclass(frozen=True)
class FileEdit:
    """An edit of one file by an agent, while it worked on a task (None: on none)."""

    path: str
    repository: str | None
    agent_id: str
    task_id: str | None
    at: datetime


def episode(edits: Sequence[FileEdit], window: timedelta) -> list[FileEdit]:
    """The edits of one file that belong together with the last one, oldest first: without a gap of `window`."""
    ordered = sorted(edits, key=lambda edit: (edit.at, edit.agent_id))
    for index in range(len(ordered) - 1, 0, -1):
        if ordered[index].at - ordered[index - 1].at > window:
            return ordered[index:]
    return ordered


def overlap_notice(of: Sequence[FileEdit], target: FileEdit, other_id: str, reason: str) -> Notification:
    """The notification of an agent that another one edits the same file in this episode, without its text."""
    first, last = of[0], of[-1]
    return Notification(
        id=derived_id(EDIT_OVERLAP, first.repository, first.path, first.at, first.agent_id, target.agent_id),
        target_agent_id=target.agent_id,
        target_purpose=None,
        type="status_change",
        action=EDIT_OVERLAP,
        task_id=target.task_id,
        created_at=last.at,
        sender_id=other_id,
        reason=reason,
    )
