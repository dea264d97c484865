"""Messages between agents, each read once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, ClassVar, Literal, get_args

from multi_agent_mcp.domain.entity import EPOCH, Readable, age, assembled

MessageType = Literal[
    "task_assign",
    "task_complete",
    "task_approved",
    "task_failed",
    "task_progress",
    "status_update",
    "request",
    "response",
    "broadcast",
    "system",
    "error",
    "conversation",
]
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
    LEFT_OUT: ClassVar[frozenset[str]] = frozenset({"signature"})

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
    content: str = ""

    @property
    def purposes(self) -> Sequence[str]:
        """See `UnreadItem`: any session reads mail, but a conversation's is announced to the chat session first."""
        return ("chat", "task") if self.message_type == "conversation" else ("task", "chat")


def is_report(message: Message) -> bool:
    """Whether an assignee reports on its task: by a message of these types, or by the `result` of one that was stopped
    by somebody else (docs/protocol.md, Reports, Completion)."""
    return "task_id" in message.metadata and (message.message_type in REPORT_TYPES or "result" in message.metadata)


def reading_order(message: Message) -> tuple[bool, datetime, str]:
    """A sort key for unread mail: `urgent` before the rest, then oldest first."""
    return message.priority != "urgent", *age(message)


def without_content(message: Message) -> Message:
    """The message for an index in memory: without content and signature if it is long. One in a conversation stays
    whole, because its signature, which covers the content, has to be verified."""
    if len(message.content) <= SHORT_CHARACTERS or "conversation_id" in message.metadata:
        return message
    return assembled(Message, {**vars(message), "content": "", "signature": None})
