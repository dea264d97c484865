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
from dataclasses import replace
from datetime import datetime
from operator import itemgetter
from pathlib import Path
from typing import Generic, TypeVar

from multi_agent_mcp.domain.entity import Identified
from multi_agent_mcp.errors import InvalidId, Reason, Refusal, StorageError
from multi_agent_mcp.store.authority import ALONE, Authority, Shared, SharedKind, Superseded, revision_of
from multi_agent_mcp.store.codec.frontmatter import Unreadable, codec
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
    name, whatever the file says: it is found by its name only. With a `kind` they are shared between machines, and the
    `authority` decides which change comes first.
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
        authority: Authority = ALONE,
        kind: str = "",
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
        self.shared = SharedKind(authority, kind, entity_type) if kind and authority.here is not None else None

    def add(self, entity: E) -> E:
        """Exclusive and durable; raises `FileExistsError`."""
        if self.shared is None:
            return self._create(entity)
        with self.files.locks.held(self._lock(entity.id)):  # else the relay, too, would write what the hub has taken
            if self._locate(entity.id) is not None:
                raise FileExistsError(entity.id)
            try:
                return self._create(self.shared.agreed(None, entity))
            except Superseded as earlier:  # an attempt that died between the hub and the file
                return self._create(self.shared.read(earlier.current, entity.id))

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
            while True:
                located = self._locate(entity_id)
                if located is None:
                    raise self._missing(entity_id)
                try:
                    return self._write(located, self._agreed(located[1], change(located[1])))
                except Superseded as newer:  # another machine was faster: its value first, then the change again
                    self._take_over(entity_id, newer.current, located)

    def accept(self, entity_id: str, shared: Shared, modified: int | None = None) -> bool:
        """Takes over what the hub says of a shared entity, unless the file is as new; empty data takes it away. Returns
        whether the file was written. `modified` is when it was changed, in nanoseconds since the epoch."""
        with self.files.locks.held(self._lock(entity_id)):
            located = self._locate(entity_id)
            if located is not None and revision_of(located[1]) >= shared.revision:
                return False
            return self._take_over(entity_id, shared, located, modified)

    def accept_copy(self, entity_id: str, data: bytes, partition: str, modified: int | None = None) -> None:
        """The same for what only the machine of `partition` writes: the newest state replaces what is there. Raises
        `Unreadable` for something of another partition."""
        with self.files.locks.held(self._lock(entity_id)):
            entity = replace(codec(self._entity_type).decode(data, id=entity_id), id=entity_id)  # type: ignore[call-arg]
            if self._partition(entity) != partition:
                raise Unreadable("misplaced", name="id", value=entity_id, owner=partition)
            self._write(self._locate(entity_id), entity, modified)

    def push(self, entity_id: str) -> Path | None:
        """Brings a file that was made or edited by hand to the authority. Where that has a newer value, it stands, and
        the edit is set aside: returns where it was."""
        assert self.shared is not None, "only shared entities are pushed"  # noqa: S101
        with self.files.locks.held(self._lock(entity_id)):
            located = self._locate(entity_id)
            if located is None or self.shared.is_as_marked(located[1]):
                return None
            directory, entity = located
            try:
                self._write(located, self.shared.agreed(entity, entity))
            except Superseded as newer:
                if newer.current.data == self.shared.payload(entity):
                    self._take_over(entity_id, newer.current, located)
                    return None
                path = directory.path / self._name(entity_id)
                directory.quarantine.set_aside(path, Reason("edited_elsewhere"))
                self._take_over(entity_id, newer.current, None)
                return path
        return None

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
        if self.shared is not None:
            self.shared.take_back(entity)
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

    def _create(self, entity: E, modified: int | None = None) -> E:
        directory = self.directory(self._partition(entity))
        try:
            directory.create(self._name(entity.id), entity, modified=modified)
        except StorageError:
            self._drop_own_directory(directory)
            raise
        return entity

    def _write(self, located: tuple[Directory[E], E] | None, changed: E, modified: int | None = None) -> E:
        """Writes a new value where the old one lies, and moves it then to where it belongs."""
        if located is None:
            return self._create(changed, modified)
        directory, entity = located
        if changed != entity:
            directory.replace(self._name(entity.id), changed, modified=modified)
        self._move_to_partition(entity.id, directory, changed)
        return changed

    def _agreed(self, entity: E, changed: E) -> E:
        """The changed value as it may be written. Raises `Superseded` when another machine was faster."""
        if self.shared is None or changed == entity:
            return changed
        return self.shared.agreed(entity, changed)

    def _take_over(
        self, entity_id: str, shared: Shared, located: tuple[Directory[E], E] | None, modified: int | None = None
    ) -> bool:
        assert self.shared is not None, "only shared entities are superseded"  # noqa: S101
        if shared.data:
            self._write(located, self.shared.read(shared, entity_id), modified)
        elif located is not None:
            located[0].remove(self._name(entity_id), sync=True)
            self._drop_own_directory(located[0])
        return bool(shared.data) or located is not None

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
