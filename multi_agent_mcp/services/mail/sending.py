"""Sending messages: stores one durable file per receiver, then rings the doorbells."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from multi_agent_mcp.config import Limits
from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.delivery import Delivery
from multi_agent_mcp.domain.ids import new_message_id
from multi_agent_mcp.domain.message import Message
from multi_agent_mcp.errors import InvalidArguments
from multi_agent_mcp.services.mail.outbox import Outbox, PreparedMessages
from multi_agent_mcp.services.mail.remote_delivery import Parcel, remote_delivery
from multi_agent_mcp.services.operations import Apply, Kind, Operations
from multi_agent_mcp.services.team.agents import Agents
from multi_agent_mcp.services.validation import Draft
from multi_agent_mcp.store.idempotency import claim
from multi_agent_mcp.store.inbox import file_name
from multi_agent_mcp.store.workspace import Mailbox, Workspace
from multi_agent_mcp.texts import Texts

SEND = Kind("send", takes_itself_back=True, only_mail=True)


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
    after_sending: Callable[[Sequence[Message]], None]
    """Called with the messages that were stored. Never raises."""

    def send(self, sender: Agent, draft: Draft) -> Sent:
        """Stores the message durably for each receiver and rings. Repeating a sender's idempotency key returns the
        first message, completing it if the first attempt died midway.

        Raises as `compose`, and `StorageError`: then nothing was written.
        """
        prepared = self.compose(sender, draft)
        if prepared.single:
            stored = self.outbox.store(prepared.missing, None)
        else:
            stored = self.operations.run(SEND, prepared.facts)
        return self.announced(prepared, stored)

    def kinds(self) -> Mapping[Kind, Apply]:
        return {SEND: self.outbox.apply}

    def compose(self, sender: Agent, draft: Draft, conversation_id: str | None = None) -> PreparedMessages:
        """The messages to be stored, one per receiver, signed now, so that a process that finishes the sending for a
        dead sender needs no key.

        Raises `InvalidArguments`, `ContentTooLarge`, `AgentNotFound`, `InvalidId`.
        """
        draft.require_sound(self.limits.content_bytes)
        receivers = self._receivers(sender, draft)
        messages = missing = self._messages(sender, draft, receivers)
        if draft.idempotency_key is not None:
            messages, is_new = claim(self.workspace, draft.idempotency_key, messages)
            missing = messages if is_new else [message for message in messages if self._is_missing(message)]
        return PreparedMessages(messages, self.outbox.signatures.sign_all(missing, sender.id), conversation_id)

    def announced(self, prepared: PreparedMessages, stored: Sequence[Message]) -> Sent:
        """Rings for the stored messages; returns the delivery of every message, including those stored earlier."""
        parcels = (Parcel(item.receiver_id, item.id, self._mailbox(item).path / file_name(item)) for item in stored)
        delivery = {**self.outbox.announce(stored), **remote_delivery(self.workspace, parcels)}
        self.after_sending(stored)
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
                content=draft.content,
            )
            for receiver_id in receivers
        ]

    def _is_missing(self, message: Message) -> bool:
        return self._mailbox(message).find(message.id) is None

    def _mailbox(self, message: Message) -> Mailbox:
        return self.workspace.mailbox(message.receiver_id)
