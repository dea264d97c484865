"""Base classes of entities: frozen, keyword-only, preserving unknown front-matter keys; and ids."""

from __future__ import annotations

import math
import re
import secrets
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, date, datetime
from typing import Any, ClassVar, NamedTuple, NewType, Self, TypeVar

from multi_agent_mcp.domain.times import format_time, parse_time
from multi_agent_mcp.errors import InvalidId

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ITEM = "item"
"""The key of a list field's metadata for the function that converts a possibly hand-written value to an item."""


@dataclass(frozen=True, kw_only=True)
class Entity:
    """The content of one file. The fields of a subclass are the front-matter keys in order; the field named by `BODY`
    is the body.

    Every field but the `id` has a default, because a hand-written file may omit any of them. `extra` holds unknown
    keys, which are kept when the file is rewritten.
    """

    BODY: ClassVar[str | None] = None
    LEFT_OUT: ClassVar[frozenset[str]] = frozenset()
    """The keys that are not written while they are None."""

    extra: Mapping[str, Any] = field(default_factory=dict)


E = TypeVar("E", bound=Entity)


class Identified(Entity):
    """An entity with an id. Like `Readable` no dataclass, so that subclasses determine the order of the fields."""

    BEGAN: ClassVar[str] = "created_at"
    """The name of the field with the entity's time of creation."""

    id: str


class Readable(Identified):
    """An entity that is read once: a message, a notification."""

    created_at: datetime
    read_at: datetime | None

    def mark_read(self, at: datetime | None) -> Self:
        """The entity as read at `at`; None makes it unread again (its reader died before it could act)."""
        return replace(self, read_at=at)  # type: ignore[call-arg]  # it is a field of every subclass

    def mark_ended(self, at: datetime) -> Self:
        """The entity as over at `at`: nobody has to be handed it any more."""
        return self.mark_read(at)


R = TypeVar("R", bound=Readable)


class Mark(NamedTuple):
    """The mark of a message or notification on its agent's home machine. `read_at`: when it was read; None if it is
    unread. `settled`: it was only ended, as its cause was over. `over`: it is archived although its kind would stay (a
    pause that is over). `held`: it was handed out and is not archived before that is confirmed."""

    read_at: datetime | None
    settled: bool = False
    over: bool = False
    held: bool = False

    def on(self, entity: R) -> R:
        """The entity with this mark."""
        is_settled = self.settled and self.read_at is not None
        return entity.mark_ended(self.read_at) if is_settled else entity.mark_read(self.read_at)  # type: ignore[arg-type]

    @property
    def words(self) -> str:
        """The mark as text, "" if it is unread."""
        time = "" if self.read_at is None else format_time(self.read_at)
        return " ".join([time, *self.said]).strip()

    @property
    def said(self) -> list[str]:
        """What is so besides the time, in words."""
        return [name for name in ("settled", "over", "held") if getattr(self, name)]

    @classmethod
    def parse(cls, words: str) -> Mark:
        time, *said = words.split() or [""]
        return cls(parse_time(time), "settled" in said, "over" in said, "held" in said)


def assembled(entity_type: type[E], values: Mapping[str, Any]) -> E:
    """An entity with these values of all its fields; the constructor of a frozen class takes five times as long. The
    fields are set one by one, because instances with a `__dict__` of their own take twice the memory."""
    entity = object.__new__(entity_type)
    put = object.__setattr__
    for name, value in values.items():
        put(entity, name, value)
    return entity


def age(entity: Identified) -> tuple[datetime, str]:
    """A sort key, oldest first."""
    return getattr(entity, entity.BEGAN), entity.id


def as_json(entity: Entity) -> dict[str, Any]:
    """An entity as a JSON object: its fields, including the body, then its unknown keys."""
    known = {spec.name: plain_value(getattr(entity, spec.name)) for spec in fields(entity) if spec.name != "extra"}
    return {**known, **json_value(entity.extra)}


def fields_of(value: object, *names: str) -> dict[str, Any]:
    """The named fields of a value, as YAML and JSON values."""
    return {name: plain_value(getattr(value, name)) for name in names}


def plain_value(value: Any) -> Any:
    """A field's value as a YAML and JSON value."""
    if value is None or isinstance(
        value, (str, int, float, bytes)
    ):  # first, because the test for a mapping takes much longer
        return value
    if isinstance(value, datetime):
        return format_time(value)
    if isinstance(value, Mapping):
        return {key: plain_value(item) for key, item in value.items()}
    if isinstance(value, Sequence):
        return [plain_value(item) for item in value]
    return value


def json_value(value: Any) -> Any:
    """A YAML value as a JSON value: dates, sets, bytes and infinities, which JSON lacks, become strings or lists."""
    if isinstance(value, dict):  # nearly all of what a history says is texts
        return {str(key): item if type(item) is str else json_value(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [item if type(item) is str else json_value(item) for item in value]
    if isinstance(value, set):
        return sorted(str(item) for item in value)
    if isinstance(value, date):
        return value.isoformat()
    if value is None or isinstance(value, (str, int)) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return str(value)


# Ids: parsed where they enter the program, trusted inside (docs/protocol.md, Ids).

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
    if isinstance(value, str) and is_entity_id(prefix, value):
        return value
    raise InvalidId("invalid_entity_id", value=repr(value)[:80], prefix=prefix)


def is_entity_id(prefix: str, value: str) -> bool:
    """Whether the value is an id like `tsk_0123456789ab`."""
    return _ENTITY.fullmatch(value) is not None and value.startswith(f"{prefix}_")


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
    if (start := entity[:8]).isalnum() and start.isascii() and len(start) == 8:  # a message's; a look asks for all
        return start
    digits = _SLUG.sub("", entity.split("_", 1)[-1] if _ENTITY.fullmatch(entity) else entity)
    return (digits or "0")[:8]
