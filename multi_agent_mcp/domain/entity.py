"""What every entity shares: frozen, keyword-only, with the unknown front-matter keys it was read with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, ClassVar, Self

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, kw_only=True)
class Entity:
    """One file. The fields of a subclass are the front-matter keys in order; the field named by `BODY` is the body.

    Every field but the `id` has a default, because a hand-written file may leave any of them out. `extra` holds keys we
    do not know: they are kept when the file is rewritten.
    """

    BODY: ClassVar[str | None] = None
    LEFT_OUT: ClassVar[frozenset[str]] = frozenset()
    """Keys that are not written while they are None."""

    extra: Mapping[str, Any] = field(default_factory=dict)


class Identified(Entity):
    """An entity with an id. No dataclass, like `Readable`: which field comes where is what its subclasses say."""

    id: str


class Readable(Identified):
    """An entity that is read once: a message, a notification."""

    created_at: datetime
    read_at: datetime | None

    def mark_read(self, at: datetime | None) -> Self:
        """Read at `at`; None makes it unread again (its reader died before it could act)."""
        return replace(self, read_at=at)  # type: ignore[call-arg]  # it is a field of every subclass
