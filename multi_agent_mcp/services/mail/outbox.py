"""The outbox: stores prepared messages in their receivers' mailboxes, all of them or none."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from multi_agent_mcp.domain.delivery import Delivery
from multi_agent_mcp.domain.message import Message
from multi_agent_mcp.errors import Refusal
from multi_agent_mcp.services.team.signatures import Signatures
from multi_agent_mcp.store.codec.frontmatter import as_text, from_text
from multi_agent_mcp.store.inbox import deliver_all, file_name
from multi_agent_mcp.store.intents import Intent
from multi_agent_mcp.store.workspace import Mailbox, Workspace

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
    def facts(self) -> dict[str, Any]:
        """The messages for an intent: the first one whole, of each other one the fields that differ."""
        whole, copies = self.missing[:1], self.missing[1:]
        return {
            "messages": [as_text(message) for message in whole],
            "copies": [[getattr(copy, name) for name in _OWN] for copy in copies],
            "conversation_id": self.conversation_id,
        }


def _messages_of(facts: Mapping[str, Any]) -> list[Message]:
    whole = [from_text(Message, text) for text in facts["messages"]]  # earlier versions wrote all of them whole
    return whole + [replace(whole[0], **dict(zip(_OWN, own, strict=True))) for own in facts.get("copies", ())]


@dataclass(eq=False)
class Outbox:
    """Stores messages as their senders have signed them."""

    workspace: Workspace
    signatures: Signatures
    announce: Announce
    """Rings the receivers' doorbells for messages that are safely stored. Never raises."""

    def apply(self, intent: Intent) -> list[Message]:
        """Stores an intent's messages, as `put`."""
        return self.put(intent.facts, again=intent.again)

    def put(self, facts: Mapping[str, Any] | None, *, again: bool) -> list[Message]:
        """Stores the messages of `PreparedMessages.facts` and returns them as stored. `again`, for a sender that has
        died, skips those already stored and rings for the others. Raises `StorageError`: then none was stored."""
        if facts is None:
            return []
        messages = _messages_of(facts)
        conversation_id = facts["conversation_id"]
        if not again:
            return self.store(messages, conversation_id)
        lacking = [message for message in messages if self._mailbox(message).find(message.id) is None]
        stored = self.store(lacking, conversation_id)
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
