"""A collection whose entities several machines share: its authority orders each change before the file is written
(docs/protocol.md, Several machines)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

from multi_agent_mcp.domain.entity import Identified
from multi_agent_mcp.store.codec import codec
from multi_agent_mcp.store.collection import Collection, Layout, Location, is_plain
from multi_agent_mcp.store.conflicts import Conflicts
from multi_agent_mcp.store.files.durable_files import FileChanged, Files

# The authority orders the changes of a shared entity: this machine's files alone, or the hub of several machines
# (docs/protocol.md, Several machines).
#
# Tasks, conversations, delegations, agents' records and the settings are shared. The last key of their file, `hub`, is
# a mark: the hub's revision and the beginning of the value's digest (`'{sequence} {digest8}'`). The revision tells
# newer from older, the digest an edit by hand.

E = TypeVar("E", bound=Identified)

HUB = "hub"
DIGEST_LENGTH = 8
PAYLOAD_BYTES = 4 << 20
"""The largest value sent to the hub. A message's content may have 1 MiB, which JSON and YAML may make longer."""
TOO_LARGE = "hub_too_large"
"""The reason for which a larger value is never sent."""


class Shared(NamedTuple):
    """A value of the authority: its revision, which only increases, and the bytes of its file without `hub`."""

    revision: int
    data: bytes


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

    def create(self, key: str, data: bytes, was: int | None = None) -> int | None:
        """Creates a value and returns its revision (None: this authority has none). `was` is its revision on a former
        hub. Raises `Superseded` if there is a value."""

    def swap(self, key: str, revision: int, data: bytes, *, edited: bool = False) -> int | None:
        """Replaces the value of this revision, or deletes it if `data` is empty; returns the new revision. `edited`:
        the data are from a file edited by hand, so an earlier edit of the same file by this machine is replaced, too.
        Raises `Superseded`."""

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

    def create(self, key: str, data: bytes, was: int | None = None) -> int | None:  # noqa: ARG002
        return None

    def swap(self, key: str, revision: int, data: bytes, *, edited: bool = False) -> int | None:  # noqa: ARG002
        return None

    def current(self, key: str) -> Shared | None:  # noqa: ARG002
        return None

    def queue(self, paths: Sequence[Path], *, wait: bool) -> str | None:  # noqa: ARG002
        return None

    def is_up(self, machine: str) -> bool:  # noqa: ARG002
        return True


ALONE = Alone()


def marked(entity: E, shared: Shared) -> E:
    """Returns the entity with the mark of this value as the last key, as it is written."""
    return replace(entity, extra={**without_mark(entity), HUB: mark(shared)})


def is_marked(entity: Identified, shared: Shared) -> bool:
    """Returns whether an entity's mark is that of this value."""
    return entity.extra.get(HUB) == mark(shared)


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


class SharedCollection(Collection[E]):
    """A collection whose authority knows an entity as `{kind}.{id}`. On one machine it behaves as `Collection`."""

    def __init__(self, files: Files, base: Path, layout: Layout[E], authority: Authority, kind: str) -> None:
        super().__init__(files, base, layout)
        self.authority = authority
        self.kind = kind
        self.is_shared = authority.here is not None
        self._codec = codec(layout.entity_type)

    def add(self, entity: E) -> E:
        if not self.is_shared:
            return super().add(entity)
        with self.files.locks.held(self._lock(entity.id)):  # else the relay would write the hub's value, too
            if self.locate(entity.id) is not None:
                raise FileExistsError(entity.id)
            try:
                return self._create(self._agreed(None, entity))
            except Superseded as earlier:  # an attempt that died between the hub and the file
                return self._create(self._received(entity.id, earlier.current))

    def remove(self, entity: E) -> None:
        found = self.authority.current(self._key(entity)) if self.is_shared else None
        if found is not None:
            self.authority.swap(self._key(entity), found.revision, b"")
        super().remove(entity)

    def accept(
        self,
        entity_id: str,
        shared: Shared,
        modified: int | None = None,
        *,
        was: int | None = None,
        edited: int | None = None,
    ) -> E | None:
        """Writes the hub's value of an entity unless the file is as new, and returns the entity written; empty data
        removes the file. `modified` is the time of the change in nanoseconds since the epoch. `was` is the value's
        revision on a former hub, if it was restored from there: a file that is newer is sent to the hub instead.
        `edited` is the revision in the mark of this machine's file when it was sent as this value, after an edit by
        hand: if it has been edited again since, it is left to `push`."""
        with self.files.locks.held(self._lock(entity_id)):
            located = self.locate(entity_id)
            if located is not None:
                entity, known = located.entity, revision_of(located.entity)
                if known >= shared.revision or (known == edited and self._is_edited(entity, shared)):
                    return None
                if was is not None and known > was:
                    self._share_all_of(entity)
                    agreed = self._agreed(marked(entity, shared), entity, is_edited=True)
                    with suppress(FileChanged):  # it is pushed when it is noticed
                        self._write(located, agreed, guarded=True)
                    return None
            return self._take_over(entity_id, shared, located, modified)

    def push(self, entity_id: str, first: int = 1) -> None:
        """Sends an entity to the authority whose file was made or edited by hand, or has a revision before `first`,
        which is one of a former hub. If the authority has a newer value, that is taken over instead."""
        with self.files.locks.held(self._lock(entity_id)):
            located = self.locate(entity_id)
            if located is None:
                return
            if 0 < revision_of(located.entity) < first:
                self._share_again(located)
            elif not self._is_as_marked(located.entity):
                try:
                    agreed = self._agreed(located.entity, located.entity, is_edited=True)
                    with suppress(FileChanged):  # it is saved again and will be pushed again
                        self._write(located, agreed, guarded=True)
                except Superseded as newer:
                    self._take_over(entity_id, newer.current, located)

    def restore(self, entity_id: str) -> None:
        """Writes the authority's value again if the file is gone, or was unreadable and set aside."""
        with self.files.locks.held(self._lock(entity_id)):
            if is_plain(entity_id) and self.locate(entity_id) is None:
                current = self.authority.current(f"{self.kind}.{entity_id}")
                if current is not None:
                    self._take_over(entity_id, current, None)

    def shared_values(self) -> Iterator[tuple[str, bytes, int]]:
        """Yields every entity as it is sent: its key, its bytes, and the revision in its mark."""
        return ((self._key(entity), self._payload(entity), revision_of(entity)) for entity in self.all())

    def _change(self, entity_id: str, change: Callable[[E], E]) -> E:
        while True:
            located = self._located(entity_id)
            try:
                agreed = self._agreed(located.entity, change(located.entity))
            except Superseded as newer:  # another machine was faster: take its value, then apply the change again
                self._take_over(entity_id, newer.current, located)
                continue
            try:
                return self._write(located, agreed, guarded=self.is_shared)
            except FileChanged:
                self._set_aside(located)
                return self._write(located, agreed)

    def _agreed(self, before: E | None, after: E, *, is_edited: bool = False) -> E:
        """Returns the changed value with its new mark, once the authority has accepted it in place of `before`. Raises
        `Superseded`."""
        if not self.is_shared or (after == before and not is_edited):
            return after
        data = self._payload(after)
        if before is None:
            revision = self.authority.create(self._key(after), data)
        else:
            revision = self.authority.swap(self._key(after), revision_of(before), data, edited=is_edited)
        return after if revision is None else marked(after, Shared(revision, data))

    def _share_again(self, located: Location[E]) -> None:
        """Sends an entity of a former hub to the new one. If another machine was faster, `accept` decides later which
        of the two is newer."""
        entity = located.entity
        data = self._payload(entity)
        self._share_all_of(entity)
        with suppress(Superseded, FileChanged):
            revision = self.authority.create(self._key(entity), data, revision_of(entity))
            if revision is not None:
                self._write(located, marked(entity, Shared(revision, data)), guarded=True)

    def _share_all_of(self, entity: E) -> None:
        """Sends those parts of an entity to a recreated hub that are not in its file."""

    def _take_over(
        self, entity_id: str, shared: Shared, located: Location[E] | None, modified: int | None = None
    ) -> E | None:
        """Writes the authority's value and returns the entity, or removes the file and returns None if the value is
        empty. An edit of the file that the authority does not have is set aside."""
        if located is not None and self._is_edited(located.entity, shared):
            self._set_aside(located)
        if shared.data:
            entity = self._received(entity_id, shared)
            try:
                self._put(located, entity, modified, guarded=True)
            except FileChanged:
                return self._take_over(entity_id, shared, self.locate(entity_id), modified)
            return entity
        if located is not None:
            located.directory.remove(self.layout.name(entity_id), sync=True)
            self._drop_own_directory(located.directory, self.layout.name(entity_id))
        return None

    def _set_aside(self, located: Location[E]) -> None:
        """Copies an edit by hand that is about to be overwritten."""
        Conflicts(self.files).keep_file(located.directory.path / self.layout.name(located.entity.id))

    def _received(self, entity_id: str, shared: Shared) -> E:
        """Returns the entity of a hub's value."""
        return self._adopted(marked(self._codec.decode(shared.data, id=entity_id), shared), entity_id)

    def _is_edited(self, entity: E, shared: Shared) -> bool:
        return not self._is_as_marked(entity) and self._payload(entity) != shared.data

    def _is_as_marked(self, entity: E) -> bool:
        """Returns whether the entity is the hub's value under its revision, not made or edited by hand."""
        _, _, digest = str(entity.extra.get(HUB, "")).partition(" ")
        return digest == digest8(self._payload(entity))

    def _payload(self, entity: E) -> bytes:
        """Returns the bytes to send: the file without its mark."""
        shortened = self._shortened(entity)
        return self._codec.encode(replace(shortened, extra=without_mark(shortened)))

    def _key(self, entity: E) -> str:
        return f"{self.kind}.{entity.id}"
