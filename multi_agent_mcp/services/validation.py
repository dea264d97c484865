"""Validation of callers' input: messages to be sent, texts, choices."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from multi_agent_mcp.domain.message import MESSAGE_PRIORITIES, MESSAGE_TYPES
from multi_agent_mcp.errors import ContentTooLarge, InvalidArguments
from multi_agent_mcp.services.answer_budget import ENVELOPE_CHARACTERS

SKILL_CHARACTERS = 64
NESTING_MAX = 32  # of metadata; the store reads back twice that


@dataclass(frozen=True, kw_only=True)
class Draft:
    """A message as given by its sender. `receiver_id` None means a broadcast to all other agents. The default of
    `message_type` is `broadcast` for a broadcast, else `request`."""

    content: str
    receiver_id: str | None = None
    message_type: str | None = None
    subject: str = ""
    priority: str = "normal"
    metadata: Mapping[str, Any] = field(default_factory=dict)
    idempotency_key: str | None = None

    @property
    def type(self) -> str:
        return self.message_type or ("broadcast" if self.receiver_id is None else "request")

    def require_sound(self, content_bytes: int) -> None:
        """Raises `InvalidArguments` or `ContentTooLarge` if the message could not be stored or shown."""
        for name in ("content", "subject", "idempotency_key"):
            require_text(name, getattr(self, name))
        metadata = as_json("metadata", self.metadata) if self.metadata else "{}"
        size = len(self.content.encode())
        if size > content_bytes:
            raise ContentTooLarge(size=size, limit=content_bytes)
        envelope = len(_JSON.encode(self.subject)) + len(metadata)
        if envelope > ENVELOPE_CHARACTERS:
            raise ContentTooLarge("envelope_too_large", size=envelope, limit=ENVELOPE_CHARACTERS)
        require_choice("message_type", self.type, MESSAGE_TYPES)
        require_choice("priority", self.priority, MESSAGE_PRIORITIES)


_JSON = json.JSONEncoder(ensure_ascii=False, allow_nan=False)


def require_text(name: str, value: str | None) -> None:
    """Raises `InvalidArguments` for text that cannot be encoded in UTF-8."""
    try:
        (value or "").encode()
    except UnicodeEncodeError as error:
        raise InvalidArguments("bad_text", name=name) from error


def require_one_line(name: str, value: str) -> None:
    """Raises `InvalidArguments` for text that is not one line: every character counts that some program takes for the
    end of one (docs/protocol.md, Another's words)."""
    require_text(name, value)
    if value and value.splitlines() != [value]:
        raise InvalidArguments("one_line", name=name)


def require_skills(needs: Sequence[str], name: str = "needs") -> tuple[str, ...]:
    """The names of skills, each once. Raises `InvalidArguments` for one that is blank, too long or not one line."""
    for skill in needs:
        require_one_line(name, skill)
        if not skill.strip() or len(skill) > SKILL_CHARACTERS:
            raise InvalidArguments("skill_length", limit=SKILL_CHARACTERS)
    return tuple(dict.fromkeys(skill.strip() for skill in needs))


def words_or_none(name: str, value: str | None) -> str | None:
    """The text, or None if it is blank. Raises as `require_text`."""
    require_text(name, value)
    return value if value and value.strip() else None


def require_words(name: str, value: str) -> None:
    """Raises `InvalidArguments` for blank text."""
    if not value.strip():
        raise InvalidArguments("no_words", name=name)


def as_json(name: str, value: Any) -> str:
    """The value as JSON text, as it will be shown. Raises `InvalidArguments` if JSON or UTF-8 cannot represent it, or
    if it is nested too deeply."""
    try:
        text = _JSON.encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArguments("not_json", name=name) from error
    require_text(name, text)
    level = [value]
    for _ in range(NESTING_MAX):
        level = [item for value in level for item in _parts(value)]
        if not level:
            return text
    raise InvalidArguments("nested_too_deeply", name=name, limit=NESTING_MAX)


def _parts(value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        return list(value.values())
    return list(value) if isinstance(value, (list, tuple)) else []


def require_choice(name: str, value: str, allowed: Sequence[str]) -> None:
    """Raises `InvalidArguments`, with the allowed values, for any other value."""
    if value not in allowed:
        raise InvalidArguments("no_such_choice", name=name, value=f"{value!r:.60}", allowed=", ".join(allowed))
