"""Slices: messages as far as they fit into one answer (docs/protocol.md, Answers)."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from multi_agent_mcp.domain.message import Message
from multi_agent_mcp.domain.times import format_time
from multi_agent_mcp.services.validation import ENVELOPE_CHARACTERS

HEADER_CHARACTERS = ENVELOPE_CHARACTERS + 600
SHORTENED_CHARACTERS = 120
_HEADER = ("sender_id", "receiver_id", "message_type", "priority", "subject", "metadata")
SMALLEST_SLICE = 200  # a message is not begun for less


@dataclass(frozen=True)
class Slice:
    """A message as far as it is handed over: `content` from `offset`, whole unless `truncated`. It lies at `path`;
    `address` names this very file (see `Inbox.address`): nearly always the message's id.

    Only what does not verify is flagged: the others, nearly all, would pay for the word in every answer.
    """

    message: Message
    path: Path
    address: str
    content: str = ""
    offset: int = 0
    truncated: bool = False
    verified: bool = True

    def as_answer(self) -> dict[str, Any]:
        message = self.message
        answer: dict[str, Any] = {
            "id": self.address,
            "sender_id": message.sender_id,
            "receiver_id": message.receiver_id,
            "message_type": message.message_type,
            "priority": message.priority,
            "subject": message.subject,
            "content": self.content,
            "created_at": format_time(message.created_at),
            "read_at": format_time(message.read_at) if message.read_at else None,
            "metadata": dict(message.metadata),
        }
        if self.address != message.id:
            answer["duplicate_of"] = message.id[:SHORTENED_CHARACTERS]
        answer |= _shortened({name: answer[name] for name in _HEADER})
        if not self.verified:
            answer["verified"] = False
        if self.truncated or self.offset:
            answer |= {"content_truncated": self.truncated, "content_length": len(message.content)}
        return answer


def pack(candidates: Iterable[Slice], limit: int, budget: int) -> tuple[list[Slice], bool]:
    """As many of these whole messages as fit, and only the first one cut. The flag says that more would have
    followed."""
    slices: list[Slice] = []
    for whole in candidates:
        if len(slices) >= limit:
            return slices, True
        size = _size(whole)
        if size <= budget:
            slices.append(whole)
            budget -= size
        elif not slices:
            return [cut(whole, 0, budget)], _has_more(candidates)
        else:
            return slices, True
    return slices, False


def cut(whole: Slice, offset: int, budget: int) -> Slice:
    """The longest piece of the content from `offset` that fits; measured as JSON, where a control character takes
    six characters."""
    rest = whole.message.content[offset:]
    room = max(budget - _size(replace(whole, content="")), SMALLEST_SLICE)
    if len(json.dumps(rest[: room + 1], ensure_ascii=False)) - 2 <= room and len(rest) <= room:
        return replace(whole, content=rest, offset=offset)
    low, high = 0, min(len(rest), room)
    while low < high:
        middle = (low + high + 1) // 2
        if len(json.dumps(rest[:middle], ensure_ascii=False)) - 2 <= room:
            low = middle
        else:
            high = middle - 1
    return replace(whole, content=rest[:low], offset=offset, truncated=True)


def _size(item: Slice) -> int:
    return len(json.dumps(item.as_answer(), ensure_ascii=False)) + 60  # read_at and verified are still to be set


def _shortened(header: dict[str, Any]) -> dict[str, Any]:
    """The header as it is, unless it is larger than any that `send_message` accepts: a hand-written one may hold
    anything, and must neither hide its content nor burst the answer."""
    if len(json.dumps(header, ensure_ascii=False)) <= HEADER_CHARACTERS:
        return header
    texts = {name: value[:SHORTENED_CHARACTERS] for name, value in header.items() if isinstance(value, str)}
    return {**texts, "metadata": {}, "header_truncated": True}


def _has_more(candidates: Iterable[Slice]) -> bool:
    return any(True for _ in candidates)
