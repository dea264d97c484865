"""Ids: parsed once at the edge, trusted inside (docs/protocol.md, Ids)."""

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
    """Raises `InvalidId` for anything that is not a plain name (`../x`, `a/b`, `.`, 65 characters, ``)."""
    return AgentId(_name(value))


def session_name(value: object) -> SessionName:
    """The name of a team's directory; the same rule as for agents."""
    return SessionName(_name(value))


def differing_in_case(name: str, others: Iterable[str]) -> str | None:
    """The one of `others` that is this name but for case; some file systems (macOS, Windows) take both for one."""
    return next((other for other in others if other != name and other.lower() == name.lower()), None)


def is_name(value: object) -> bool:
    """Whether an agent or a session can be called so."""
    return isinstance(value, str) and _NAME.fullmatch(value) is not None


def as_name(text: str, otherwise: str) -> str:
    """The nearest name to any text; `otherwise` where nothing of it can be in a name."""
    return re.sub("[^A-Za-z0-9_-]+", "-", text).strip("-_")[:64] or otherwise


def _name(value: object) -> str:
    if not isinstance(value, str) or not is_name(value):
        raise InvalidId(value=repr(value)[:80])
    return value


def entity_id(prefix: str, value: object) -> str:
    """Parses `tsk_0123456789ab` and its like before it touches a path; raises `InvalidId`."""
    if not isinstance(value, str) or not _ENTITY.fullmatch(value) or not value.startswith(f"{prefix}_"):
        raise InvalidId("invalid_entity_id", value=repr(value)[:80], prefix=prefix)
    return value


def new_id(prefix: str) -> str:
    """`tsk_` and 12 random hex characters."""
    return f"{prefix}_{secrets.token_hex(6)}"


def new_message_id(like: str | None = None) -> str:
    """A UUID4. With `like`, its first eight digits are those of `like`: the copies of a broadcast share them,
    so that one `ls ipc/*/*_{id8}.md` shows them all."""
    fresh = str(uuid.uuid4())
    return fresh if like is None else like[:8] + fresh[8:]


def id8(entity: str) -> str:
    """The eight characters that stand for an id in a file name."""
    digits = _SLUG.sub("", entity.split("_", 1)[-1] if _ENTITY.fullmatch(entity) else entity)
    return (digits or "0")[:8]
