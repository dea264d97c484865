"""A collection of entities, one file each, in partitions.

There is one concurrency idea: `update(id, change)` runs a pure function under that entity's lock, between read and
atomic replace. Two agents finishing the same task at once: one wins, the other's change raises.
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
from multi_agent_mcp.store.layout import Layout, Location, Partitions, is_plain
from multi_agent_mcp.store.partition import Partition, Place

E = TypeVar("E", bound=Identified)

LOCK_STRIPES = 256


class Collection(Generic[E]):
    """The entities at `base`, of this machine alone; see `SharedCollection` for those of several machines."""

    def __init__(self, files: Files, base: Path, layout: Layout[E]) -> None:
        self.files = files
        self.base = base
        self.layout = layout
        self.places = Partitions(files, base, layout, adopt=self._adopted, lock_of=self._lock)

    def add(self, entity: E) -> E:
        """Exclusive and durable; raises `FileExistsError`."""
        return self._create(entity)

    def find(self, entity_id: str) -> E | None:
        """The entity, in whichever partition it lies."""
        # Twice: it may have moved from a partition not yet looked at to one already looked at.
        located = self.places.locate(entity_id) or self.places.locate(entity_id)
        return located.entity if located else None

    def indexed(self, entity_id: str, partition: str) -> E | None:
        """The entity as the index of this partition knows it: no file is read while its directory does not change.
        None for one that is closed or lies elsewhere."""
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
        """Applies a pure change under the entity's lock; returns the new value. What `change` raises changes nothing.

        An entity whose partition changes is rewritten where it lies and then moved: its content decides, and its place
        only follows.
        """
        with self.files.locks.held(self._lock(entity_id)):
            partition, changed = self._change(entity_id, change)
        if self.layout.ended(changed):
            partition.has_grown()
        return changed

    def replace(self, entity: E, *, sync: bool = True) -> None:
        """Writes an entity whose newest state only the caller has: nothing is locked, read or moved. `sync` as in
        `Files.replace`."""
        directory = self.directory(self.layout.partition(entity))
        directory.replace(self.layout.name(entity.id), entity, sync=sync)

    def accept_copy(self, entity_id: str, data: bytes, partition: str, modified: int | None = None) -> None:
        """Takes over what only another machine, that of `partition`, writes: the newest state replaces what is there.
        Raises `Unreadable` for something of another partition."""
        with self.files.locks.held(self._lock(entity_id)):
            entity = self._adopted(codec(self.layout.entity_type).decode(data, id=entity_id), entity_id)
            if self.layout.partition(entity) != partition:
                raise Unreadable("misplaced", name="id", value=entity_id, owner=partition)
            self._put(self.places.locate(entity_id), entity, modified)

    def remove(self, entity: E) -> None:
        """Takes back what was added a moment ago and not acknowledged to anybody."""
        directory = self.directory(self.layout.partition(entity))
        directory.remove(self.layout.name(entity.id))
        self.places.drop_own_directory(directory)

    def tidy(self, partition: str) -> None:
        """Archives what is over in a partition, once there is enough of it. Never raises."""
        self.places.of(partition).tidy()

    def all(self, partition: str | None = None) -> list[E]:
        """Every readable entity, of one partition or of all. A corrupt file never empties the list."""
        return [*self.open(partition), *self.closed(partition)]

    def open(self, partition: str | None = None) -> list[E]:
        """The entities that are not closed; the others are not even parsed."""
        return [entity for chosen in self.places.chosen(partition) for _, entity in chosen.home.open_entities()]

    def open_in_order(self, partition: str | None = None) -> Iterator[E]:
        """The same in the order of the layout."""
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
        """Closed entities, the most recently changed first; each is parsed, so ask for few: `limit` of them, after
        the first `offset`. With `since`, only those changed since then, the least recently changed first; with `group`,
        only those that belong to it."""
        found: Iterable[Place[E]] = self.places.newest_closed(partition, label, group)
        if since is not None:
            found = reversed(list(takewhile(lambda place: place.changed_at >= since.timestamp(), found)))
        loaded = (place.directory.load(place.name) for place in islice(found, offset, None))
        return list(islice((entity for entity in loaded if entity is not None), limit))

    def count_closed(self, since: datetime, until: datetime) -> int:
        """How many closed entities were last changed in this period."""
        recent = takewhile(lambda place: place.changed_at >= since.timestamp(), self.places.newest_closed())
        return sum(place.changed_at <= until.timestamp() for place in recent)

    def closed_counts(self, partition: str | None = None) -> Counter[str]:
        """How many entities were closed by what."""
        return sum((directory.closed_counts() for directory in self.places.directories(partition)), Counter[str]())

    def count(self, partition: str, *, label: str | None = None, group: str | None = None) -> int:
        """How many closed entities of a partition `closed` would find."""
        if group is not None:
            return sum(1 for _ in self.places.newest_closed(partition, label, group))
        counts = self.closed_counts(partition)
        return counts.total() if label is None else counts[label]

    def group_counts(self) -> Counter[tuple[str, str]]:
        """How many closed entities belong to what, by what they were closed by."""
        return sum(
            (directory.group_counts() for directory in self.places.directories(None)), Counter[tuple[str, str]]()
        )

    def read_once(self) -> AbstractContextManager[None]:
        """Within, this thread looks at each directory once, for what only reads; see `Looks`."""
        return self.places.looks.once()

    def partitions(self) -> list[str]:
        return self.places.names()

    def directory(self, partition: str) -> Directory[E]:
        """Where a partition's entities lie. Raises `InvalidId` for what is no plain name."""
        return self.places.of(partition).home

    def _adopted(self, entity: E, entity_id: str) -> E:
        """An entity as it was read, with the id that its file's name gives it."""
        return replace(entity, id=entity_id)  # type: ignore[call-arg]  # it is a field of every subclass

    def _shortened(self, entity: E) -> E:
        """An entity as it is written; what of it belongs elsewhere is there, durably, when this returns."""
        return entity

    def _change(self, entity_id: str, change: Callable[[E], E]) -> tuple[Partition[E], E]:
        """Under the entity's lock."""
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

    def _write(self, located: Location[E], changed: E, modified: int | None = None) -> tuple[Partition[E], E]:
        """Writes a new value where the old one lies, and moves it then to where it belongs."""
        partition, directory, entity = located
        name = self.layout.name(entity.id)
        if directory is not partition.home and not self.layout.ended(changed):
            partition.bring_back(directory, name)  # before anything says that it is not over
            directory = partition.home
        if changed != entity:
            directory.replace(name, self._shortened(changed), modified=modified)
        if directory is partition.home:
            partition = self._moved_to_partition(partition, changed, name)
        return partition, changed

    def _moved_to_partition(self, found: Partition[E], entity: E, name: str) -> Partition[E]:
        """Where the entity belongs now, and lies then."""
        target = self.places.belonging_to(entity) or found  # else it stays where it lies
        if target is not found:
            self.files.move(found.home.path / name, target.home.path / name)
        return target

    def _put(self, located: Location[E] | None, entity: E, modified: int | None = None) -> None:
        if located is None:
            self._create(entity, modified)
        else:
            self._write(located, entity, modified)

    def _lock(self, entity_id: str) -> str:
        """Lock files are striped, so that there is a bounded number of them. Never hold two of one collection."""
        stripe = zlib.crc32(entity_id.encode(errors="surrogateescape")) % LOCK_STRIPES
        return f"{self.base.name}-{stripe:02x}"
