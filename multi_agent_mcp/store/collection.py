"""A collection of entities, one file each, in partitions.

Concurrency rests on one method: `update(id, change)` runs a pure function under the entity's lock, between read and
atomic replace. If two agents finish the same task at once, one wins and the other's change raises.
"""

from __future__ import annotations

import heapq
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import datetime
from itertools import islice, takewhile
from pathlib import Path
from typing import Generic, TypeVar

from multi_agent_mcp.domain.entity import Identified
from multi_agent_mcp.errors import StorageError
from multi_agent_mcp.store.codec.frontmatter import Unreadable, codec
from multi_agent_mcp.store.directory import Directory
from multi_agent_mcp.store.files.durable_files import Files
from multi_agent_mcp.store.layout import Layout, Location, Partition, Partitions, Place, is_plain

E = TypeVar("E", bound=Identified)

LOCK_STRIPES = 256


class Collection(Generic[E]):
    """The entities below `base`, written by this machine alone; see `SharedCollection` for several machines."""

    def __init__(self, files: Files, base: Path, layout: Layout[E]) -> None:
        self.files = files
        self.base = base
        self.layout = layout
        self.places = Partitions(files, base, layout, adopt=self._adopted, lock_of=self._lock)

    def add(self, entity: E) -> E:
        """Creates the entity's file, exclusively and durably; raises `FileExistsError`."""
        return self._create(entity)

    def find(self, entity_id: str) -> E | None:
        """Returns the entity, from any partition; None if there is none."""
        # Twice: it may have moved from a partition not yet searched to one already searched.
        located = self.places.locate(entity_id) or self.places.locate(entity_id)
        return located.entity if located else None

    def indexed(self, entity_id: str, partition: str) -> E | None:
        """Returns the open entity from this partition's index, without reading files while the directory is unchanged;
        None if it is closed or not there."""
        entries = self.directory(partition).entries() if is_plain(partition) else {}
        entry = entries.get(self.layout.name(entity_id))
        return None if entry is None or entry.closed else entry.entity

    def get(self, entity_id: str) -> E:
        """As `find`; raises the collection's own error for an unknown id."""
        entity = self.find(entity_id)
        if entity is None:
            raise self.layout.missing(entity_id)
        return entity

    def update(self, entity_id: str, change: Callable[[E], E]) -> E:
        """Applies a pure change under the entity's lock and returns the new value. If `change` raises, nothing is
        written.

        An entity whose partition changes is rewritten in place and then moved: its content decides where it belongs.
        """
        with self.files.locks.held(self._lock(entity_id)):
            partition, changed = self._change(entity_id, change)
        if self.layout.ended(changed):
            partition.has_grown()
        return changed

    def replace(self, entity: E, *, sync: bool = True) -> None:
        """Writes an entity that only the caller changes, without locking, reading or moving it. `sync` as in
        `Files.replace`."""
        directory = self.directory(self.layout.partition(entity))
        directory.replace(self.layout.name(entity.id), entity, sync=sync)

    def accept_copy(self, entity_id: str, data: bytes, partition: str, modified: int | None = None) -> None:
        """Writes the state of an entity that only another machine, that of `partition`, changes. Raises `Unreadable`
        if the entity belongs to another partition."""
        with self.files.locks.held(self._lock(entity_id)):
            entity = self._adopted(codec(self.layout.entity_type).decode(data, id=entity_id), entity_id)
            if self.layout.partition(entity) != partition:
                raise Unreadable("misplaced", name="id", value=entity_id, owner=partition)
            self._put(self.places.locate(entity_id), entity, modified)

    def remove(self, entity: E) -> None:
        """Removes an entity that was just added and not acknowledged to any caller."""
        directory = self.directory(self.layout.partition(entity))
        directory.remove(self.layout.name(entity.id))
        self.places.drop_own_directory(directory)

    def tidy(self, partition: str) -> None:
        """Archives a partition's finished entities once there are more than `HOT_MAX`. Never raises."""
        self.places.of(partition).tidy()

    def all(self, partition: str | None = None) -> list[E]:
        """Returns every readable entity, of one partition or of all; a corrupt file is left out."""
        return [*self.open(partition), *self.closed(partition)]

    def open(self, partition: str | None = None) -> list[E]:
        """Returns the open entities, of one partition or of all, without parsing closed ones."""
        return [entity for chosen in self.places.chosen(partition) for _, entity in chosen.home.open_entities()]

    def open_in_order(self, partition: str | None = None) -> Iterator[E]:
        """Yields the open entities, of one partition or of all, in the order of the layout."""
        found = ([entity for _, entity in chosen.home.open_entities()] for chosen in self.places.chosen(partition))
        return heapq.merge(*found, key=self.layout.order)

    def closed(
        self,
        partition: str | None = None,
        *,
        label: str | None = None,
        group: str | None = None,
        offset: int = 0,
        limit: int | None = None,
        since: datetime | None = None,
    ) -> list[E]:
        """Returns `limit` closed entities after the first `offset`, the most recently changed first; each is parsed.
        With `since`, only those changed since then, the least recently changed first; with `label` or `group`, only
        those closed by it or belonging to it."""
        found: Iterable[Place[E]] = self.places.newest_closed(partition, label, group)
        if since is not None:
            found = reversed(list(takewhile(lambda place: place.changed_at >= since.timestamp(), found)))
        loaded = (place.directory.load(place.name) for place in islice(found, offset, None))
        return list(islice((entity for entity in loaded if entity is not None), limit))

    def count_closed(self, since: datetime, until: datetime) -> int:
        """Returns the number of closed entities that were last changed in this period."""
        recent = takewhile(lambda place: place.changed_at >= since.timestamp(), self.places.newest_closed())
        return sum(place.changed_at <= until.timestamp() for place in recent)

    def closed_counts(self, partition: str | None = None) -> Counter[str]:
        """Returns the number of closed entities by label (the status that closed them)."""
        return sum((directory.closed_counts() for directory in self.places.directories(partition)), Counter[str]())

    def count(self, partition: str, *, label: str | None = None, group: str | None = None) -> int:
        """Returns the number of closed entities of a partition that `closed` would find."""
        if group is not None:
            return sum(1 for _ in self.places.newest_closed(partition, label, group))
        counts = self.closed_counts(partition)
        return counts.total() if label is None else counts[label]

    def group_counts(self) -> Counter[tuple[str, str]]:
        """Returns the number of closed entities by group and label."""
        return sum(
            (directory.group_counts() for directory in self.places.directories(None)), Counter[tuple[str, str]]()
        )

    def read_once(self) -> AbstractContextManager[None]:
        """Returns a context in which this thread checks each directory for changes only once; see `Looks.once`."""
        return self.places.looks.once()

    def partitions(self) -> list[str]:
        return self.places.names()

    def directory(self, partition: str) -> Directory[E]:
        """Returns a partition's directory, without its archive. Raises `InvalidId` for a name that is not plain."""
        return self.places.of(partition).home

    def _adopted(self, entity: E, entity_id: str) -> E:
        """Returns an entity that was read, with the id that its file's name gives it."""
        return replace(entity, id=entity_id)  # type: ignore[call-arg]  # it is a field of every subclass

    def _shortened(self, entity: E) -> E:
        """Returns the entity as its file stores it. A subclass durably writes the rest elsewhere before it returns."""
        return entity

    def _change(self, entity_id: str, change: Callable[[E], E]) -> tuple[Partition[E], E]:
        """Changes an entity; the caller holds its lock."""
        located = self._located(entity_id)
        return self._write(located, change(located.entity))

    def _located(self, entity_id: str) -> Location[E]:
        located = self.places.locate(entity_id)
        if located is None:
            raise self.layout.missing(entity_id)
        return located

    def _create(self, entity: E, modified: int | None = None) -> E:
        directory = self.directory(self.layout.partition(entity))
        try:
            directory.create(self.layout.name(entity.id), self._shortened(entity), modified=modified)
        except StorageError:
            self.places.drop_own_directory(directory)
            raise
        return entity

    def _write(
        self, located: Location[E], changed: E, modified: int | None = None, *, guarded: bool = False
    ) -> tuple[Partition[E], E]:
        """Writes a new value in place of the old one and moves it to the partition it belongs to, which is returned.
        `guarded`: raises `FileChanged` if the file has been saved since it was located."""
        partition, directory, entity, signature = located
        name = self.layout.name(entity.id)
        if directory is not partition.home and not self.layout.ended(changed):
            partition.bring_back(directory, name)  # before its file says that it is open again
            directory = partition.home
        if changed != entity:
            unchanged = signature if guarded else None
            directory.replace(name, self._shortened(changed), modified=modified, unchanged=unchanged)
        if directory is partition.home:
            partition = self._moved_to_partition(partition, changed, name)
        return partition, changed

    def _moved_to_partition(self, found: Partition[E], entity: E, name: str) -> Partition[E]:
        """Moves an entity from its former partition to the one it belongs to, and returns that."""
        target = self.places.belonging_to(entity) or found  # it stays if no partition can have that name
        if target is not found:
            self.files.move(found.home.path / name, target.home.path / name)
        return target

    def _put(
        self, located: Location[E] | None, entity: E, modified: int | None = None, *, guarded: bool = False
    ) -> None:
        if located is None:
            self._create(entity, modified)
        else:
            self._write(located, entity, modified, guarded=guarded)

    def _lock(self, entity_id: str) -> str:
        """Returns the name of an entity's lock. Locks are striped to bound their number: never hold two of one
        collection."""
        stripe = zlib.crc32(entity_id.encode(errors="surrogateescape")) % LOCK_STRIPES
        return f"{self.base.name}-{stripe:02x}"
