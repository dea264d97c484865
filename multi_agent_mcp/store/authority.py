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
from typing import NamedTuple, Protocol, TypeVar

from multi_agent_mcp.domain.entity import Identified

E = TypeVar("E", bound=Identified)

HUB = "hub"
DIGEST_LENGTH = 8
PAYLOAD_BYTES = 4 << 20
"""The largest value that travels. A message's content may have 1 MiB, which JSON and YAML may make longer."""
TOO_LARGE = "hub_too_large"
"""Why a larger one never does."""


class Shared(NamedTuple):
    """A value as the authority has it: its revision, which only grows, and the bytes of its file without `hub`."""

    revision: int
    data: bytes


class Superseded(Exception):
    """The authority has another revision than the one that was to be replaced; `current` is what it has."""

    def __init__(self, current: Shared) -> None:
        self.current = current
        super().__init__(current.revision)


class Authority(Protocol):
    """A key is `{kind}.{id}`: `tsk.tsk_0123456789ab`. What cannot be decided now raises `HubUnreachable`."""

    here: str | None
    """This machine's name; None while there is only one."""

    def require(self) -> None:
        """Raises `HubUnreachable` when nothing shared can be changed now."""

    def create(self, key: str, data: bytes, was: int | None = None) -> int | None:
        """Puts a value where there is none; returns its revision (None: there are none). `was`: the one that it had on
        a hub that is no more. Raises `Superseded`."""

    def swap(self, key: str, revision: int, data: bytes) -> int | None:
        """Replaces the value of this revision; empty `data` takes it back. Raises `Superseded`."""

    def current(self, key: str) -> Shared | None:
        """The value; None when there is none."""

    def queue(self, paths: Sequence[Path], *, wait: bool) -> str | None:
        """New mail is to travel. Returns why the hub does not have it yet, as far as is known after a moment: the code
        of a reason. None: it has it."""

    def is_up(self, machine: str) -> bool:
        """Whether a machine has been heard of just now."""


class Alone:
    """One machine: its locks decide, nothing travels, nothing has a revision."""

    here: str | None = None

    def require(self) -> None:
        pass

    def create(self, key: str, data: bytes, was: int | None = None) -> int | None:  # noqa: ARG002
        return None

    def swap(self, key: str, revision: int, data: bytes) -> int | None:  # noqa: ARG002
        return None

    def current(self, key: str) -> Shared | None:  # noqa: ARG002
        return None

    def queue(self, paths: Sequence[Path], *, wait: bool) -> str | None:  # noqa: ARG002
        return None

    def is_up(self, machine: str) -> bool:  # noqa: ARG002
        return True


ALONE = Alone()


def marked(entity: E, shared: Shared) -> E:
    """The entity as its file is written: with the mark as the last key."""
    return replace(entity, extra={**without_mark(entity), HUB: mark(shared)})


def is_marked(entity: Identified, shared: Shared) -> bool:
    """Whether an entity's file says that it is this value."""
    return entity.extra.get(HUB) == mark(shared)


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


def without_mark(entity: Identified) -> dict[str, object]:
    return {key: value for key, value in entity.extra.items() if key != HUB}
