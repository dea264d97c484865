"""A collection whose entities several machines share: its authority orders each change before the file is written
(docs/protocol.md, Several machines)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from multi_agent_mcp.domain.entity import Identified
from multi_agent_mcp.store.authority import (
    HUB,
    Authority,
    Shared,
    Superseded,
    digest8,
    marked,
    revision_of,
    without_mark,
)
from multi_agent_mcp.store.codec.frontmatter import codec
from multi_agent_mcp.store.collection import Collection
from multi_agent_mcp.store.conflicts import Conflicts
from multi_agent_mcp.store.files.durable_files import FileChanged, Files
from multi_agent_mcp.store.layout import Layout, Location, is_plain
from multi_agent_mcp.store.partition import Partition

E = TypeVar("E", bound=Identified)


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
            if self.places.locate(entity.id) is not None:
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
            located = self.places.locate(entity_id)
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
            located = self.places.locate(entity_id)
            if located is None:
                return
            if 0 < revision_of(located.entity) < first:
                self._bring_back(located)
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
            if is_plain(entity_id) and self.places.locate(entity_id) is None:
                current = self.authority.current(f"{self.kind}.{entity_id}")
                if current is not None:
                    self._take_over(entity_id, current, None)

    def shared_values(self) -> Iterator[tuple[str, bytes, int]]:
        """Yields every entity as it is sent: its key, its bytes, and the revision in its mark."""
        return ((self._key(entity), self._payload(entity), revision_of(entity)) for entity in self.all())

    def _change(self, entity_id: str, change: Callable[[E], E]) -> tuple[Partition[E], E]:
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

    def _bring_back(self, located: Location[E]) -> None:
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
                return self._take_over(entity_id, shared, self.places.locate(entity_id), modified)
            return entity
        if located is not None:
            located.directory.remove(self.layout.name(entity_id), sync=True)
            self.places.drop_own_directory(located.directory)
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
