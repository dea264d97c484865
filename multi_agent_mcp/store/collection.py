"""A collection of entities, one file each, in partitions: `tasks/{assignee_id}/{task_id}.md` and its like.

There is one concurrency idea: `update(id, change)` runs a pure function under that entity's lock, between read and
atomic replace. Two agents finishing the same task at once: one wins, the other's change raises.
"""

from __future__ import annotations

import heapq
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from itertools import chain, islice, takewhile
from operator import attrgetter
from pathlib import Path
from typing import Any, Generic, TypeVar

from multi_agent_mcp.domain.entity import Identified
from multi_agent_mcp.errors import InvalidId, Reason, Refusal, StorageError
from multi_agent_mcp.store.archive import Archive, ArchivedFiles
from multi_agent_mcp.store.authority import ALONE, Authority, Shared, SharedKind, Superseded, marked, revision_of
from multi_agent_mcp.store.codec.frontmatter import Unreadable, codec
from multi_agent_mcp.store.directory import Directory, Looks
from multi_agent_mcp.store.files.containment import is_own_directory
from multi_agent_mcp.store.files.durable_files import Files
from multi_agent_mcp.store.partition import Partition, Place
from multi_agent_mcp.system.disk import storage_errors

E = TypeVar("E", bound=Identified)

LOCK_STRIPES = 256
REMEMBERED = 10_000
"""Of so many entities a process remembers where it found them last."""
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")


class Collection(Generic[E]):
    """`partition` names the sub-directory an entity belongs to; `missing` makes the error for an unknown id.

    With `file_name` every entity has a directory of its own, named by its id, and that is the name of its file there.
    `partition_field` is the field whose value the partition's name decides. An entity's id is decided by its file's
    name, whatever the file says: it is found by its name only.

    `closed` tells in a directory what is done with (see `Directory`). With `archived`, which tells it in an archive,
    what is done with, or has `ended` otherwise, moves on to `{partition}/archive/{YYYY-MM}/` by the month of its last
    change, so that a directory stays small; it is found as before, and comes back when it has not `ended` any more.

    With a `kind` they are shared between machines, and the `authority` decides which change comes first.
    """

    def __init__(
        self,
        files: Files,
        base: Path,
        entity_type: type[E],
        *,
        partition: Callable[[E], str],
        missing: Callable[[str], Refusal],
        closed: re.Pattern[bytes] | None = None,
        archived: re.Pattern[bytes] | None = None,
        grouped: re.Pattern[bytes] | None = None,
        file_name: str | None = None,
        partition_field: str | None = None,
        ended: Callable[[E], bool] = lambda _: False,
        authority: Authority = ALONE,
        kind: str = "",
    ) -> None:
        self.files = files
        self.base = base
        self._entity_type = entity_type
        self._partition = partition
        self._missing = missing
        self._closed = closed
        self._archived = archived
        self._grouped = grouped
        self._file_name = file_name
        self._partition_field = partition_field
        self._ended = ended
        self.shared = SharedKind(authority, kind, entity_type) if kind and authority.here is not None else None
        self._partitions: dict[str, Partition[E]] = {}
        self._looks = Looks()
        self._last_seen: dict[str, tuple[Partition[E], Directory[E]]] = {}

    def add(self, entity: E) -> E:
        """Exclusive and durable; raises `FileExistsError`."""
        if self.shared is None:
            return self._create(entity)
        with self.files.locks.held(self._lock(entity.id)):  # else the relay, too, would write what the hub has taken
            if self._locate(entity.id) is not None:
                raise FileExistsError(entity.id)
            try:
                return self._create(self._agreed(None, entity))
            except Superseded as earlier:  # an attempt that died between the hub and the file
                return self._create(self._received(entity.id, earlier.current))

    def find(self, entity_id: str) -> E | None:
        """The entity, in whichever partition it lies."""
        # Twice: it may have moved from a partition not yet looked at to one already looked at.
        located = self._locate(entity_id) or self._locate(entity_id)
        return located[2] if located else None

    def indexed(self, entity_id: str, partition: str) -> E | None:
        """The entity as the index of this partition knows it: no file is read while its directory does not change.
        None for one that is closed or lies elsewhere."""
        entry = self.directory(partition).entries().get(self._name(entity_id)) if _is_plain(partition) else None
        return None if entry is None or entry.closed else entry.entity

    def get(self, entity_id: str) -> E:
        """As `find`; raises the collection's own error for an unknown id."""
        entity = self.find(entity_id)
        if entity is None:
            raise self._missing(entity_id)
        return entity

    def update(self, entity_id: str, change: Callable[[E], E]) -> E:
        """Applies a pure change under the entity's lock; returns the new value. What `change` raises changes nothing.

        An entity whose partition changes is rewritten where it lies and then moved: its content decides, and its place
        only follows.
        """
        with self.files.locks.held(self._lock(entity_id)):
            while True:
                located = self._locate(entity_id)
                if located is None:
                    raise self._missing(entity_id)
                try:
                    partition, changed = self._write(located, self._agreed(located[2], change(located[2])))
                    break
                except Superseded as newer:  # another machine was faster: its value first, then the change again
                    self._take_over(entity_id, newer.current, located)
        if self._ended(changed):
            partition.has_grown()
        return changed

    def accept(self, entity_id: str, shared: Shared, modified: int | None = None, *, was: int | None = None) -> bool:
        """Takes over what the hub says of a shared entity, unless the file is as new; empty data takes it away. Returns
        whether a file was written. `modified` is when it was changed, in nanoseconds since the epoch. A value that was
        brought to a hub made anew `was` of this revision before: a file that is newer than that is brought there."""
        with self.files.locks.held(self._lock(entity_id)):
            located = self._locate(entity_id)
            if located is not None and revision_of(located[2]) >= shared.revision:
                return False
            if located is not None and was is not None and revision_of(located[2]) > was:
                self._write(located, self._agreed(marked(located[2], shared), located[2], is_edited=True))
                return False
            self._take_over(entity_id, shared, located, modified)
            return bool(shared.data)

    def accept_copy(self, entity_id: str, data: bytes, partition: str, modified: int | None = None) -> None:
        """The same for what only the machine of `partition` writes: the newest state replaces what is there. Raises
        `Unreadable` for something of another partition."""
        with self.files.locks.held(self._lock(entity_id)):
            entity = self._adopted(codec(self._entity_type).decode(data, id=entity_id), entity_id)
            if self._partition(entity) != partition:
                raise Unreadable("misplaced", name="id", value=entity_id, owner=partition)
            self._put(self._locate(entity_id), entity, modified)

    def push(self, entity_id: str) -> Path | None:
        """Brings a file that was made or edited by hand to the authority. Where that has a newer value, it stands, and
        the edit is set aside: returns where it was."""
        assert self.shared is not None, "only shared entities are pushed"  # noqa: S101
        with self.files.locks.held(self._lock(entity_id)):
            located = self._locate(entity_id)
            if located is None or self.shared.is_as_marked(self._shortened(located[2])):
                return None
            _, directory, entity = located
            try:
                self._write(located, self._agreed(entity, entity, is_edited=True))
            except Superseded as newer:
                if newer.current.data == self.shared.payload(self._shortened(entity)):
                    self._take_over(entity_id, newer.current, located)
                    return None
                path = directory.path / self._name(entity_id)
                directory.quarantine.set_aside(path, Reason("edited_elsewhere"))
                self._take_over(entity_id, newer.current, None)
                return path
        return None

    def tidy(self, partition: str) -> None:
        """Archives what is over in a partition, once there is much of it. Never raises."""
        self._of(partition).tidy()

    def replace(self, entity: E, *, sync: bool = True) -> None:
        """Writes an entity whose newest state only the caller has: nothing is locked, read or moved. `sync` as in
        `Files.replace`."""
        self.directory(self._partition(entity)).replace(self._name(entity.id), entity, sync=sync)

    def all(self, partition: str | None = None) -> list[E]:
        """Every readable entity, of one partition or of all. A corrupt file never empties the list."""
        return [*self.open(partition), *self.closed(partition)]

    def open(self, partition: str | None = None) -> list[E]:
        """The entities that are not closed; the others are not even parsed."""
        return [entity for chosen in self._chosen(partition) for _, entity in chosen.home.open_entities()]

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
        """Closed entities, the most recently changed first; parsed anew, so ask for few of many: `limit` of them, after
        the first `offset`. With `since`, only those changed since then, the least recently changed first; with `group`,
        only those that belong to it."""
        found: Iterable[Place[E]] = self._newest_closed(partition, label, group)
        if since is not None:
            found = reversed(list(takewhile(lambda place: place.changed_at >= since.timestamp(), found)))
        loaded = (place.directory.load(place.name) for place in islice(found, offset, None))
        return list(islice((entity for entity in loaded if entity is not None), limit))

    def count_closed(self, since: datetime, until: datetime) -> int:
        """How many closed entities were last changed in this period."""
        recent = takewhile(lambda place: place.changed_at >= since.timestamp(), self._newest_closed())
        return sum(place.changed_at <= until.timestamp() for place in recent)

    def closed_counts(self, partition: str | None = None) -> Counter[str]:
        """How many entities were closed by what."""
        directories = chain.from_iterable(chosen.directories() for chosen in self._chosen(partition))
        return sum((directory.closed_counts() for directory in directories), Counter[str]())

    def count(self, partition: str, *, label: str | None = None, group: str | None = None) -> int:
        """How many closed entities of a partition `closed` would find."""
        if group is not None:
            return sum(1 for _ in self._newest_closed(partition, label, group))
        counts = self.closed_counts(partition)
        return counts.total() if label is None else counts[label]

    def group_counts(self) -> Counter[tuple[str, str]]:
        """How many closed entities belong to what, by what they were closed by."""
        directories = chain.from_iterable(chosen.directories() for chosen in self._chosen(None))
        return sum((directory.group_counts() for directory in directories), Counter[tuple[str, str]]())

    def remove(self, entity: E) -> None:
        """Takes back what was added a moment ago and not acknowledged to anybody."""
        if self.shared is not None:
            self.shared.take_back(entity)
        directory = self.directory(self._partition(entity))
        directory.remove(self._name(entity.id))
        self._drop_own_directory(directory)

    def read_once(self) -> AbstractContextManager[None]:
        """Within, this thread looks at each directory once, for what only reads; see `Looks`."""
        return self._looks.once()

    def partitions(self) -> list[str]:
        with storage_errors(self.base, FileNotFoundError), suppress(FileNotFoundError):
            return sorted(item.name for item in self.base.iterdir() if is_own_directory(item) and _is_plain(item.name))
        return []

    def directory(self, partition: str) -> Directory[E]:
        """Where a partition's entities lie. Raises `InvalidId` for what is no plain name: a hand-written file may name
        anything as its agent."""
        return self._of(partition).home

    def _of(self, partition: str) -> Partition[E]:
        if partition not in self._partitions:
            if not _is_plain(partition):
                raise InvalidId(value=repr(partition)[:80])
            path, known = self.base / partition, self._settings(partition)
            home = Directory(self.files, path, self._entity_type, closed=self._closed, **known)
            self._partitions[partition] = Partition(home, self._archive(path, known), self._ended, self._lock)
        return self._partitions[partition]

    def _archive(self, path: Path, known: Mapping[str, Any]) -> Archive[ArchivedFiles[E]] | None:
        if self._archived is None:
            return None
        made = partial(ArchivedFiles, self.files, entity_type=self._entity_type, closed=self._archived, **known)
        return Archive(path, made)

    def _settings(self, partition: str) -> Mapping[str, Any]:
        """What the directories of a partition have in common."""
        return {
            "grouped": self._grouped,
            "looks": self._looks,
            "named": re.compile(re.escape(self._file_name)) if self._file_name is not None else None,
            "place": {self._partition_field: partition} if self._partition_field is not None else None,
            "adopt": lambda entity, stem: self._adopted(entity, stem if self._file_name is None else partition),
        }

    def _adopted(self, entity: E, entity_id: str) -> E:
        """An entity as it was read, with the id that its file's name gives it."""
        return replace(entity, id=entity_id)  # type: ignore[call-arg]  # it is a field of every subclass

    def _shortened(self, entity: E) -> E:
        """An entity as it is written; what of it belongs elsewhere is there, durably, when this returns."""
        return entity

    def shared_values(self) -> Iterator[tuple[str, bytes, int]]:
        """Every entity as it travels: its key, its bytes, the revision that its file says it is."""
        if self.shared is not None:
            for entity in self.all():
                data = self.shared.payload(self._shortened(entity))
                yield f"{self.shared.kind}.{entity.id}", data, revision_of(entity)

    def _create(self, entity: E, modified: int | None = None) -> E:
        partition = self._of(self._partition(entity))
        try:
            partition.home.create(self._name(entity.id), self._shortened(entity), modified=modified)
        except StorageError:
            self._drop_own_directory(partition.home)
            raise
        return entity

    def _write(
        self, located: tuple[Partition[E], Directory[E], E], changed: E, modified: int | None = None
    ) -> tuple[Partition[E], E]:
        """Writes a new value where the old one lies, and moves it then to where it belongs."""
        partition, directory, entity = located
        name = self._name(entity.id)
        if directory is not partition.home and not self._ended(changed):
            partition.bring_back(directory, name)  # before anything says that it is not over
            directory = partition.home
        if changed != entity:
            directory.replace(name, self._shortened(changed), modified=modified)
        if directory is partition.home:
            partition = self._moved_to_partition(partition, changed, name)
        return partition, changed

    def _put(
        self, located: tuple[Partition[E], Directory[E], E] | None, entity: E, modified: int | None = None
    ) -> None:
        if located is None:
            self._create(entity, modified)
        else:
            self._write(located, entity, modified)

    def _agreed(self, before: E | None, after: E, *, is_edited: bool = False) -> E:
        """The changed value as it may be written. Raises `Superseded` when another machine was faster."""
        if self.shared is None or (after == before and not is_edited):
            return after
        return self.shared.agreed(before, after, self.shared.payload(self._shortened(after)))

    def _received(self, entity_id: str, shared: Shared) -> E:
        """The entity of a value of the hub."""
        return self._adopted(marked(codec(self._entity_type).decode(shared.data, id=entity_id), shared), entity_id)

    def _take_over(
        self,
        entity_id: str,
        shared: Shared,
        located: tuple[Partition[E], Directory[E], E] | None,
        modified: int | None = None,
    ) -> None:
        if shared.data:
            self._put(located, self._received(entity_id, shared), modified)
        elif located is not None:
            located[1].remove(self._name(entity_id), sync=True)
            self._drop_own_directory(located[1])

    def _chosen(self, partition: str | None) -> list[Partition[E]]:
        return [self._of(name) for name in (self.partitions() if partition is None else [partition])]

    def _newest_closed(
        self, partition: str | None = None, label: str | None = None, group: str | None = None
    ) -> Iterator[Place[E]]:
        found = (chosen.newest_closed(label, group) for chosen in self._chosen(partition))
        return heapq.merge(*found, key=attrgetter("changed_at"), reverse=True)

    def _locate(self, entity_id: str) -> tuple[Partition[E], Directory[E], E] | None:
        if not _is_plain(entity_id):
            return None  # a hand-written file may name anything as an id
        for partition, directory in self._places(entity_id):
            entity = directory.load(self._name(entity_id))
            if entity is not None:
                if len(self._last_seen) > REMEMBERED:
                    self._last_seen.clear()
                self._last_seen[entity_id] = partition, directory
                return partition, directory, entity
        return None

    def _places(self, entity_id: str) -> Iterator[tuple[Partition[E], Directory[E]]]:
        """Where an entity may lie, the likeliest place first."""
        if entity_id in self._last_seen:
            yield self._last_seen[entity_id]
        partitions = self._chosen(None if self._file_name is None else entity_id)
        yield from ((partition, partition.home) for partition in partitions)
        yield from ((partition, month) for partition in partitions for month in partition.months())

    def _drop_own_directory(self, directory: Directory[E]) -> None:
        """An entity that could not be made leaves no directory of its own, unless something else lies in it."""
        if self._file_name is not None:
            with suppress(OSError):
                directory.path.rmdir()

    def _moved_to_partition(self, found: Partition[E], entity: E, name: str) -> Partition[E]:
        """Where the entity belongs now, and lies then."""
        wanted = self._partition(entity)
        target = self._of(wanted) if _is_plain(wanted) else found  # else it stays where it lies
        if target is not found:
            self.files.move(found.home.path / name, target.home.path / name)
        return target

    def _name(self, entity_id: str) -> str:
        return self._file_name or f"{entity_id}.md"

    def _lock(self, entity_id: str) -> str:
        """Lock files are striped, so that there is a bounded number of them. Never hold two of one collection."""
        stripe = zlib.crc32(entity_id.encode(errors="surrogateescape")) % LOCK_STRIPES
        return f"{self.base.name}-{stripe:02x}"


def _is_plain(partition: str) -> bool:
    return _PLAIN.fullmatch(partition) is not None
