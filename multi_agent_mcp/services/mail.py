"""Messages: sending, which stores one durable file per receiver, then rings the doorbells; how far each was delivered;
and searching."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from multi_agent_mcp.domain.agent import WHOEVER
from multi_agent_mcp.domain.delivery import TAKEN, UNTAKEN, Delivery
from multi_agent_mcp.domain.entity import id8, is_name, new_message_id
from multi_agent_mcp.domain.message import Message
from multi_agent_mcp.domain.notification import ANSWER, ASKED, OVERDUE, Notification, derived_id
from multi_agent_mcp.domain.task import BROUGHT_BY
from multi_agent_mcp.domain.times import format_time, now
from multi_agent_mcp.errors import InvalidArguments, MessageNotFound, Refusal, StorageError, Unauthorized
from multi_agent_mcp.services.operations import Apply, Operation, Operations, Run, read_by
from multi_agent_mcp.session import Service
from multi_agent_mcp.store.authority import TOO_LARGE
from multi_agent_mcp.store.codec import as_text, from_text
from multi_agent_mcp.store.inbox import deliver_all, file_name
from multi_agent_mcp.store.records import claim
from multi_agent_mcp.trace import current

if TYPE_CHECKING:
    from multi_agent_mcp.domain.agent import Agent, HandOff
    from multi_agent_mcp.services.team.agents import Agents, Signatures
    from multi_agent_mcp.services.validation import Draft
    from multi_agent_mcp.store.workspace import Mailbox, Workspace


# The outbox: stores prepared messages in their receivers' mailboxes, all of them or none.

Announce = Callable[[Sequence[Message]], dict[str, Delivery]]

_OWN = ("id", "receiver_id", "signature")
"""The fields that differ between the messages of one sending."""


class PreparedMessages(NamedTuple):
    """Messages with their final ids and times, which differ only in `_OWN`. `missing` are those not stored yet; with a
    `conversation_id` each is copied into that conversation's directory first."""

    messages: Sequence[Message]
    missing: Sequence[Message]
    conversation_id: str | None = None

    @property
    def single(self) -> bool:
        """Whether at most one file is to be written."""
        return len(self.missing) <= 1 and self.conversation_id is None

    @property
    def to_store(self) -> NewMessages:
        """The messages that are still to be stored."""
        return NewMessages(tuple(self.missing), self.conversation_id)


@dataclass(frozen=True)
class NewMessages:
    """The mail of an operation: messages that differ only in `_OWN`, and the conversation they belong to."""

    messages: Sequence[Message]
    conversation_id: str | None = None

    @property
    def facts(self) -> dict[str, Any]:
        """The first message whole, of each other one the fields that differ."""
        whole, copies = self.messages[:1], self.messages[1:]
        return {
            "messages": [as_text(message) for message in whole],
            "copies": [[getattr(copy, name) for name in _OWN] for copy in copies],
            "conversation_id": self.conversation_id,
        }

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> NewMessages:
        """Raises as `Operation.of`."""
        whole = [from_text(Message, text) for text in facts["messages"]]
        copies = [replace(whole[0], **dict(zip(_OWN, own, strict=True))) for own in facts["copies"]]
        return cls((*whole, *copies), facts["conversation_id"])


@dataclass(frozen=True, kw_only=True)
class Send(Operation):
    """Mail to several agents, or to one of them in a conversation."""

    KIND = "send"
    TAKES_ITSELF_BACK = True
    ONLY_MAIL = True

    mail: NewMessages | None = field(metadata=read_by(NewMessages.of))


@dataclass(eq=False)
class Outbox(Service):
    """Stores messages as their senders have signed them."""

    signatures: Signatures
    announce: Announce
    """Rings the receivers' doorbells for messages that are safely stored. Never raises."""

    def apply(self, operation: Send, run: Run) -> list[Message]:
        """Stores an operation's messages, as `put`."""
        return self.put(operation.mail, run)

    def put(self, new: NewMessages | None, run: Run) -> list[Message]:
        """Stores the messages of an operation, if it has any, and returns them as stored. Again, for a sender that has
        died, it skips those already stored and rings for the others. Raises `StorageError`: then none was stored."""
        if new is None:
            return []
        if not run.again:
            return self.store(new.messages, new.conversation_id)
        lacking = [message for message in new.messages if self._mailbox(message).find(message.id) is None]
        stored = self.store(lacking, new.conversation_id)
        self.announce(stored)
        return stored

    def store(self, messages: Sequence[Message], conversation_id: str | None) -> list[Message]:
        """Writes the messages. On failure removes those written by this call, so that nothing was sent."""
        if conversation_id is None and len(messages) > 1:
            with suppress(FileExistsError):  # a file name is taken: continue one by one
                deliver_all([(self._mailbox(message), message) for message in messages])
                return list(messages)
        copies = self.workspace.conversation_messages(conversation_id) if conversation_id is not None else None
        stored: list[Message] = []
        copied: list[Message] = []
        try:
            for message in messages:
                if copies is not None:
                    with suppress(FileExistsError):  # an earlier attempt
                        copies.create(file_name(message), message)
                    copied.append(message)
                stored.append(self._deliver(message))
        except Refusal:
            self.take_back(stored)
            if copies is not None:
                for message in copied:
                    copies.remove(file_name(message))
            raise
        return stored

    def take_back(self, messages: Sequence[Message]) -> None:
        """Removes messages that were just stored and have not been acknowledged to anybody."""
        for message in messages:
            self._mailbox(message).remove(message)

    def _deliver(self, message: Message) -> Message:
        """Delivers the message and returns it as delivered: if another message of the same second has its file name
        (one in four billion), its time is a second later. A concurrent attempt with the same idempotency key may have
        delivered it already."""
        mailbox = self._mailbox(message)
        while True:
            try:
                mailbox.deliver(message)
            except FileExistsError:
                if mailbox.find(message.id) is not None:
                    return message
                genuine = self.signatures.verifies(message)
                message = replace(message, created_at=message.created_at + timedelta(seconds=1))
                message = self.signatures.sign(message) if genuine else message
            else:
                return message

    def _mailbox(self, message: Message) -> Mailbox:
        return self.workspace.mailbox(message.receiver_id)


class Sent(NamedTuple):
    """The result of sending. For a broadcast, `message_id` is the broadcast's id."""

    message_id: str
    delivery: Mapping[str, Delivery]

    @property
    def receiver_ids(self) -> list[str]:
        return [agent_id for agent_id, outcome in self.delivery.items() if outcome.state != UNTAKEN]

    def as_answer(self) -> dict[str, Any]:
        delivery = {agent_id: outcome.as_answer() for agent_id, outcome in self.delivery.items()}
        return {"message_id": self.message_id, "receiver_ids": self.receiver_ids, "delivery": delivery}


@dataclass(eq=False)
class Messages(Service):
    """Sends messages."""

    agents: Agents
    outbox: Outbox
    operations: Operations

    def send(self, sender: Agent, draft: Draft) -> Sent:
        """Stores the message durably for each receiver and rings. Repeating a sender's idempotency key returns the
        first message, completing it if the first attempt died midway.

        Raises as `compose`, and `StorageError`: then nothing was written.
        """
        if (draft.receiver_id or "").startswith(WHOEVER):
            sent: Sent | None = self.contributions.ask("offer", sender, draft, None)
            if sent is not None:
                return sent
        prepared = self.compose(sender, draft)
        if prepared.single:
            stored = self.outbox.store(prepared.missing, None)
        else:
            stored = self.operations.run(Send(mail=prepared.to_store))
        return self.announced(prepared, stored)

    def applied(self) -> Mapping[type[Operation], Apply]:
        return {Send: self.outbox.apply}

    def compose(self, sender: Agent, draft: Draft, conversation_id: str | None = None) -> PreparedMessages:
        """The messages to be stored, one per receiver, signed now, so that a process that finishes the sending for a
        dead sender needs no key.

        Raises `InvalidArguments`, `ContentTooLarge`, `AgentNotFound`, `InvalidId`.
        """
        draft.require_sound(self.session.settings.limits.content_bytes)
        receivers = self._receivers(sender, draft)
        messages = missing = self.drafted(sender, draft, receivers)
        if draft.idempotency_key is not None:
            messages, is_new = claim(self.workspace.files, draft.idempotency_key, messages)
            missing = messages if is_new else [message for message in messages if self._is_missing(message)]
        return PreparedMessages(messages, self.outbox.signatures.sign_all(missing, sender.id), conversation_id)

    def announced(self, prepared: PreparedMessages, stored: Sequence[Message]) -> Sent:
        """Rings for the stored messages; returns the delivery of every message, including those stored earlier."""
        delivery = self.rung(stored)
        for message in prepared.messages:
            delivery.setdefault(message.receiver_id, Delivery("stored", "already_sent"))
        first = prepared.messages[0]
        return Sent(first.metadata.get("broadcast_id", first.id), delivery)

    def rung(self, stored: Sequence[Message]) -> dict[str, Delivery]:
        """Rings for messages that are stored; returns the deliveries."""
        delivery = self.outbox.announce(stored)
        if self.workspace.authority.here is not None:
            parcels = (Parcel(item.receiver_id, item.id, self._mailbox(item).path / file_name(item)) for item in stored)
            delivery |= remote_delivery(self.workspace, parcels)
        self.contributions.tell("sent", stored)
        return delivery

    def _receivers(self, sender: Agent, draft: Draft) -> list[str]:
        if draft.receiver_id is not None:
            receiver = self.agents.get(draft.receiver_id)
            if receiver.id == sender.id:
                raise InvalidArguments("to_oneself")
            return [receiver.id]
        others = [agent_id for agent_id in self.agents.all() if agent_id != sender.id]
        if not others:
            raise InvalidArguments("nobody_else")
        return others

    def drafted(self, sender: Agent, draft: Draft, receivers: Sequence[str]) -> list[Message]:
        """The messages, one per receiver, neither signed nor stored."""
        now = self.clock()
        whole = new_message_id()
        # Only a broadcast has this key: forwarded metadata must not make a message a copy of another broadcast.
        metadata = {key: value for key, value in draft.metadata.items() if key != "broadcast_id"}
        if draft.receiver_id is None:
            metadata["broadcast_id"] = whole
        return [
            Message(
                id=whole if draft.receiver_id is not None else new_message_id(like=whole),
                sender_id=sender.id,
                receiver_id=receiver_id,
                message_type=draft.type,
                priority=draft.priority,
                subject=draft.subject,
                created_at=now,
                metadata=metadata,
                traceparent=current(),
                content=draft.content,
            )
            for receiver_id in receivers
        ]

    def has_come_to(self, agent_id: str) -> bool:
        """Whether an agent has a message, read or unread."""
        return next(self.workspace.mailbox(agent_id).newest_first(), None) is not None

    def _is_missing(self, message: Message) -> bool:
        return self._mailbox(message).find(message.id) is None

    def _mailbox(self, message: Message) -> Mailbox:
        return self.workspace.mailbox(message.receiver_id)


# Delivery tracking: the files and delivery states of messages and notifications.

# Delivery of mail and notifications to agents of other machines (docs/protocol.md, Several machines).


class Parcel(NamedTuple):
    """A message or notification that was just stored: its receiver, id and file."""

    agent_id: str
    id: str
    path: Path


def away_machines(workspace: Workspace) -> frozenset[str]:
    """The machines that have not been heard of for long; none while this one is cut off, and does not know."""
    state = workspace.relay_state.read()
    known = state.get("machines", {}) if state.get("connected") else {}
    return frozenset(name for name, facts in known.items() if not facts.get("up"))


def remote_delivery(workspace: Workspace, stored: Iterable[Parcel]) -> dict[str, Delivery]:
    """The deliveries, by agent id, of items for agents of other machines: stored there, queued here until the hub is
    back, or stored here alone because they are too large. Items for this machine's agents are sent to the hub, too,
    without waiting. Never raises."""
    authority = workspace.authority
    if authority.here is None or not (parcels := list(stored)):
        return {}
    agents = workspace.registry.all()
    homes = {parcel: home for parcel in parcels if (home := workspace.elsewhere(agents.get(parcel.agent_id)))}
    waits = authority.queue([parcel.path for parcel in parcels], wait=bool(homes))
    if waits is not None and homes:
        if waits == TOO_LARGE:  # the relay has noted it
            return {parcel.agent_id: Delivery("stored", waits) for parcel in homes}
        with suppress(StorageError):  # nothing depends on it
            workspace.travel_log.add("queued", now(), [parcel.id for parcel in homes], reason=waits)
        return {parcel.agent_id: Delivery("queued", waits) for parcel in homes}
    away = away_machines(workspace) if homes else frozenset()
    return {
        parcel.agent_id: Delivery("stored", "machine_away" if home in away else "other_machine")
        for parcel, home in homes.items()
    }


@dataclass(eq=False)
class DeliveryTracking(Service):
    """The delivery states of messages and notifications, for their senders and for people."""

    agents: Agents

    def status(self, sender: Agent, item_id: str) -> dict[str, Any]:
        """The state and the time of each step, per receiver, of a message or broadcast that this agent sent, or of a
        notification that it caused. Raises `MessageNotFound`, or `Unauthorized` for another sender's."""
        copies = [item for _, item in self._found(item_id)]
        taken: Mapping[str, Any] | None = self.contributions.ask("taken", item_id)
        if not copies and taken is not None and taken["sender_id"] == sender.id:
            return {"message_id": item_id, "receivers": {}, "taken_by": taken["taken_by"], **_offered(taken)}
        if not copies:
            raise MessageNotFound(message_id=item_id)
        mine = [item for item in copies if item.sender_id == sender.id]
        if not mine:
            raise Unauthorized("not_sender", message_id=item_id)
        receivers = dict(zip(map(_receiver, mine), self.progress(mine), strict=True))
        answer: dict[str, Any] = {"message_id": item_id, "receivers": receivers}
        answer |= {} if taken is None else {"taken_by": taken["taken_by"]}
        if len(mine) == 1 and mine[0].id == item_id:
            answer |= {"receiver_id": _receiver(mine[0]), **receivers[_receiver(mine[0])]}
        return answer

    def trace(self, item_id: str) -> list[dict[str, Any]]:
        """The path and steps of every copy of a message or broadcast, of a notification, of all notifications about a
        question, of a hand-off, or of everything that told of a task. Empty for an unknown id."""
        found = self._found(item_id) or self._about_question(item_id) or self._about_task(item_id)
        if item_id.startswith("hnd_"):
            return self._hand_off(item_id)
        taken: Mapping[str, Any] | None = self.contributions.ask("taken", item_id)
        whom, offered = {}, []
        if taken is not None and (not found or item_id.startswith("tsk_")):
            facts = {name: taken[name] for name in ("sender_id", "to", "taken_by", "taken_at", "path")}
            receiver = {"receiver_id": taken["taken_by"] or taken["to"], "message_type": "-"}
            offered = [{"id": item_id, **receiver, **facts, **_offered(taken)}]
        elif taken is not None:
            whom = {name: taken[name] for name in ("to", "taken_by", "taken_at")}
        return offered + [
            {
                "id": item.id,
                "sender_id": item.sender_id,
                "receiver_id": _receiver(item),
                **whom,
                **_kind(item),
                **self._machines(item, progress["steps"]),
                "path": str(path.relative_to(self.workspace.path)),
                **progress,
            }
            for (path, item), progress in zip(found, self.progress([item for _, item in found]), strict=True)
        ]

    def _machines(self, item: Message | Notification, steps: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
        """The sender's and receiver's machines; empty unless the session is shared. The sender's is known where the
        item arrived; elsewhere it is the sender's present home."""
        if self.workspace.authority.here is None:
            return {}
        known = self.agents.registry.all()
        sender, receiver = known.get(item.sender_id or ""), known.get(_receiver(item))
        came = next((step["machine"] for step in steps if step["state"] == "arrived"), None)
        return {"from_machine": came or (sender and sender.machine), "to_machine": receiver and receiver.machine}

    def _found(self, item_id: str) -> Sequence[tuple[Path, Message | Notification]]:
        return self._copies(item_id) or self._notifications(item_id)

    def _notifications(self, item_id: str) -> list[tuple[Path, Notification]]:
        return [found for agent_id in self.agents.registry.all() for found in self._notices_of(agent_id, item_id)]

    def _about_question(self, question_id: str) -> list[tuple[Path, Notification]]:
        """The notifications about a question, in the order of its life. Their ids follow from its id."""
        return [
            found
            for action in (ASKED, OVERDUE, ANSWER)
            for agent_id in self.agents.registry.all()
            for found in self._notices_of(agent_id, derived_id(action, question_id, agent_id))
        ]

    def _about_task(self, item_id: str) -> list[tuple[Path, Message | Notification]]:
        """The message that brought a task, and the notifications about it, the oldest first."""
        task = self.workspace.tasks.find(item_id) if item_id.startswith("tsk_") else None
        if task is None:
            return []
        brought = [line[BROUGHT_BY] for line in task.history.having(BROUGHT_BY)]
        found: list[tuple[Path, Message | Notification]] = [kept for one in brought for kept in self._copies(str(one))]
        for agent_id in self.agents.registry.all():
            for directory in self.workspace.notices(agent_id).directories():
                told = ((directory.path / name, notice) for name, notice in directory.entities())
                found += [kept for kept in told if kept[1].task_id == item_id]
        return sorted(found, key=lambda kept: (kept[1].created_at, kept[1].id))

    def _hand_off(self, item_id: str) -> list[dict[str, Any]]:
        """A hand-off: it rings nobody, and whoever goes on with the task is shown it."""
        found = (self._hand_offs_of(agent_id) for agent_id in filter(is_name, self.agents.registry.all()))
        wanted = (kept for kept in chain.from_iterable(found) if kept[1].id == item_id)
        steps_of = delivery_steps(self.workspace)
        return [
            {
                "id": item.id,
                "sender_id": item.agent_id,
                "receiver_id": item.agent_id,
                "kind": item.kind,
                "task_id": item.task_id,
                "path": str(path.relative_to(self.workspace.path)),
                "state": "stored",
                "steps": [{"state": "stored", "at": format_time(item.created_at)}, *steps_of(item.agent_id, item.id)],
            }
            for path, item in wanted
        ]

    def _hand_offs_of(self, agent_id: str) -> Iterator[tuple[Path, HandOff]]:
        known = self.workspace.hand_offs(agent_id)
        for directory in (known.home, *known.archive.months()):
            yield from ((directory.path / name, item) for name, item in directory.entities())

    def _notices_of(self, agent_id: str, item_id: str) -> list[tuple[Path, Notification]]:
        return self.workspace.notices(agent_id).find_all(lambda notice: notice.id == item_id, like=item_id)

    def _copies(self, message_id: str) -> list[tuple[Path, Message]]:
        """The message with this id, or all copies of the broadcast with this id, from every mailbox. Copies share the
        first digits of the broadcast's id; naming it in the metadata alone does not make a copy."""

        def wanted(message: Message) -> bool:
            copied = message.metadata.get("broadcast_id") == message_id and id8(message.id) == id8(message_id)
            return copied or message.id == message_id

        return [
            found
            for agent_id in self.agents.registry.all()
            for found in self.workspace.mailbox(agent_id).find_all(wanted, like=message_id)
        ]

    def progress(self, items: Iterable[Message | Notification]) -> list[dict[str, Any]]:
        """The state that each message or notification has reached, its steps, and why it went no further."""
        steps_of, is_away = delivery_steps(self.workspace), self._is_away()
        return [_progress(item, steps_of(_receiver(item), item.id), is_away) for item in items]

    def _is_away(self) -> Callable[[str], bool]:
        """Whether the home of an agent is away; looked up at most once."""
        away, known = cache(lambda: away_machines(self.workspace)), cache(self.agents.registry.all)
        return lambda agent_id: (agent := known().get(agent_id)) is not None and agent.machine in away()

    def waits(self, item: Message | Notification) -> str | None:
        """The reason why an item for another machine's agent is still queued here; None if it is not queued."""
        (progress,) = self.progress([item])
        return progress.get("reason") if progress["state"] == "queued" else None

    def steps(self, item: Message | Notification) -> Sequence[Mapping[str, Any]]:
        """The log entries about a message or notification, oldest first."""
        return delivery_steps(self.workspace)(_receiver(item), item.id)


def _offered(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The state of what is for whoever is free, and is no file in a mailbox (yet)."""
    steps = [{"state": UNTAKEN, "at": facts["at"]}]
    steps += [{"state": TAKEN, "at": facts["taken_at"]}] if facts["taken_by"] else []
    return {"state": steps[-1]["state"], "steps": steps}


def delivery_steps(workspace: Workspace) -> Callable[[str, str], list[Mapping[str, Any]]]:
    """Returns a function from an agent id and an item id to the log entries about the item, oldest first. Each log is
    read at most once."""
    rings_of = cache(lambda agent_id: workspace.delivery_log(agent_id).steps())
    travels = cache(lambda: workspace.travel_log.steps() if workspace.authority.here is not None else {})

    def steps(agent_id: str, item_id: str) -> list[Mapping[str, Any]]:
        return [*sorted(travels().get(item_id, ()), key=_at), *rings_of(agent_id).get(item_id, ())]

    return steps


def _receiver(item: Message | Notification) -> str:
    return item.receiver_id if isinstance(item, Message) else item.target_agent_id


def _kind(item: Message | Notification) -> dict[str, Any]:
    """The fields that describe the item itself. A notification's `reason` is nested, because that of `progress` is why
    its doorbell got no further."""
    if isinstance(item, Message):
        return {"message_type": item.message_type}
    fields = ("type", "action", "task_id", "conversation_id", "message", "reason")
    return {"notification": {name: value for name in fields if (value := getattr(item, name)) is not None}}


def _progress(
    item: Message | Notification, rung: Sequence[Mapping[str, Any]], is_away: Callable[[str], bool]
) -> dict[str, Any]:
    steps: list[Mapping[str, Any]] = [{"state": "stored", "at": format_time(item.created_at)}, *rung]
    if item.read_at is not None:
        steps.append({"state": "read", "at": format_time(item.read_at)})
    state = next(step["state"] for step in reversed(steps) if step["state"] in ("stored", "rung", "submitted", "read"))
    answer: dict[str, Any] = {"state": state, "steps": steps}
    if state == "stored" and (travel := [step for step in steps if step["state"] in ("queued", "on_hub", "refused")]):
        if travel[-1]["state"] == "refused":
            answer["reason"] = travel[-1]["reason"]
        elif all(step["state"] == "queued" for step in travel):
            answer["state"] = "queued"
        else:
            answer["reason"] = "machine_away" if is_away(_receiver(item)) else "other_machine"
    if state != "read" and (reason := steps[-1].get("reason")):
        answer.setdefault("reason", reason)
    return answer


def _at(step: Mapping[str, Any]) -> str:
    return str(step.get("at"))
