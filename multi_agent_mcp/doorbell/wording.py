"""The text of a doorbell: one line, which never contains anything an agent wrote freely (docs/protocol.md, Doorbell
line)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from multi_agent_mcp.domain.delivery import MANY, About, DoorbellItem, FirstPrompt, GoOn, UnreadNotification
from multi_agent_mcp.domain.entity import is_name
from multi_agent_mcp.domain.message import MESSAGE_TYPES, Message
from multi_agent_mcp.domain.notification import ACTIONS, TYPES
from multi_agent_mcp.domain.text import sanitize

if TYPE_CHECKING:
    from multi_agent_mcp.texts import Texts

SYSTEM = "system"
"""The sender shown for notifications that no agent caused."""


def doorbell_line(texts: Texts, items: Sequence[DoorbellItem]) -> str:
    """The doorbell line for these unread items: the kind and sender of a single one, else the count of each kind; for a
    first prompt alone what to call, after a usage limit to go on.

    A hand-written file may claim any type and sender; only known types and plain names are repeated.
    """
    messages = [item for item in items if isinstance(item, Message)]
    notices = [item for item in items if isinstance(item, UnreadNotification)]
    if messages and notices:
        return texts("doorbell.both", messages=len(messages), notifications=len(notices))
    if notices:
        return _about_notifications(texts, notices)
    if not messages:
        return texts("doorbell.go_on" if any(isinstance(item, GoOn) for item in items) else "doorbell.begin")
    if len(messages) != 1:
        return texts("doorbell.many", count=len(messages))
    message = messages[0]
    message_type = message.message_type if message.message_type in MESSAGE_TYPES else "request"
    return texts("doorbell.one", message_type=message_type, sender_id=_name(message.sender_id))


def about(items: Sequence[DoorbellItem]) -> About:
    """The kind and id of the only item: `message` and its id; a notification's action, or else its type, and the id of
    its question, or else its own."""
    if len(items) != 1 or isinstance(item := items[0], FirstPrompt | GoOn):
        return MANY
    if isinstance(item, Message):
        return About("message", _name(item.id), item.traceparent)
    return About(_word(item), _name(item.question_id or item.id))


def _word(notice: UnreadNotification) -> str:
    known = (word for word in (notice.action, notice.type) if word in (*ACTIONS, *TYPES))
    return next(known, TYPES[-1])


def _about_notifications(texts: Texts, notices: Sequence[UnreadNotification]) -> str:
    if len(notices) > 1:
        return texts("doorbell.notifications", count=len(notices))
    notice = notices[0]
    agent_id = SYSTEM if notice.sender_id is None else _name(notice.sender_id)
    return texts("doorbell.notification", action=_word(notice), agent_id=agent_id)


def _name(agent_id: str) -> str:
    return agent_id if is_name(agent_id) else "unknown"


def sanitized(line: str) -> str:
    """The line without anything a terminal might obey, and without tabs and newlines (docs/protocol.md, Typing into a
    pane, Harmless text)."""
    return sanitize(line, " ").replace("\t", " ").replace("\n", " ")
