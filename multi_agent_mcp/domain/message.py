"""Messages between agents, each read once, and signatures."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import lru_cache
from sys import intern
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

from multi_agent_mcp.domain.entity import EPOCH, Identified, Readable, age, entity_id
from multi_agent_mcp.domain.times import format_time
from multi_agent_mcp.errors import ConversationNotActive, InvalidId, NotParticipant

if TYPE_CHECKING:
    from nacl.signing import SigningKey, VerifyKey

MessageType = Literal[
    "task_assign", "task_complete", "task_approved", "task_failed", "task_progress", "status_update",
    "request", "response", "broadcast", "system", "error", "conversation",
]  # fmt: skip
MessagePriority = Literal["low", "normal", "high", "urgent"]

MESSAGE_TYPES: tuple[str, ...] = get_args(MessageType)
MESSAGE_PRIORITIES: tuple[str, ...] = get_args(MessagePriority)
REPORT_TYPES = frozenset({"task_progress", "task_complete", "task_failed"})
SHORT_CHARACTERS = 100


@dataclass(frozen=True, kw_only=True)
class Message(Readable):
    """A message, one file in the receiver's mailbox. `read_at` None means unread; `content` is the body, byte for byte;
    `signature` is None in a hand-written file."""

    BODY: ClassVar[str | None] = "content"
    LEFT_OUT: ClassVar[frozenset[str]] = frozenset({"signature", "traceparent"})

    id: str
    sender_id: str = "unknown"
    receiver_id: str = ""
    message_type: str = "request"
    priority: str = "normal"
    subject: str = ""
    created_at: datetime = EPOCH
    read_at: datetime | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    signature: str | None = None
    traceparent: str | None = None
    """The trace of the call that sent it."""
    content: str = ""

    @property
    def purposes(self) -> Sequence[str]:
        """See `UnreadItem`: any session reads mail, but a conversation's is announced to the chat session first."""
        return ("chat", "task") if self.message_type == "conversation" else ("task", "chat")

    @property
    def claims_end(self) -> bool:
        """Whether it says that a conversation has ended: with its last words, or as mail of the system."""
        return "conversation_id" in self.metadata and bool(self.metadata.get("ended"))


def is_report(message: Message) -> bool:
    """Whether an assignee reports on its task: by a message of these types, or by the `result` of one that was stopped
    by somebody else (docs/protocol.md, Reports, Completion)."""
    return "task_id" in message.metadata and (message.message_type in REPORT_TYPES or "result" in message.metadata)


def reading_order(message: Message) -> tuple[bool, datetime, str]:
    """A sort key for unread mail: `urgent` before the rest, then oldest first."""
    return message.priority != "urgent", *age(message)


def without_content(message: Message) -> Message:
    """The message for an index in memory: without content and signature if it is long. One in a conversation stays
    whole, because its signature, which covers the content, has to be verified. It is the same object, just read from
    its file, which nobody else may have: copies took a tenth of the time of a look at a full mailbox. The words that
    return in every message are kept once."""
    kept: dict[str, Any] = {
        name: intern(getattr(message, name)) for name in ("sender_id", "receiver_id", "message_type", "priority")
    }
    if len(message.content) > SHORT_CHARACTERS and "conversation_id" not in message.metadata:
        kept |= {"content": "", "signature": None}
    for name, value in kept.items():
        object.__setattr__(message, name, value)
    return message


# Conversations, and their delegation from an agent's task session to its chat session (docs/protocol.md, Delegation,
# Conversations).


@dataclass(frozen=True, kw_only=True)
class Conversation(Identified):
    """A conversation between two agents: `pending` until the target reads or answers, then `active`, then `ended`."""

    BEGAN: ClassVar[str] = "started_at"

    id: str
    initiator_id: str = ""
    target_agent_id: str = ""
    task_id: str | None = None
    delegation_id: str | None = None
    purpose: str | None = None
    status: str = "pending"
    started_at: datetime = EPOCH
    ended_at: datetime | None = None
    ended_by: str | None = None

    def has(self, agent_id: str) -> bool:
        return agent_id in (self.initiator_id, self.target_agent_id)

    def require_participant(self, agent_id: str) -> None:
        """Raises `NotParticipant` for any other agent."""
        if not self.has(agent_id):
            raise NotParticipant(conversation_id=self.id)

    def require_open(self) -> None:
        """Raises `ConversationNotActive` if the conversation has ended."""
        if self.status == "ended":
            raise ConversationNotActive(conversation_id=self.id)

    def other(self, agent_id: str) -> str:
        """The other participant. Raises `NotParticipant`."""
        self.require_participant(agent_id)
        return self.target_agent_id if agent_id == self.initiator_id else self.initiator_id

    def seen_by(self, agent_id: str) -> Conversation:
        """The conversation after an agent has read or answered: active if the agent is the target."""
        if self.status == "pending" and agent_id == self.target_agent_id:
            return replace(self, status="active")
        return self

    def end(self, by: str, at: datetime) -> Conversation:
        """The ended conversation. Raises `NotParticipant`, `ConversationNotActive`."""
        self.require_participant(by)
        self.require_open()
        return replace(self, status="ended", ended_at=at, ended_by=by)


@dataclass(frozen=True, kw_only=True)
class Delegation(Identified):
    """A task session's request that the agent's chat session talk to another agent. `taken_by` is the chat session that
    took it; if that dies before starting the conversation, the delegation is offered again."""

    BODY: ClassVar[str | None] = "context"

    id: str
    agent_id: str = ""
    target_agent_id: str = ""
    purpose: str = ""
    task_id: str | None = None
    status: str = "pending"
    taken_by: str | None = None
    conversation_id: str | None = None
    created_at: datetime = EPOCH
    updated_at: datetime = EPOCH
    context: str = ""

    @property
    def reserved_id(self) -> str | None:
        """The id of the delegation's conversation, or None; None, too, for a hand-written value that is no id."""
        try:
            return entity_id("cnv", self.conversation_id)
        except InvalidId:
            return None

    def take(self, session_id: str, at: datetime) -> Delegation:
        if self.taken_by == session_id:
            return self
        return replace(self, status="taken", taken_by=session_id, updated_at=at)

    def readdressed(self, agent_id: str, at: datetime) -> Delegation:
        """The delegation to whoever was free, to the agent that was."""
        return replace(self, target_agent_id=agent_id, updated_at=at)

    def start(self, session_id: str, conversation_id: str, at: datetime) -> Delegation:
        """The delegation with the id of its conversation, which is reserved before the conversation is created."""
        return replace(self, status="started", taken_by=session_id, conversation_id=conversation_id, updated_at=at)


# Signatures: Ed25519, of a message over its envelope and its body (docs/protocol.md, Signatures).

SCHEME, OLD_SCHEME = "v2", "v1"
KEY_TYPE = "ed25519"
_DERIVED_FOR = b"multi-agent-mcp signature v2"
_NO_SALT = bytes(32)
_ENVELOPE = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(",", ":"))
_SIGNED = ("id", "sender_id", "receiver_id", "message_type", "priority", "subject")
_NOT_JSON = (TypeError, ValueError, RecursionError)
"""The errors that `json.dumps` raises for metadata that cannot have been signed: keys that cannot be sorted, integers
of five thousand digits, endless nesting."""


def signed_bytes(message: Message, scheme: str = SCHEME) -> bytes:
    """The signed bytes: the envelope as one line of JSON, a newline, and the body; without `read_at` and unknown keys,
    which may change after sending."""
    envelope = {
        "scheme": scheme,
        **{name: getattr(message, name) for name in _SIGNED},
        "created_at": format_time(message.created_at),
        "metadata": dict(message.metadata),
    }
    return f"{_ENVELOPE.encode(envelope)}\n{message.content}".encode(errors="surrogatepass")


def signature(message: Message, key: str) -> str:
    """Signs a message: `v2:` and 128 hexadecimal digits of Ed25519. `key` is the text of the sender's key file."""
    return signed_data(signed_bytes(message), key)


def is_signed_by(message: Message, public: str) -> bool:
    """Whether the message has a valid signature for this public key; False, too, for an invalid key."""
    try:
        data = signed_bytes(message)
    except _NOT_JSON:
        return False
    return is_data_signed_by(data, message.signature, public)


def has_old_scheme(message: Message) -> bool:
    return str(message.signature).startswith(f"{OLD_SCHEME}:")


def is_signed_with(message: Message, key: str) -> bool:
    """Whether a message with the old scheme, HMAC-SHA256, was signed with this key, which is the sender's own."""
    try:
        digest = hmac.new(key.encode(), signed_bytes(message, OLD_SCHEME), hashlib.sha256).hexdigest()
    except _NOT_JSON:
        return False
    return hmac.compare_digest(str(message.signature).encode(errors="surrogatepass"), f"{OLD_SCHEME}:{digest}".encode())


def signed_data(data: bytes, key: str) -> str:
    """Signs bytes: `v2:` and 128 hexadecimal digits of Ed25519. `key` is the text of the signer's key file."""
    return f"{SCHEME}:{_signing_key(key).sign(data).signature.hex()}"


def is_data_signed_by(data: bytes, signature: object, public: str) -> bool:
    """Whether the bytes have a valid signature for this public key; False, too, for an invalid key."""
    from nacl.exceptions import CryptoError

    try:
        _verifying_key(public).verify(data, _digits(signature, SCHEME))
    except (CryptoError, ValueError, TypeError):
        return False
    return True


def public_key(key: str) -> str:
    """The public key for `agents.json`, with which signatures are verified: `ed25519:` and 64 hexadecimal digits."""
    return f"{KEY_TYPE}:{bytes(_signing_key(key).verify_key).hex()}"


@lru_cache(maxsize=8)
def _signing_key(key: str) -> SigningKey:
    """The signing key of a key file. Its seed is derived from the key by HKDF-SHA256 (RFC 5869, one block), so that
    passkeys may have any form, and no secret serves two algorithms."""
    from nacl.signing import SigningKey

    pseudorandom = hmac.digest(_NO_SALT, key.encode(), "sha256")
    return SigningKey(hmac.digest(pseudorandom, _DERIVED_FOR + b"\x01", "sha256"))


@lru_cache(maxsize=1024)
def _verifying_key(public: str) -> VerifyKey:
    """Parses a public key. Raises `ValueError`."""
    from nacl.signing import VerifyKey

    return VerifyKey(_digits(public, KEY_TYPE))


def _digits(text: object, name: str) -> bytes:
    """The bytes of `{name}:{hex}`. Raises `ValueError` for anything else."""
    found, _, digits = str(text).partition(":")
    if found != name:
        raise ValueError(name)
    return bytes.fromhex(digits)
