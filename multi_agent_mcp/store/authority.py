"""The authority orders the changes of a shared entity: this machine's files alone, or the hub of several machines
(docs/protocol.md, Several machines).

Tasks, conversations, delegations, questions, agents' records and the settings are shared. The last key of their file,
`hub`, is a mark: the hub's revision and the beginning of the value's digest (`'{sequence} {digest8}'`). The revision
tells newer from older, the digest whether a person has edited the value.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

from multi_agent_mcp.domain.entity import Identified

E = TypeVar("E", bound=Identified)

HUB, NOW = "hub", "now"
"""The key of the mark, and its value in an edit that was set aside: the edit is to replace what is there when it is
moved back."""
DIGEST_LENGTH = 8
PAYLOAD_BYTES = 4 << 20
"""The largest value sent to the hub. A message's content may have 1 MiB, which JSON and YAML may make longer."""
SHARED_BYTES = 256 << 10
"""The largest value of what all machines share, so that no machine fills it with a few."""
HEADER_BYTES = 256 << 10
"""The longest header that is read of another machine's files: a longer one takes seconds, and no honest one has it."""
TOO_LARGE = "hub_too_large"
"""The reason for which a larger value is never sent."""


class Shared(NamedTuple):
    """A value of the authority: its revision, which only increases, the bytes of its file without `hub`, and when it
    was changed (nanoseconds since the epoch), if that is known."""

    revision: int
    data: bytes
    at: int | None = None


class Superseded(Exception):
    """Raised when the authority has another revision than the one to be replaced; `current` is its value."""

    def __init__(self, current: Shared) -> None:
        self.current = current
        super().__init__(current.revision)


class Authority(Protocol):
    """Orders changes by key, `{kind}.{id}` (`tsk.tsk_0123456789ab`). A change or a read may raise `HubUnreachable`."""

    here: str | None
    """This machine's name; None while the session is not shared."""

    def require(self) -> None:
        """Raises `HubUnreachable` when shared values cannot be changed now."""

    def create(self, key: str, data: bytes, was: int | None = None, at: int | None = None) -> int | None:
        """Creates a value and returns its revision (None: this authority has none). `was` is its revision on a former
        hub, `at` the time of its last change, if that was before (nanoseconds since the epoch). Raises `Superseded` if
        there is a value."""

    def swap(self, key: str, revision: int, data: bytes, *, edited: bool = False, at: int | None = None) -> int | None:
        """Replaces the value of this revision, or deletes it if `data` is empty; returns the new revision. `edited`:
        the data are from a file edited by a person, so an earlier edit of the same file by this machine is replaced,
        too. `at` as in `create`. Raises `Superseded`."""

    def current(self, key: str) -> Shared | None:
        """Returns the value; None if there is none."""

    def queue(self, paths: Sequence[Path], *, wait: bool) -> str | None:
        """Queues new mail for the hub. With `wait`, waits a moment for it; returns the code of the reason why the hub
        does not have it yet, or None if it has."""

    def is_up(self, machine: str) -> bool:
        """Returns whether a machine has reported recently."""


class Alone:
    """The authority of a session on one machine: its locks decide, nothing is sent and nothing has a revision."""

    here: str | None = None

    def require(self) -> None:
        pass

    def create(self, key: str, data: bytes, was: int | None = None, at: int | None = None) -> int | None:  # noqa: ARG002
        return None

    def swap(
        self,
        key: str,  # noqa: ARG002
        revision: int,  # noqa: ARG002
        data: bytes,  # noqa: ARG002
        *,
        edited: bool = False,  # noqa: ARG002
        at: int | None = None,  # noqa: ARG002
    ) -> int | None:
        return None

    def current(self, key: str) -> Shared | None:  # noqa: ARG002
        return None

    def queue(self, paths: Sequence[Path], *, wait: bool) -> str | None:  # noqa: ARG002
        return None

    def is_up(self, machine: str) -> bool:  # noqa: ARG002
        return True


ALONE = Alone()
END = b"\n---\n"
"""The end of a header."""
PLAIN_HEADER = re.compile(rb"---\n[A-Za-z_]\w*:.*(?:\n(?:[A-Za-z_]\w*:|[ -][^-\n]).*)*")
"""A header to which a line `key: value` may be added: any machine may send another form of YAML. A line matches in one
way only, else one that does not match at the end takes twice as long for each that does."""


def marked(entity: E, shared: Shared) -> E:
    """Returns the entity with the mark of this value as the last key, as it is written."""
    return replace(entity, extra={**without_mark(entity), HUB: mark(shared)})


def with_mark(shared: Shared) -> bytes | None:
    """Returns the bytes of a value with its mark as the last key, as they are written; None if they have not the form
    that we write."""
    header, end, body = shared.data.partition(END)
    if not end or not PLAIN_HEADER.fullmatch(header):
        return None
    return b"%b\n%b: %b%b%b" % (header, HUB.encode(), mark(shared).encode(), end, body)


def without_last(data: bytes) -> bytes:
    """Returns the bytes of a file without its mark, if that is the last key: those of the value, where `with_mark` has
    written them."""
    header, end, body = data.partition(END)
    before, newline, last = header.rpartition(b"\n")
    return before + end + body if newline and last.startswith(f"{HUB}:".encode()) else data


def mark(shared: Shared) -> str:
    return f"{shared.revision} {digest8(shared.data)}"


def revision_of(entity: Identified) -> int:
    """Returns the hub's revision in an entity's mark; 0 if it was never on a hub."""
    return revision_in(entity.extra.get(HUB))


def revision_in(value: object) -> int:
    number = str(value).partition(" ")[0]
    return int(number) if number.isascii() and number.isdecimal() else 0


def digest8(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:DIGEST_LENGTH]


def without_mark(entity: Identified) -> dict[str, object]:
    return {key: value for key, value in entity.extra.items() if key != HUB}
