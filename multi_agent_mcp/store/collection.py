"""A collection of entities, one file each, in partitions: `tasks/{assignee_id}/{task_id}.md` and its like.

There is one concurrency idea: `update(id, change)` runs a pure function under that entity's lock, between read and
atomic replace. Two agents finishing the same task at once: one wins, the other's change raises.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime
from operator import itemgetter
from pathlib import Path
from typing import Generic, TypeVar

from multi_agent_mcp.domain.entity import Identified
from multi_agent_mcp.errors import InvalidId, Refusal, StorageError
from multi_agent_mcp.store.directory import Directory
from multi_agent_mcp.store.files.containment import is_own_directory
from multi_agent_mcp.store.files.durable_files import Files
from multi_agent_mcp.system.disk import storage_errors

E = TypeVar("E", bound=Identified)

LOCK_STRIPES = 256
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")


class Collection(Generic[E]):
    """`partition` names the sub-directory an entity belongs to; `missing` makes the error for an unknown id.

    With `file_name` every entity has a directory of its own, named by its id, and that is the name of its file there.
    `partition_field` is the field whose value the partition's name decides. An entity's id is decided by its file's
    name, whatever the file says: it is found by its name only.
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
        grouped: re.Pattern[bytes] | None = None,
        file_name: str | None = None,
        partition_field: str | None = None,
    ) -> None:
        self.files = files
        self.base = base
        self._entity_type = entity_type
        self._partition = partition
        self._missing = missing
        self._closed = closed
        self._grouped = grouped
        self._file_name = file_name
        self._partition_field = partition_field
        self._directories: dict[str, Directory[E]] = {}

    def add(self, entity: E) -> E:
        """Exclusive and durable; raises `FileExistsError`."""
        directory = self.directory(self._partition(entity))
        try:
            directory.create(self._name(entity.id), entity)
        except StorageError:
            self._drop_own_directory(directory)
            raise
        return entity

    def find(self, entity_id: str) -> E | None:
        """The entity, in whichever partition it lies."""
        # Twice: it may have moved from a partition not yet looked at to one already looked at.
        located = self._locate(entity_id) or self._locate(entity_id)
        return located[1] if located else None

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
            located = self._locate(entity_id)
            if located is None:
                raise self._missing(entity_id)
            directory, entity = located
            changed = change(entity)
            if changed != entity:
                directory.replace(self._name(entity_id), changed)
            self._move_to_partition(entity_id, directory, changed)
            return changed

    def replace(self, entity: E, *, sync: bool = True) -> None:
        """Writes an entity whose newest state only the caller has: nothing is locked, read or moved. `sync` as in
        `Files.replace`."""
        self.directory(self._partition(entity)).replace(self._name(entity.id), entity, sync=sync)

    def all(self, partition: str | None = None) -> list[E]:
        """Every readable entity, of one partition or of all. A corrupt file never empties the list."""
        return [*self.open(partition), *self.closed(partition)]

    def open(self, partition: str | None = None) -> list[E]:
        """The entities that are not closed; the others are not even parsed."""
        return [entity for directory in self._chosen(partition) for _, entity in directory.open_entities()]

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
        names = [
            item
            for item in self._closed_names(partition, label, group)
            if since is None or item[0] >= since.timestamp()
        ]
        names.sort(key=itemgetter(0), reverse=since is None)
        return [entity for _, directory, name in names[offset:][:limit] if (entity := directory.load(name)) is not None]

    def count_closed(self, since: datetime, until: datetime) -> int:
        """How many closed entities were last changed in this period."""
        return sum(since.timestamp() <= changed <= until.timestamp() for changed, _, _ in self._closed_names())

    def closed_counts(self, partition: str | None = None) -> Counter[str]:
        """How many entities were closed by what."""
        return sum((directory.closed_counts() for directory in self._chosen(partition)), Counter[str]())

    def group_counts(self) -> Counter[tuple[str, str]]:
        """How many closed entities belong to what, by what they were closed by."""
        return sum((directory.group_counts() for directory in self._chosen(None)), Counter[tuple[str, str]]())

    def remove(self, entity: E) -> None:
        """Takes back what was added a moment ago and not acknowledged to anybody."""
        directory = self.directory(self._partition(entity))
        directory.remove(self._name(entity.id))
        self._drop_own_directory(directory)

    def partitions(self) -> list[str]:
        with storage_errors(self.base, FileNotFoundError), suppress(FileNotFoundError):
            return sorted(item.name for item in self.base.iterdir() if is_own_directory(item) and _is_plain(item.name))
        return []

    def directory(self, partition: str) -> Directory[E]:
        """Where a partition's entities lie. Raises `InvalidId` for what is no plain name: a hand-written file may name
        anything as its agent."""
        if partition not in self._directories:
            if not _is_plain(partition):
                raise InvalidId(value=repr(partition)[:80])
            alone = self._file_name is not None
            self._directories[partition] = Directory(
                self.files,
                self.base / partition,
                self._entity_type,
                closed=self._closed,
                grouped=self._grouped,
                named=re.compile(re.escape(self._file_name)) if self._file_name is not None else None,
                place={self._partition_field: partition} if self._partition_field is not None else None,
                identity=lambda stem: partition if alone else stem,
            )
        return self._directories[partition]

    def _chosen(self, partition: str | None) -> list[Directory[E]]:
        return [self.directory(name) for name in (self.partitions() if partition is None else [partition])]

    def _closed_names(
        self, partition: str | None = None, label: str | None = None, group: str | None = None
    ) -> Iterator[tuple[float, Directory[E], str]]:
        """When each was last changed (seconds since the epoch), and where it lies."""
        for directory in self._chosen(partition):
            for name, entry in directory.entries().items():
                if entry.closed and label in (None, entry.closed) and group in (None, entry.group):
                    yield entry.signature[0] / 1e9, directory, name

    def _locate(self, entity_id: str) -> tuple[Directory[E], E] | None:
        if not _is_plain(entity_id):
            return None  # a hand-written file may name anything as an id
        for partition in self.partitions() if self._file_name is None else [entity_id]:
            entity = self.directory(partition).load(self._name(entity_id))
            if entity is not None:
                return self.directory(partition), entity
        return None

    def _drop_own_directory(self, directory: Directory[E]) -> None:
        """An entity that could not be made leaves no directory of its own, unless something else lies in it."""
        if self._file_name is not None:
            with suppress(OSError):
                directory.path.rmdir()

    def _move_to_partition(self, entity_id: str, directory: Directory[E], entity: E) -> None:
        partition = self._partition(entity)
        target = self.directory(partition) if _is_plain(partition) else directory  # else it stays where it lies
        if target.path != directory.path:
            self.files.move(directory.path / self._name(entity_id), target.path / self._name(entity_id))

    def _name(self, entity_id: str) -> str:
        return self._file_name or f"{entity_id}.md"

    def _lock(self, entity_id: str) -> str:
        """Lock files are striped, so that there is a bounded number of them. Never hold two of one collection."""
        return f"{self.base.name}-{zlib.crc32(entity_id.encode()) % LOCK_STRIPES:02x}"


def _is_plain(partition: str) -> bool:
    return _PLAIN.fullmatch(partition) is not None
