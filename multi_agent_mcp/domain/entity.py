"""What every entity shares: frozen, keyword-only, with the unknown front-matter keys it was read with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, ClassVar

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ITEM = "item"
"""The key of a list field's metadata: a function that makes an item of whatever somebody wrote by hand."""


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
