"""Who decides which change of a shared entity comes first: this machine's files alone, or the hub of several machines
(docs/protocol.md, Several machines).

Tasks, conversations, delegations, agents' records and the settings are shared. Their file says in its last key, `hub`,
which revision of the hub it is and how that began (`'{sequence} {digest8}'`), so a newer one is told from an older one,
and an edit by hand from both.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Generic, NamedTuple, Protocol, TypeVar

from multi_agent_mcp.domain.entity import Identified
from multi_agent_mcp.store.codec.frontmatter import codec

E = TypeVar("E", bound=Identified)

HUB = "hub"
DIGEST_LENGTH = 8


class Shared(NamedTuple):
    """A value as the authority has it: its revision, which only grows, and the bytes of its file without `hub`."""

    revision: int
    data: bytes


class Superseded(Exception):
    """The authority has another revision than the one that was to be replaced; `current` is what stands there."""

    def __init__(self, current: Shared) -> None:
        self.current = current
        super().__init__(current.revision)


class Authority(Protocol):
    """A key is `{kind}.{id}`: `tsk.tsk_0123456789ab`. What cannot be decided now raises `HubUnreachable`."""

    here: str | None
    """This machine's name; None while there is only one."""

    def require(self) -> None:
        """Raises `HubUnreachable` when nothing shared can be changed now."""

    def create(self, key: str, data: bytes) -> int | None:
        """Puts a value where there is none; returns its revision (None: there are none). Raises `Superseded`."""

    def swap(self, key: str, revision: int, data: bytes) -> int | None:
        """Replaces the value of this revision; empty `data` takes it back. Raises `Superseded`."""

    def current(self, key: str) -> Shared | None:
        """The value; None when there is none."""

    def queue(self, paths: Sequence[Path], *, wait: bool) -> bool:
        """New mail is to travel. Returns whether the other machines can have it by now; waits for that a moment."""

    def is_up(self, machine: str) -> bool:
        """Whether a machine has been heard of just now."""


class Alone:
    """One machine: its locks decide, nothing travels, nothing has a revision."""

    here: str | None = None

    def require(self) -> None:
        pass

    def create(self, key: str, data: bytes) -> int | None:  # noqa: ARG002
        return None

    def swap(self, key: str, revision: int, data: bytes) -> int | None:  # noqa: ARG002
        return None

    def current(self, key: str) -> Shared | None:  # noqa: ARG002
        return None

    def queue(self, paths: Sequence[Path], *, wait: bool) -> bool:  # noqa: ARG002
        return True

    def is_up(self, machine: str) -> bool:  # noqa: ARG002
        return True


ALONE = Alone()


class SharedKind(Generic[E]):
    """The entities of one type, between their files and the authority."""

    def __init__(self, authority: Authority, kind: str, entity_type: type[E]) -> None:
        self.authority = authority
        self.kind = kind
        self._codec = codec(entity_type)

    def agreed(self, before: E | None, after: E, data: bytes) -> E:
        """`after`, whose file is `data`, with its revision, once the authority has taken it in place of `before`.
        Raises `Superseded`."""
        key = f"{self.kind}.{after.id}"
        if before is None:
            revision = self.authority.create(key, data)
        else:
            revision = self.authority.swap(key, revision_of(before), data)
        return after if revision is None else marked(after, Shared(revision, data))

    def take_back(self, entity: E) -> None:
        """It was made a moment ago, and nobody was told of it."""
        found = self.authority.current(f"{self.kind}.{entity.id}")
        if found is not None:
            self.authority.swap(f"{self.kind}.{entity.id}", found.revision, b"")

    def payload(self, entity: E) -> bytes:
        """What travels: the file without its mark."""
        return self._codec.encode(replace(entity, extra=_without_mark(entity)))

    def is_marked(self, entity: E, shared: Shared) -> bool:
        """Whether its file says that it is this value."""
        return entity.extra.get(HUB) == mark(shared)

    def is_as_marked(self, entity: E) -> bool:
        """Whether it is what the hub has under its revision; else somebody has edited the file, or made it by hand."""
        _, _, digest = str(entity.extra.get(HUB, "")).partition(" ")
        return digest == digest8(self.payload(entity))


def marked(entity: E, shared: Shared) -> E:
    """The entity as its file is written: with the mark as the last key."""
    return replace(entity, extra={**_without_mark(entity), HUB: mark(shared)})


def mark(shared: Shared) -> str:
    return f"{shared.revision} {digest8(shared.data)}"


def revision_of(entity: Identified) -> int:
    """The hub's revision that a file says it is; 0 for one that never was there."""
    return revision_in(entity.extra.get(HUB))


def revision_in(value: object) -> int:
    number = str(value).partition(" ")[0]
    return int(number) if number.isascii() and number.isdecimal() else 0


def digest8(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:DIGEST_LENGTH]


def _without_mark(entity: Identified) -> dict[str, object]:
    return {key: value for key, value in entity.extra.items() if key != HUB}
