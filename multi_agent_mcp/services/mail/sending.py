"""Sending messages: stores one durable file per receiver, then rings the doorbells."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Self

from multi_agent_mcp.domain.delivery import Delivery
from multi_agent_mcp.domain.ids import new_message_id
from multi_agent_mcp.domain.message import Message
from multi_agent_mcp.errors import InvalidArguments, Refusal
from multi_agent_mcp.services.mail.tracking import Parcel, remote_delivery
from multi_agent_mcp.services.operations import Apply, Operation, Operations, Run
from multi_agent_mcp.store.codec import as_text, from_text
from multi_agent_mcp.store.inbox import deliver_all, file_name
from multi_agent_mcp.store.records import claim
from multi_agent_mcp.trace import current

if TYPE_CHECKING:
    from multi_agent_mcp.config import Limits
    from multi_agent_mcp.domain.agent import Agent
    from multi_agent_mcp.services.team.agents import Agents, Signatures
    from multi_agent_mcp.services.validation import Draft
    from multi_agent_mcp.store.workspace import Mailbox, Workspace
    from multi_agent_mcp.texts import Texts

# The outbox: stores prepared messages in their receivers' mailboxes, all of them or none.

Announce = Callable[[Sequence[Message]], dict[str, Delivery]]

_OWN = ("id", "receiver_id", "signature")
"""The fields that differ between the messages of one sending."""


@dataclass(frozen=True)
class PreparedMessages:
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
    def letters(self) -> Letters:
        """The messages that are still to be stored."""
        return Letters(tuple(self.missing), self.conversation_id)


@dataclass(frozen=True)
class Letters:
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
    def of(cls, facts: Mapping[str, Any] | None) -> Letters | None:
        """Raises as `Operation.of`."""
        if facts is None:
            return None
        whole = [from_text(Message, text) for text in facts["messages"]]
        copies = [replace(whole[0], **dict(zip(_OWN, own, strict=True))) for own in facts["copies"]]
        return cls((*whole, *copies), facts["conversation_id"])


@dataclass(frozen=True, kw_only=True)
class Send(Operation):
    """Mail to several agents, or to one of them in a conversation."""

    KIND = "send"
    TAKES_ITSELF_BACK = True
    ONLY_MAIL = True

    letters: Letters | None

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> Self:
        return cls(letters=Letters.of(facts["letters"]))


@dataclass(eq=False)
class Outbox:
    """Stores messages as their senders have signed them."""

    workspace: Workspace
    signatures: Signatures
    announce: Announce
    """Rings the receivers' doorbells for messages that are safely stored. Never raises."""

    def apply(self, operation: Send, run: Run) -> list[Message]:
        """Stores an operation's messages, as `put`."""
        return self.put(operation.letters, run)

    def put(self, letters: Letters | None, run: Run) -> list[Message]:
        """Stores the messages of an operation, if it has any, and returns them as stored. Again, for a sender that has
        died, it skips those already stored and rings for the others. Raises `StorageError`: then none was stored."""
        if letters is None:
            return []
        if not run.again:
            return self.store(letters.messages, letters.conversation_id)
        lacking = [message for message in letters.messages if self._mailbox(message).find(message.id) is None]
        stored = self.store(lacking, letters.conversation_id)
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


@dataclass(frozen=True)
class Sent:
    """The result of sending. For a broadcast, `message_id` is the broadcast's id."""

    message_id: str
    delivery: Mapping[str, Delivery]

    @property
    def receiver_ids(self) -> list[str]:
        return list(self.delivery)

    def as_answer(self) -> dict[str, Any]:
        delivery = {agent_id: outcome.as_answer() for agent_id, outcome in self.delivery.items()}
        return {"message_id": self.message_id, "receiver_ids": self.receiver_ids, "delivery": delivery}


@dataclass(eq=False)
class Messages:
    """Sends messages."""

    workspace: Workspace
    agents: Agents
    limits: Limits
    texts: Texts
    clock: Callable[[], datetime]
    outbox: Outbox
    operations: Operations
    after_sending: Sequence[Callable[[Sequence[Message]], None]]
    """Each is called with the messages that were stored. They never raise."""

    def send(self, sender: Agent, draft: Draft) -> Sent:
        """Stores the message durably for each receiver and rings. Repeating a sender's idempotency key returns the
        first message, completing it if the first attempt died midway.

        Raises as `compose`, and `StorageError`: then nothing was written.
        """
        prepared = self.compose(sender, draft)
        if prepared.single:
            stored = self.outbox.store(prepared.missing, None)
        else:
            stored = self.operations.run(Send(letters=prepared.letters))
        return self.announced(prepared, stored)

    def applied(self) -> Mapping[type[Operation], Apply]:
        return {Send: self.outbox.apply}

    def compose(self, sender: Agent, draft: Draft, conversation_id: str | None = None) -> PreparedMessages:
        """The messages to be stored, one per receiver, signed now, so that a process that finishes the sending for a
        dead sender needs no key.

        Raises `InvalidArguments`, `ContentTooLarge`, `AgentNotFound`, `InvalidId`.
        """
        draft.require_sound(self.limits.content_bytes)
        receivers = self._receivers(sender, draft)
        messages = missing = self._messages(sender, draft, receivers)
        if draft.idempotency_key is not None:
            messages, is_new = claim(self.workspace.files, draft.idempotency_key, messages)
            missing = messages if is_new else [message for message in messages if self._is_missing(message)]
        return PreparedMessages(messages, self.outbox.signatures.sign_all(missing, sender.id), conversation_id)

    def announced(self, prepared: PreparedMessages, stored: Sequence[Message]) -> Sent:
        """Rings for the stored messages; returns the delivery of every message, including those stored earlier."""
        delivery = self.outbox.announce(stored)
        if self.workspace.authority.here is not None:
            parcels = (Parcel(item.receiver_id, item.id, self._mailbox(item).path / file_name(item)) for item in stored)
            delivery |= remote_delivery(self.workspace, parcels)
        for tell in self.after_sending:
            tell(stored)
        for message in prepared.messages:
            delivery.setdefault(message.receiver_id, Delivery("stored", "already_sent"))
        first = prepared.messages[0]
        return Sent(first.metadata.get("broadcast_id", first.id), delivery)

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

    def _messages(self, sender: Agent, draft: Draft, receivers: list[str]) -> list[Message]:
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

    def _is_missing(self, message: Message) -> bool:
        return self._mailbox(message).find(message.id) is None

    def _mailbox(self, message: Message) -> Mailbox:
        return self.workspace.mailbox(message.receiver_id)
