"""Hands what is for `@role` and `@any` to one agent that is free (docs/protocol.md, Whoever is free).

A message for whoever is free is a file of its own until somebody has it; of a task, question or delegation, whose own
file decides who has it, there is such a file beside it. Who gets it is decided by a change of that
file, so it has one winner; whoever finds it decided but not handed over, because a process died between both, hands it
over. It is on the sender's machine only, which decides also where the team has several."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from multi_agent_mcp.domain.delivery import UNTAKEN, Delivery
from multi_agent_mcp.domain.entity import age, new_id
from multi_agent_mcp.domain.message import Message
from multi_agent_mcp.domain.task import Task, work_order
from multi_agent_mcp.domain.times import format_time
from multi_agent_mcp.errors import Refusal
from multi_agent_mcp.pool.feature import OFFERS
from multi_agent_mcp.pool.items import Item, taker_of
from multi_agent_mcp.pool.offer import NOT_TAKEN, Offer, not_taken_notice
from multi_agent_mcp.services.mail import Sent
from multi_agent_mcp.session import Service
from multi_agent_mcp.store.codec import Unreadable, as_text, from_text
from multi_agent_mcp.store.records import claim

if TYPE_CHECKING:
    from multi_agent_mcp.domain.agent import Agent
    from multi_agent_mcp.pool.awake import AwakeTime
    from multi_agent_mcp.pool.free import Free
    from multi_agent_mcp.pool.items import Items
    from multi_agent_mcp.pool.watches import Watches
    from multi_agent_mcp.services.mail import Messages
    from multi_agent_mcp.services.validation import Draft
    from multi_agent_mcp.store.collection import Collection

LOCK = "offering"
WRITTEN_WITHIN = timedelta(minutes=1)
"""How long after its offer a task, question or delegation is there at the latest."""
PREFIXED = re.compile(r"(tsk|qst|dlg)_")


class Given(NamedTuple):
    """What an agent was given: a message that is in its mailbox, a task, question or delegation, or both."""

    message: Message | None
    item: Item | None


@dataclass(eq=False)
class Offers(Service):
    """The mail that waits for whoever is free."""

    free: Free
    items: Items
    messages: Messages
    watches: Watches
    awake: AwakeTime

    @cached_property
    def open(self) -> Collection[Offer]:
        found: Collection[Offer] = self.workspace.collection(OFFERS)
        return found

    def send(self, sender: Agent, draft: Draft, task: Task | None) -> Sent:
        """Sends a message to whoever of those is free, or becomes so first, with the new task that it brings. Raises
        as `Messages.compose`."""
        to = str(draft.receiver_id)
        draft.require_sound(self.session.settings.limits.content_bytes)
        self.free.meant(sender.id, to)
        drafted, is_new = self.messages.drafted(sender, draft, [to]), True
        if draft.idempotency_key is not None:
            drafted, is_new = claim(self.workspace.files, draft.idempotency_key, drafted)
        (message,) = drafted
        if is_new or self.open.find(message.id) is None:
            self._add(to, message, task)
        delivery = self.hand_out().get(message.id) or self._known_delivery(self.open.get(message.id))
        return Sent(message.id, delivery)

    def _add(self, to: str, message: Message, task: Task | None) -> None:
        facts: dict[str, Any] = {"id": message.id, "sender_id": message.sender_id, "created_at": message.created_at}
        with suppress(FileExistsError):  # an attempt with the same key at the same time
            self.open.add(Offer(**facts, to=to, about="" if task is None else task.id, message=as_text(message)))
        if task is not None:
            self.workspace.tasks.add(task)

    # It comes before the file that it is about: killed between both, nothing waits unseen, and the offer ends.
    def keep(self, sender: Agent, to: str, item_id: str) -> None:
        """Keeps a task, question or delegation for whoever of those is free. Raises `AgentNotFound` for nobody."""
        self.free.meant(sender.id, to)
        known = self._about(item_id)
        if known is not None and not known.taken_by and not known.handed_at:
            self.open.update(known.id, lambda found: replace(found, to=to))
        else:
            facts: dict[str, Any] = {"id": new_id("off"), "sender_id": sender.id, "created_at": self.clock()}
            self.open.add(Offer(**facts, to=to, about=item_id))

    def _about(self, item_id: str) -> Offer | None:
        """The last offer of a task, question or delegation."""
        found = next((offer for offer in self.open.open() if offer.about == item_id), None)
        return found or next(iter(self.open.closed(group=item_id, limit=1)), None)

    def _known_delivery(self, offer: Offer) -> dict[str, Delivery]:
        if offer.taken_by is None:
            return {offer.to: Delivery(UNTAKEN)}
        return {offer.taken_by: Delivery("stored", "already_sent")}

    def hand_out(self, *_: Any) -> dict[str, dict[str, Delivery]]:
        """Hands every offer to an agent that is free for it, in their order; returns the deliveries by message.
        Tells senders of what nobody takes."""
        if not self.open.open():
            return {}
        with self.workspace.locks.held(LOCK):
            in_order = sorted(self.open.open(), key=self._order)
            handed = [given for offer in in_order if (given := self._handed(offer)) is not None]
        found = {}
        for message in (given.message for given in handed if given.message is not None):
            delivery = self.messages.rung([message])
            found[message.id] = {message.receiver_id: delivery.get(message.receiver_id, Delivery())}
        for item in (given.item for given in handed if given.item is not None):
            self.items.follow_up(item)
        self._tell_of_rest()
        return found

    def sleeping(self) -> list[list[str]]:
        """For each thing that waits while nobody is free for it: who could have it if somebody started them."""
        found = []
        for offer in sorted(self.open.open(), key=self._order):
            with suppress(Refusal, Unreadable):
                item = self.items.find(offer.about) if offer.about else None
                suits = self.items.suits(item, offer.sender_id)
                is_over = bool(offer.about) and (item is None or taker_of(item) is not None)
                if not (offer.taken_by or is_over or self.free.first(offer.sender_id, offer.to, suits)):
                    found.append(self.free.asleep(offer.sender_id, offer.to, suits))
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

    def _order(self, offer: Offer) -> tuple[Any, ...]:
        """A sort key: the oldest first, and tasks last, in the order of work."""
        item = self.items.find(offer.about) if offer.about else None
        return (True, *work_order(item)) if isinstance(item, Task) else (False, *age(offer))

    def _handed(self, offer: Offer) -> Given | None:
        """What an agent has by it now; None if nobody is free for it."""
        with suppress(Refusal, Unreadable):  # whoever was meant is not in the team any more, or a person has edited it
            item = self.items.find(offer.about) if offer.about else None
            if offer.about and (item is None or taker_of(item) not in (None, offer.taken_by)):
                self._end(offer, item)
                return None
            offer = self._decided(offer, item)
            if offer.taken_by is None:
                return None
            if item is not None:
                brings = offer.id if offer.message else None
                item = self.items.give(offer.about, str(offer.taken_by), offer.sender_id, brings)
            message = self._stored(offer) if offer.message else None
            self.open.update(offer.id, lambda found: found.handed(self.clock()))
            return Given(message, item)
        return None

    def _decided(self, offer: Offer, item: Item | None) -> Offer:
        """The offer with who is to have it, if somebody is free for it. An agent that was removed before it had
        anything is to have nothing."""
        before = offer.taken_by
        if before and before not in self.free.agents.all():
            has_mail = self.workspace.mailbox(before).find(offer.id) is not None
            if not has_mail and (item is None or taker_of(item) is None):
                offer = self.open.update(offer.id, lambda found: found.taken_back(before))
        if offer.taken_by is None:
            agent = self.free.first(offer.sender_id, offer.to, self.items.suits(item, offer.sender_id))
            if agent is not None:
                offer = self.open.update(offer.id, lambda found: found.taken(agent.id, self.clock()))
        return offer

    def _end(self, offer: Offer, item: Item | None) -> None:
        """Ends the offer of what has come to somebody else, or is over, or was never written."""
        now, taker = self.clock(), None if item is None else taker_of(item) or None
        if item is not None or abs(now - offer.created_at) >= WRITTEN_WITHIN:
            at = now if taker else None
            self.open.update(offer.id, lambda found: replace(found, taken_by=taker, taken_at=at).handed(now))

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
        if not (minutes := self.session.settings.limits.return_minutes):
            return
        with suppress(Refusal):
            times = self.awake.look()
            for offer in self.open.open():
                if offer.taken_by is None and times.now - times.of(offer.created_at) >= minutes * 60:
                    notice = not_taken_notice(offer, offer.created_at + timedelta(minutes=minutes))
                    self.free.derived_notices.writer.put_new(notice, f"notice.{NOT_TAKEN}")

    def taken(self, item_id: str) -> dict[str, Any] | None:
        """What a sender and `trace` are told of what is for whoever is free; None for anything else."""
        offer = self._about(item_id) if PREFIXED.match(item_id) else self.open.find(item_id)
        if offer is None:
            return None
        times = {"at": format_time(offer.created_at), "taken_at": offer.taken_at and format_time(offer.taken_at)}
        facts = {"sender_id": offer.sender_id, "to": offer.to, "taken_by": offer.taken_by}
        return {**facts, **times, "path": f"{OFFERS.directory}/{offer.id}.md"}
