"""Hands mail for `@role` and `@any` to one agent that is free (docs/protocol.md, Whoever is free).

A message for whoever is free is a file of its own until somebody has it. Who gets it is decided by a change of that
file, so it has one winner; whoever finds it decided but not handed over, because a process died between both, hands it
over. It lies on the sender's machine only, which decides also where the team has several."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any

from multi_agent_mcp.domain.delivery import Delivery
from multi_agent_mcp.domain.message import Message
from multi_agent_mcp.domain.times import format_time
from multi_agent_mcp.errors import Refusal
from multi_agent_mcp.pool.feature import OFFERS
from multi_agent_mcp.pool.offer import NOT_TAKEN, Offer, not_taken_notice
from multi_agent_mcp.services.mail import UNTAKEN, Sent
from multi_agent_mcp.session import Service
from multi_agent_mcp.store.codec import Unreadable, as_text, from_text
from multi_agent_mcp.store.records import claim

if TYPE_CHECKING:
    from multi_agent_mcp.domain.agent import Agent
    from multi_agent_mcp.pool.free import Free
    from multi_agent_mcp.pool.watches import Watches
    from multi_agent_mcp.services.mail import Messages
    from multi_agent_mcp.services.validation import Draft
    from multi_agent_mcp.store.collection import Collection

LOCK = "offering"


@dataclass(eq=False)
class Offers(Service):
    """The mail that waits for whoever is free."""

    free: Free
    messages: Messages
    watches: Watches

    @cached_property
    def open(self) -> Collection[Offer]:
        found: Collection[Offer] = self.workspace.collection(OFFERS)
        return found

    def send(self, sender: Agent, draft: Draft) -> Sent:
        """Sends a message to whoever of those is free, or becomes so first. Raises as `Messages.compose`."""
        to = str(draft.receiver_id)
        draft.require_sound(self.session.settings.limits.content_bytes)
        self.free.meant(sender.id, to)
        drafted, is_new = self.messages.drafted(sender, draft, [to]), True
        if draft.idempotency_key is not None:
            drafted, is_new = claim(self.workspace.files, draft.idempotency_key, drafted)
        (message,) = drafted
        if is_new or self.open.find(message.id) is None:
            self._add(to, message)
        delivery = self.hand_out().get(message.id) or self._known_delivery(self.open.get(message.id))
        return Sent(message.id, delivery)

    def _add(self, to: str, message: Message) -> None:
        facts: dict[str, Any] = {"id": message.id, "sender_id": message.sender_id, "created_at": message.created_at}
        with suppress(FileExistsError):  # an attempt with the same key at the same time
            self.open.add(Offer(**facts, to=to, message=as_text(message)))

    def _known_delivery(self, offer: Offer) -> dict[str, Delivery]:
        if offer.taken_by is None:
            return {offer.to: Delivery(UNTAKEN)}
        return {offer.taken_by: Delivery("stored", "already_sent")}

    def hand_out(self, *_: Any) -> dict[str, dict[str, Delivery]]:
        """Hands every offer to an agent that is free for it, the oldest first; returns the deliveries by message.
        Tells senders of what nobody takes."""
        if not self.open.open():
            return {}
        with self.workspace.locks.held(LOCK):
            handed = [message for offer in self.open.open() if (message := self._handed(offer)) is not None]
        found = {}
        for message in handed:
            delivery = self.messages.rung([message])
            found[message.id] = {message.receiver_id: delivery.get(message.receiver_id, Delivery())}
        self._tell_of_rest()
        return found

    def changed(self, *_: Any) -> None:
        """Does what follows from changed tasks. Never raises."""
        self.watches.look()
        self.became_free()

    def became_free(self, *_: Any) -> None:
        """As `hand_out`, after something by which an agent may have become free. Never raises: the next look does
        it."""
        with suppress(Refusal):
            self.hand_out()

    def _handed(self, offer: Offer) -> Message | None:
        """The message, in the mailbox of the agent that gets it now; None if nobody is free for it."""
        with suppress(Refusal, Unreadable):  # whoever was meant is not in the team any more, or a person has edited it
            if offer.taken_by is None:
                agent = self.free.first(offer.sender_id, offer.to)
                if agent is None:
                    return None
                offer = self.open.update(offer.id, lambda found: found.taken(agent.id, self.clock()))
            message = self._stored(offer)
            self.open.update(offer.id, lambda found: found.handed(self.clock()))
            return message
        return None

    def _stored(self, offer: Offer) -> Message:
        receiver_id = str(offer.taken_by)
        known = self.workspace.mailbox(receiver_id).find(offer.id)
        if known is not None:
            return known[1]
        written = replace(from_text(Message, offer.message), receiver_id=receiver_id)
        (message,) = self.messages.outbox.store([self.messages.outbox.signatures.sign(written)], None)
        return message

    def _tell_of_rest(self) -> None:
        """Notifies the sender of each offer that nobody has taken for `limits.return_minutes`."""
        minutes = self.session.settings.limits.return_minutes
        now = self.clock()
        for offer in self.open.open() if minutes else ():
            if offer.taken_by is None and now - offer.created_at >= timedelta(minutes=minutes):
                notice = not_taken_notice(offer, offer.created_at + timedelta(minutes=minutes))
                with suppress(Refusal):
                    self.free.derived_notices.writer.put_new(notice, f"notice.{NOT_TAKEN}")

    def taken(self, message_id: str) -> dict[str, Any] | None:
        """What a sender and `trace` are told of a message for whoever is free; None for others."""
        offer = self.open.find(message_id)
        if offer is None:
            return None
        times = {"at": format_time(offer.created_at), "taken_at": offer.taken_at and format_time(offer.taken_at)}
        facts = {"sender_id": offer.sender_id, "to": offer.to, "taken_by": offer.taken_by}
        return {**facts, **times, "path": f"{OFFERS.directory}/{offer.id}.md"}
