"""Ids: parsed where they enter the program, trusted inside (docs/protocol.md, Ids)."""

from __future__ import annotations

import re
import secrets
import uuid
from collections.abc import Iterable
from typing import NewType

from multi_agent_mcp.errors import InvalidId

AgentId = NewType("AgentId", str)
SessionName = NewType("SessionName", str)

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_ENTITY = re.compile(r"[a-z]{3,4}_[0-9a-f]{12}")
_SLUG = re.compile(r"[^A-Za-z0-9]")


def agent_id(value: object) -> AgentId:
    """Parses an agent's id. Raises `InvalidId` for anything but a plain name (`../x`, `a/b`, `.`, 65 characters,
    ``)."""
    return AgentId(_name(value))


def session_name(value: object) -> SessionName:
    """Parses the name of a team's directory, by the same rule as `agent_id`."""
    return SessionName(_name(value))


def differing_in_case(name: str, others: Iterable[str]) -> str | None:
    """The one of `others` that differs from the name only in case, or None; some file systems (macOS, Windows) do not
    distinguish them."""
    return next((other for other in others if other != name and other.lower() == name.lower()), None)


def is_name(value: object) -> bool:
    """Whether the value is a valid name for an agent or a session."""
    return isinstance(value, str) and _NAME.fullmatch(value) is not None


def as_name(text: str, otherwise: str) -> str:
    """The text with invalid characters replaced to make a name; `otherwise` if nothing is left."""
    return re.sub("[^A-Za-z0-9_-]+", "-", text).strip("-_")[:64] or otherwise


def _name(value: object) -> str:
    if not isinstance(value, str) or not is_name(value):
        raise InvalidId(value=repr(value)[:80])
    return value


def entity_id(prefix: str, value: object) -> str:
    """Parses an id like `tsk_0123456789ab`, before it becomes part of a path. Raises `InvalidId`."""
    if not isinstance(value, str) or not _ENTITY.fullmatch(value) or not value.startswith(f"{prefix}_"):
        raise InvalidId("invalid_entity_id", value=repr(value)[:80], prefix=prefix)
    return value


def new_id(prefix: str) -> str:
    """A new id: the prefix and 12 random hexadecimal digits, like `tsk_0123456789ab`."""
    return f"{prefix}_{secrets.token_hex(6)}"


def new_message_id(like: str | None = None) -> str:
    """A new UUID4. With `like`, its first eight digits are those of `like`: the copies of a broadcast share them, so
    that `ls ipc/*/*_{id8}.md` lists them all."""
    fresh = str(uuid.uuid4())
    return fresh if like is None else like[:8] + fresh[8:]


def id8(entity: str) -> str:
    """The eight characters that represent an id in a file name."""
    digits = _SLUG.sub("", entity.split("_", 1)[-1] if _ENTITY.fullmatch(entity) else entity)
    return (digits or "0")[:8]
