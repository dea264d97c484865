"""The layout of a collection's files, and the search for an entity in it: `tasks/{assignee_id}/{task_id}.md`."""

from __future__ import annotations

import heapq
import logging
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from multi_agent_mcp.domain.entity import Entity, Identified
from multi_agent_mcp.domain.ids import is_name
from multi_agent_mcp.domain.times import from_timestamp
from multi_agent_mcp.errors import InvalidId, Refusal, StorageError
from multi_agent_mcp.store.archive import HOT_KEPT, HOT_MAX, Archive, ArchivedFiles, month_of
from multi_agent_mcp.store.directory import Directory, Looks
from multi_agent_mcp.store.files.durable_files import Files
from multi_agent_mcp.store.index import Entry
from multi_agent_mcp.system.file_status import Signature, is_own_directory, signature_of
from multi_agent_mcp.system.files import storage_errors, sync_directory

# One partition of a collection: the directory of its entities, and the archive of the finished ones.

F = TypeVar("F", bound=Entity)

logger = logging.getLogger(__name__)

MOVED_AT_ONCE = 20_000  # less than a second; more, as left by earlier versions, are moved in later calls

TIDIED_EVERY = 16


class Place(NamedTuple, Generic[F]):
    """A closed file and its modification time (seconds since the epoch)."""

    changed_at: float
    directory: Directory[F]
    name: str


class Partition(Generic[F]):
    """One partition. `home` is its directory, `archive` its archive (None: nothing is archived). `ended` returns
    whether an entity is finished although its header does not close it; `lock_of` names the lock of an id."""

    def __init__(
        self,
        home: Directory[F],
        archive: Archive[ArchivedFiles[F]] | None,
        ended: Callable[[F], bool],
        lock_of: Callable[[str], str],
    ) -> None:
        self.home = home
        self.archive = archive
        self._ended = ended
        self._lock_of = lock_of
        self._grown = 0

    def months(self) -> list[Directory[F]]:
        """Returns the archive's directories, newest first."""
        return [*self.archive.months()] if self.archive is not None else []

    def directories(self) -> Iterator[Directory[F]]:
        yield self.home
        yield from self.months()

    def newest_closed(self, label: str | None, group: str | None) -> Iterator[Place[F]]:
        """Yields the closed files (of this label, of this group), the most recently changed first. The archive, which
        holds older ones, is read only as far as requested."""
        for directory in self.directories():
            if label is None or directory.closed_counts()[label]:
                found = [
                    Place(entry.signature[0] / 1e9, directory, name)
                    for name, entry in directory.entries().items()
                    if entry.closed and label in (None, entry.closed) and group in (None, entry.group)
                ]
                yield from sorted(found, key=attrgetter("changed_at"), reverse=True)

    def has_grown(self) -> None:
        """Reports one more finished entity. Runs `tidy` every `TIDIED_EVERY` calls, as it has to list the directory."""
        if self.archive is not None and self._grown % TIDIED_EVERY == 0:
            self.tidy()
        self._grown += 1

    def tidy(self) -> None:
        """Archives finished entities if there are more than `HOT_MAX`. Never raises: if the disk refuses, the next call
        tries again."""
        try:
            over = {
                name: entry
                for name, entry in self.home.entries().items()
                if entry.closed or (entry.entity is not None and self._ended(entry.entity))
            }
            if self.archive is not None and len(over) > HOT_MAX:
                oldest_first = sorted(over, key=lambda name: over[name].signature)
                self._move_on({name: over[name] for name in oldest_first[:-HOT_KEPT][:MOVED_AT_ONCE]}, self.archive)
        except StorageError as refusal:
            logger.warning("what is over in %s is not archived yet: %s", self.home.path, refusal)

    def _move_on(self, over: Mapping[str, Entry[F]], archive: Archive[ArchivedFiles[F]]) -> None:
        """Moves files to the archive, each under its entity's lock, as a writer locates the entity under that lock."""
        moved: defaultdict[Path, dict[str, Entry[F]]] = defaultdict(dict)
        by_lock: defaultdict[str, list[str]] = defaultdict(list)
        for name in over:
            by_lock[self._lock_of(name.removesuffix(".md"))].append(name)
        for lock, names in by_lock.items():
            with self.home.files.locks.held(lock):
                for name in names:
                    if (month := self._moved(name, over[name], archive)) is not None:
                        moved[month][name] = over[name]
        for path in (*moved, self.home.path):  # the new places first
            sync_directory(path)
        for directory in archive.months():
            directory.expect(moved[directory.path])

    def _moved(self, name: str, entry: Entry[F], archive: Archive[ArchivedFiles[F]]) -> Path | None:
        """Moves a file, not durably yet, and returns its month's directory; None if it has changed since it was indexed
        or its name is taken there: nothing is overwritten."""
        path = self.home.path / name
        month = archive.path / month_of(from_timestamp(entry.signature[0] / 1e9))
        if signature_of(path) != entry.signature or (month / name).exists():
            return None
        self.home.files.move(path, month / name, sync=False)
        return month

    def bring_back(self, directory: Directory[F], name: str) -> None:
        """Moves a file from the archive back to the home directory."""
        self.home.files.move(directory.path / name, self.home.path / name)


E = TypeVar("E", bound=Identified)

REMEMBERED = 10_000
"""The number of entities whose last location a process remembers."""


@dataclass(frozen=True, kw_only=True)
class Layout(Generic[E]):
    """The layout of a collection. `partition` returns the sub-directory an entity belongs to; `missing` makes the error
    for an unknown id.

    With `file_name` every entity has its own directory, named by its id, and `file_name` is its file there.
    `partition_field` is the field whose value the partition's name decides. An entity's id is decided by the name of
    its file or directory, whatever the file says, as entities are found by name.

    Open entities are sorted by the key `order`. `closed` and `grouped` are patterns for headers, see `IndexedFiles`.
    `archived`, if given, is the pattern `closed` for files in the archive: closed entities and those for which `ended`
    is true then move to `{partition}/archive/{YYYY-MM}/`, by the month of their last change, so that a directory stays
    small. They are found as before, and move back when `ended` becomes false.
    """

    entity_type: type[E]
    partition: Callable[[E], str]
    missing: Callable[[str], Refusal]
    file_name: str | None = None
    partition_field: str | None = None
    closed: re.Pattern[bytes] | None = None
    archived: re.Pattern[bytes] | None = None
    grouped: re.Pattern[bytes] | None = None
    ended: Callable[[E], bool] = lambda _: False
    order: Callable[[E], Any] = lambda _: None

    def name(self, entity_id: str) -> str:
        """Returns the name of an entity's file."""
        return self.file_name or f"{entity_id}.md"


class Location(NamedTuple, Generic[E]):
    """The place where an entity was found; `directory` is the partition's home or a month of its archive, `signature`
    that of the file just before it was read."""

    partition: Partition[E]
    directory: Directory[E]
    entity: E
    signature: Signature | None = None


class Partitions(Generic[E]):
    """The partitions below `base`. `adopt` gives an entity that was read its id; `lock_of` names the lock of an id."""

    def __init__(
        self,
        files: Files,
        base: Path,
        layout: Layout[E],
        *,
        adopt: Callable[[E, str], E],
        lock_of: Callable[[str], str],
    ) -> None:
        self.looks = Looks()
        self._files = files
        self._base = base
        self._layout = layout
        self._adopt = adopt
        self._lock_of = lock_of
        self._known: dict[str, Partition[E]] = {}
        self._last_seen: dict[str, tuple[Partition[E], Directory[E]]] = {}

    def names(self) -> list[str]:
        with storage_errors(self._base, FileNotFoundError), suppress(FileNotFoundError):
            return sorted(item.name for item in self._base.iterdir() if is_own_directory(item) and is_plain(item.name))
        return []

    def of(self, name: str) -> Partition[E]:
        """Returns a partition. Raises `InvalidId` for a name that is not plain, as in a hand-written file."""
        if name not in self._known:
            if not is_plain(name):
                raise InvalidId(value=repr(name)[:80])
            self._known[name] = self._made(name)
        return self._known[name]

    def belonging_to(self, entity: E) -> Partition[E] | None:
        """Returns the partition an entity belongs to; None if the name in its file is not plain."""
        name = self._layout.partition(entity)
        return self.of(name) if is_plain(name) else None

    def chosen(self, name: str | None) -> list[Partition[E]]:
        """Returns the partition of this name, or all partitions for None."""
        return [self.of(each) for each in (self.names() if name is None else [name])]

    def directories(self, name: str | None) -> Iterator[Directory[E]]:
        """Returns the directories of one partition or of all, archives included."""
        return chain.from_iterable(partition.directories() for partition in self.chosen(name))

    def newest_closed(
        self, name: str | None = None, label: str | None = None, group: str | None = None
    ) -> Iterator[Place[E]]:
        """Yields the closed files (of this label, of this group), the most recently changed first."""
        found = (partition.newest_closed(label, group) for partition in self.chosen(name))
        return heapq.merge(*found, key=attrgetter("changed_at"), reverse=True)

    def locate(self, entity_id: str) -> Location[E] | None:
        if not is_plain(entity_id):
            return None  # a hand-written file may name anything as an id
        name = self._layout.name(entity_id)
        for partition, directory in self._places(entity_id):
            signature = signature_of(f"{directory.path}/{name}")
            entity = directory.load(name)
            if entity is not None:
                if len(self._last_seen) > REMEMBERED:
                    self._last_seen.clear()
                self._last_seen[entity_id] = partition, directory
                return Location(partition, directory, entity, signature)
        return None

    def drop_own_directory(self, directory: Directory[E]) -> None:
        """Removes the entity's own directory after its file was removed or not created, unless it holds other files."""
        if self._layout.file_name is not None:
            with suppress(OSError):
                directory.path.rmdir()

    def _places(self, entity_id: str) -> Iterator[tuple[Partition[E], Directory[E]]]:
        """Yields the places where an entity may be, the likeliest first."""
        if entity_id in self._last_seen:
            yield self._last_seen[entity_id]
        partitions = self.chosen(None if self._layout.file_name is None else entity_id)
        yield from ((partition, partition.home) for partition in partitions)
        yield from ((partition, month) for partition in partitions for month in partition.months())

    def _made(self, name: str) -> Partition[E]:
        path, layout, settings = self._base / name, self._layout, self._settings(name)
        home = Directory(self._files, path, layout.entity_type, closed=layout.closed, **settings)
        archive: Archive[ArchivedFiles[E]] | None = None
        if layout.archived is not None:
            month = partial(
                ArchivedFiles, self._files, entity_type=layout.entity_type, closed=layout.archived, **settings
            )
            archive = Archive(path, month)
        return Partition(home, archive, layout.ended, self._lock_of)

    def _settings(self, name: str) -> Mapping[str, Any]:
        """Returns the options common to all directories of a partition."""
        own_directories, field = self._layout.file_name is not None, self._layout.partition_field
        return {
            "grouped": self._layout.grouped,
            "order": self._layout.order,
            "looks": self.looks,
            "named": self._layout.name(name).__eq__ if own_directories else None,
            "place": {field: name} if field is not None else None,
            "adopt": lambda entity, stem: self._adopt(entity, name if own_directories else stem),
        }


def is_plain(name: str) -> bool:
    """Returns whether the name can be a partition's: that of an agent or an entity, or `_unassigned`."""
    return is_name(name.removeprefix("_"))
