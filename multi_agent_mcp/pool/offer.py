"""Mail for whoever is free: an offer, until an agent has it (docs/protocol.md, Whoever is free)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import ClassVar

from multi_agent_mcp.domain.entity import EPOCH, Identified, age
from multi_agent_mcp.domain.notification import Notification, derived_id
from multi_agent_mcp.errors import MessageNotFound
from multi_agent_mcp.store.partition import WHOLE, Layout

NOT_TAKEN = "not_taken"
"""The action of the notification that nobody has taken an offer."""


@dataclass(frozen=True, kw_only=True)
class Offer(Identified):
    """A message for `@role` or `@any`, under its own id; the body is the message's file. `taken_by` is who gets it,
    which is decided once; `handed_at` when the message was in its mailbox. `about` is the task that it brings, or, of
    an offer without a message, the task, question or delegation that is offered: then its file decides who has it."""

    BODY: ClassVar[str | None] = "message"

    id: str
    to: str = ""
    sender_id: str = ""
    created_at: datetime = EPOCH
    taken_by: str | None = None
    taken_at: datetime | None = None
    handed_at: datetime | None = None
    about: str = ""
    message: str = ""

    def taken(self, agent_id: str, at: datetime) -> Offer:
        """The offer, for this agent; the first choice counts."""
        return self if self.taken_by else replace(self, taken_by=agent_id, taken_at=at)

    def taken_back(self, agent_id: str) -> Offer:
        """The offer, for nobody if it was for this agent and it has not been handed over."""
        is_its = self.taken_by == agent_id and not self.handed_at
        return replace(self, taken_by=None, taken_at=None) if is_its else self

    def handed(self, at: datetime) -> Offer:
        return self if self.handed_at else replace(self, handed_at=at)


def offers() -> Layout[Offer]:
    """How offers are kept."""
    return Layout(
        entity_type=Offer,
        partition=lambda _: WHOLE,
        missing=lambda message_id: MessageNotFound(message_id=message_id),
        flat=True,
        over=lambda offer: "handed" if offer.handed_at else "",
        group=lambda offer: offer.about,
        order=age,
    )


def not_taken_notice(offer: Offer, at: datetime) -> Notification:
    """The sender's notification that nobody has taken it, once, without its text."""
    return Notification(
        id=derived_id(NOT_TAKEN, offer.id),
        target_agent_id=offer.sender_id,
        target_purpose=None,
        type="status_change",
        action=NOT_TAKEN,
        created_at=at,
        task_id=offer.about if offer.about.startswith("tsk_") else None,
        reason=f"{offer.to} {offer.about or offer.id}",
    )
