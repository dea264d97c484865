"""Sending: one durable file per receiver, then the doorbell."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

from multi_agent_mcp.config import Settings
from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.delivery import Delivery
from multi_agent_mcp.domain.message import Message
from multi_agent_mcp.domain.names import new_message_id
from multi_agent_mcp.errors import InvalidArguments, Refusal
from multi_agent_mcp.services.agents import Agents
from multi_agent_mcp.services.claims import claim
from multi_agent_mcp.services.drafts import Draft
from multi_agent_mcp.services.signatures import Signatures
from multi_agent_mcp.store.folder import Folder
from multi_agent_mcp.store.inbox import file_name
from multi_agent_mcp.store.workspace import Mailbox, Workspace
from multi_agent_mcp.texts import Texts


class Announcer(Protocol):
    """Rings the receivers' doorbells for messages that are safely stored. Never raises."""

    def announce(self, messages: Sequence[Message]) -> dict[str, Delivery]: ...

    def steps(self, message: Message) -> list[Mapping[str, Any]]:
        """What the doorbell's diary says about a message: `{"state", "at", "reason"?}`, oldest first."""
        ...


@dataclass(frozen=True)
class Sent:
    """`message_id` is the broadcast's id when there is no single receiver."""

    message_id: str
    delivery: Mapping[str, Delivery]

    @property
    def receiver_ids(self) -> list[str]:
        return list(self.delivery)


class Messages:
    """Sends messages and tells what became of them."""

    def __init__(
        self,
        workspace: Workspace,
        agents: Agents,
        settings: Settings,
        texts: Texts,
        clock: Callable[[], datetime],
        announcer: Announcer,
        signatures: Signatures,
    ) -> None:
        self.workspace = workspace
        self.agents = agents
        self.limits = settings.limits
        self.texts = texts
        self.clock = clock
        self.announcer = announcer
        self.signatures = signatures

    def send(self, sender: Agent, draft: Draft, copy_to: Folder[Message] | None = None) -> Sent:
        """Stores the message durably for each receiver and rings. The same idempotency key from the same sender gives
        the first message again, also when the first attempt died halfway. `copy_to` gets a copy first (a
        conversation's own folder).

        Raises `InvalidArguments`, `ContentTooLarge`, `AgentNotFound`, `InvalidId`, `StorageError`: then nothing was
        written.
        """
        draft.require_sound(self.limits.content_bytes)
        receivers = self._receivers(sender, draft)
        messages = missing = self._messages(sender, draft, receivers)
        if draft.idempotency_key is not None:
            messages, is_new = claim(self.workspace, draft.idempotency_key, messages)
            missing = messages if is_new else [message for message in messages if self._is_missing(message)]
        delivery = self.announcer.announce(self._store(missing, copy_to))
        for message in messages:
            delivery.setdefault(message.receiver_id, Delivery("stored", "already_sent"))
        first = messages[0]
        return Sent(first.metadata.get("broadcast_id", first.id), delivery)

    def _receivers(self, sender: Agent, draft: Draft) -> list[str]:
        if draft.receiver_id is not None:
            receiver = self.agents.get(draft.receiver_id)
            if receiver.id == sender.id:
                raise InvalidArguments("to_oneself")
            return [receiver.id]
        others = [agent_id for agent_id in self.agents.all() if agent_id != sender.id]
        if not others:
            raise InvalidArguments(reason="a broadcast needs at least one other agent")
        return others

    def _messages(self, sender: Agent, draft: Draft, receivers: list[str]) -> list[Message]:
        now = self.clock()
        whole = new_message_id()
        broadcast = {} if draft.receiver_id is not None else {"broadcast_id": whole}
        return [
            Message(
                id=whole if draft.receiver_id is not None else new_message_id(like=whole),
                sender_id=sender.id,
                receiver_id=receiver_id,
                message_type=draft.message_type,
                priority=draft.priority,
                subject=draft.subject,
                created_at=now,
                metadata={**draft.metadata, **broadcast},
                content=draft.content,
            )
            for receiver_id in receivers
        ]

    def _store(self, messages: list[Message], copy_to: Folder[Message] | None) -> list[Message]:
        """Writes the messages; on failure takes back what this call wrote, so that nothing was sent."""
        stored: list[Message] = []
        copies: list[Path] = []
        try:
            for message in map(self.signatures.sign, messages):
                if copy_to is not None:
                    copies.append(self._copy(message, copy_to))
                stored.append(self._deliver(message))
        except Refusal:
            for path in [*(self._mailbox(message).path / file_name(message) for message in stored), *copies]:
                path.unlink(missing_ok=True)
            raise
        return stored

    def _copy(self, message: Message, folder: Folder[Message]) -> Path:
        with suppress(FileExistsError):  # an earlier attempt with the same idempotency key
            folder.create(file_name(message), message)
        return folder.path / file_name(message)

    def _deliver(self, message: Message) -> Message:
        """Delivers under the message's own name; should another message of the same second bear it (one in four
        billion), a second later. An attempt with the same idempotency key may have been faster: then it is there."""
        mailbox = self._mailbox(message)
        while True:
            try:
                mailbox.deliver(message)
            except FileExistsError:
                if mailbox.find(message.id) is not None:
                    return message
                later = replace(message, created_at=message.created_at + timedelta(seconds=1))
                message = self.signatures.sign(later)
            else:
                return message

    def _is_missing(self, message: Message) -> bool:
        return self._mailbox(message).find(message.id) is None

    def _mailbox(self, message: Message) -> Mailbox:
        return self.workspace.mailbox(message.receiver_id)
