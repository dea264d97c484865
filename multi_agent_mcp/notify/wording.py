"""The words of a doorbell: its one line, which never holds anything an agent wrote freely (docs/protocol.md, Doorbell
line)."""

from __future__ import annotations

import re
from collections.abc import Sequence

from multi_agent_mcp.domain.delivery import UnreadMessage
from multi_agent_mcp.domain.message import MESSAGE_TYPES
from multi_agent_mcp.domain.sanitize import sanitize
from multi_agent_mcp.texts import Texts

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")


def doorbell_line(texts: Texts, messages: Sequence[UnreadMessage]) -> str:
    """`[IPC] 新しいメッセージ: {message_type} from {sender_id}`, or the count when there are several.

    A hand-written file may claim any type and sender; what is not a known type or a plain name is not repeated.
    """
    if len(messages) != 1:
        return texts("doorbell.many", count=len(messages))
    message = messages[0]
    message_type = message.message_type if message.message_type in MESSAGE_TYPES else "request"
    sender_id = message.sender_id if _NAME.fullmatch(message.sender_id) else "unknown"
    return texts("doorbell.one", message_type=message_type, sender_id=sender_id)


def sanitized(line: str) -> str:
    """The line without anything a terminal might obey, and without tabs and newlines (docs/protocol.md, Typing into a
    pane, Harmless text)."""
    return sanitize(line, " ").replace("\t", " ").replace("\n", " ")
