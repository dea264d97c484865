"""Sending: one durable file per receiver, then the doorbell."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

from multi_agent_mcp.config import Settings
from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.delivery import Delivery
from multi_agent_mcp.domain.message import MESSAGE_PRIORITIES, MESSAGE_TYPES, Message
from multi_agent_mcp.domain.names import new_message_id
from multi_agent_mcp.domain.times import format_time, parse_time
from multi_agent_mcp.errors import ContentTooLarge, InvalidArguments, MessageNotFound, Refusal, Unauthorized
from multi_agent_mcp.services.agents import Agents
from multi_agent_mcp.store.files import storage_errors
from multi_agent_mcp.store.folder import Folder
from multi_agent_mcp.store.inbox import file_name
from multi_agent_mcp.store.workspace import Mailbox, Workspace
from multi_agent_mcp.texts import Texts

ENVELOPE_CHARACTERS = 4_000  # subject and metadata together, as JSON, so that any message fits into an answer
NESTING_MAX = 32  # of metadata; the store reads back twice that


class Announcer(Protocol):
    """Rings the receivers' doorbells for messages that are safely stored. Never raises."""

    def announce(self, messages: Sequence[Message]) -> dict[str, Delivery]: ...

    def steps(self, message: Message) -> list[Mapping[str, Any]]:
        """What the doorbell's diary says about a message: `{"state", "at", "reason"?}`, oldest first."""
        ...


@dataclass(frozen=True, kw_only=True)
class Draft:
    """What a sender hands in. `receiver_id` None is a broadcast to everybody else."""

    content: str
    receiver_id: str | None = None
    message_type: str = "request"
    subject: str = ""
    priority: str = "normal"
    metadata: Mapping[str, Any] = field(default_factory=dict)
    idempotency_key: str | None = None


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
    ) -> None:
        self.workspace = workspace
        self.agents = agents
        self.limits = settings.limits
        self.texts = texts
        self.clock = clock
        self.announcer = announcer

    def send(self, sender: Agent, draft: Draft, copy_to: Folder[Message] | None = None) -> Sent:
        """Stores the message durably for each receiver and rings. The same idempotency key from the same sender gives
        the first message again, also when the first attempt died halfway. `copy_to` gets a copy first (a
        conversation's own folder).

        Raises `InvalidArguments`, `ContentTooLarge`, `AgentNotFound`, `InvalidId`, `StorageError`: then nothing was
        written.
        """
        self._require_sound(draft)
        receivers = self._receivers(sender, draft)
        messages = missing = self._messages(sender, draft, receivers)
        if draft.idempotency_key is not None:
            messages, missing = self._claimed(sender, draft.idempotency_key, messages)
        delivery = self.announcer.announce(self._store(missing, copy_to))
        for message in messages:
            delivery.setdefault(message.receiver_id, Delivery("stored", "already_sent"))
        first = messages[0]
        return Sent(first.metadata.get("broadcast_id", first.id), delivery)

    def status(self, sender: Agent, message_id: str) -> dict[str, Any]:
        """State and time of each step, per receiver, of a message (or broadcast) this agent sent."""
        copies = [message for _, message in self._copies(message_id)]
        if not copies:
            raise MessageNotFound(message_id=message_id)
        mine = [message for message in copies if message.sender_id == sender.id]
        if not mine:
            raise Unauthorized("not_sender", message_id=message_id)
        receivers = {message.receiver_id: self._progress(message) for message in mine}
        answer: dict[str, Any] = {"message_id": message_id, "receivers": receivers}
        if len(mine) == 1 and mine[0].id == message_id:
            answer |= {"receiver_id": mine[0].receiver_id, **receivers[mine[0].receiver_id]}
        return answer

    def trace(self, message_id: str) -> list[dict[str, Any]]:
        """Every copy of a message or broadcast: where it lies and each step it took. Empty for an unknown id."""
        return [
            {
                "id": message.id,
                "sender_id": message.sender_id,
                "receiver_id": message.receiver_id,
                "message_type": message.message_type,
                "path": str(path.relative_to(self.workspace.path)),
                **self._progress(message),
            }
            for path, message in self._copies(message_id)
        ]

    def _copies(self, message_id: str) -> list[tuple[Path, Message]]:
        """The message with this id, or all copies of the broadcast with this id, from every mailbox."""
        return [
            found
            for agent_id in self.agents.registry.all()
            for found in self.workspace.mailbox(agent_id).find_all(
                lambda message: message_id in (message.id, message.metadata.get("broadcast_id")), like=message_id
            )
        ]

    def _progress(self, message: Message) -> dict[str, Any]:
        steps: list[Mapping[str, Any]] = [{"state": "stored", "at": format_time(message.created_at)}]
        steps += self.announcer.steps(message)
        if message.read_at is not None:
            steps.append({"state": "read", "at": format_time(message.read_at)})
        reached = [step for step in steps if step["state"] != "deferred"]
        answer: dict[str, Any] = {"state": reached[-1]["state"], "steps": steps}
        if reached[-1]["state"] != "read" and (reason := steps[-1].get("reason")):
            answer["reason"] = reason
        return answer

    def _require_sound(self, draft: Draft) -> None:
        for name in ("content", "subject", "idempotency_key"):
            require_text(name, getattr(draft, name))
        metadata = as_json("metadata", draft.metadata)
        size = len(draft.content.encode())
        if size > self.limits.content_bytes:
            raise ContentTooLarge(size=size, limit=self.limits.content_bytes)
        envelope = len(as_json("subject", draft.subject)) + len(metadata)
        if envelope > ENVELOPE_CHARACTERS:
            raise ContentTooLarge(size=envelope, limit=ENVELOPE_CHARACTERS)
        require_choice("message_type", draft.message_type, MESSAGE_TYPES)
        require_choice("priority", draft.priority, MESSAGE_PRIORITIES)

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

    def _claimed(self, sender: Agent, key: str, messages: list[Message]) -> tuple[list[Message], list[Message]]:
        """The messages this key stands for, and those of them that are not stored yet.

        The claim fixes ids and times before anything is stored, so a second attempt writes the very same files and
        only those that the first did not get to.
        """
        digest = hashlib.sha256(key.encode()).hexdigest()[:32]
        path = self.workspace.path / ".claims" / sender.id / f"{digest}.json"
        claim = {
            "created_at": format_time(messages[0].created_at),
            "broadcast_id": messages[0].metadata.get("broadcast_id"),
            "ids": {message.receiver_id: message.id for message in messages},
        }
        try:
            self.workspace.files.create(path, json.dumps(claim).encode())
        except FileExistsError:
            with storage_errors(path):
                first = _as_claimed(messages[0], json.loads(path.read_bytes()))
            return first, [message for message in first if self._mailbox(message).find(message.id) is None]
        return messages, messages

    def _store(self, messages: list[Message], copy_to: Folder[Message] | None) -> list[Message]:
        """Writes the messages; on failure takes back what this call wrote, so that nothing was sent."""
        stored: list[Message] = []
        copies: list[Path] = []
        try:
            for message in messages:
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
                message = replace(message, created_at=message.created_at + timedelta(seconds=1))
            else:
                return message

    def _mailbox(self, message: Message) -> Mailbox:
        return self.workspace.mailbox(message.receiver_id)


def _as_claimed(template: Message, claim: Mapping[str, Any]) -> list[Message]:
    """The messages of the first attempt, by its claim."""
    metadata = {key: value for key, value in template.metadata.items() if key != "broadcast_id"}
    if claim["broadcast_id"]:
        metadata["broadcast_id"] = claim["broadcast_id"]
    created_at = parse_time(claim["created_at"]) or template.created_at
    return [
        replace(template, id=message_id, receiver_id=receiver_id, created_at=created_at, metadata=metadata)
        for receiver_id, message_id in claim["ids"].items()
    ]


def require_text(name: str, value: str | None) -> None:
    """Raises `InvalidArguments` for text that no UTF-8 file can hold."""
    try:
        (value or "").encode()
    except UnicodeEncodeError as error:
        raise InvalidArguments("bad_text", name=name) from error


def as_json(name: str, value: Any) -> str:
    """The value as JSON text, as it will be shown; raises `InvalidArguments` for what JSON or UTF-8 cannot hold."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArguments(reason=f"{name}: {error}") from error
    require_text(name, text)
    level = [value]
    for _ in range(NESTING_MAX):
        level = [item for value in level for item in _parts(value)]
    if level:
        raise InvalidArguments(reason=f"{name} is nested more than {NESTING_MAX} levels deep")
    return text


def _parts(value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        return list(value.values())
    return list(value) if isinstance(value, (list, tuple)) else []


def require_choice(name: str, value: str, allowed: Sequence[str]) -> None:
    """Raises `InvalidArguments` naming what would have been allowed."""
    if value not in allowed:
        raise InvalidArguments(reason=f"{name} {value!r:.60} is not one of: {', '.join(allowed)}")
