"""One partition of a collection: the directory of its entities, and the archive of the finished ones."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from operator import attrgetter
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from multi_agent_mcp.domain.entity import Entity
from multi_agent_mcp.domain.times import from_timestamp
from multi_agent_mcp.errors import StorageError
from multi_agent_mcp.store.archive import HOT_KEPT, HOT_MAX, Archive, ArchivedFiles, month_of
from multi_agent_mcp.store.directory import Directory
from multi_agent_mcp.store.directory_index import Entry
from multi_agent_mcp.system.file_status import signature_of
from multi_agent_mcp.system.writing import sync_directory

E = TypeVar("E", bound=Entity)

logger = logging.getLogger(__name__)

MOVED_AT_ONCE = 20_000  # less than a second; more, as left by earlier versions, are moved in later calls

TIDIED_EVERY = 16


class Place(NamedTuple, Generic[E]):
    """A closed file and its modification time (seconds since the epoch)."""

    changed_at: float
    directory: Directory[E]
    name: str


class Partition(Generic[E]):
    """One partition. `home` is its directory, `archive` its archive (None: nothing is archived). `ended` returns
    whether an entity is finished although its header does not close it; `lock_of` names the lock of an id."""

    def __init__(
        self,
        home: Directory[E],
        archive: Archive[ArchivedFiles[E]] | None,
        ended: Callable[[E], bool],
        lock_of: Callable[[str], str],
    ) -> None:
        self.home = home
        self.archive = archive
        self._ended = ended
        self._lock_of = lock_of
        self._grown = 0

    def months(self) -> list[Directory[E]]:
        """Returns the archive's directories, newest first."""
        return [*self.archive.months()] if self.archive is not None else []

    def directories(self) -> Iterator[Directory[E]]:
        yield self.home
        yield from self.months()

    def newest_closed(self, label: str | None, group: str | None) -> Iterator[Place[E]]:
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

    def _move_on(self, over: Mapping[str, Entry[E]], archive: Archive[ArchivedFiles[E]]) -> None:
        """Moves files to the archive, each under its entity's lock, as a writer locates the entity under that lock."""
        moved: defaultdict[Path, dict[str, Entry[E]]] = defaultdict(dict)
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

    def _moved(self, name: str, entry: Entry[E], archive: Archive[ArchivedFiles[E]]) -> Path | None:
        """Moves a file, not durably yet, and returns its month's directory; None if it has changed since it was indexed
        or its name is taken there: nothing is overwritten."""
        path = self.home.path / name
        month = archive.path / month_of(from_timestamp(entry.signature[0] / 1e9))
        if signature_of(path) != entry.signature or (month / name).exists():
            return None
        self.home.files.move(path, month / name, sync=False)
        return month

    def bring_back(self, directory: Directory[E], name: str) -> None:
        """Moves a file from the archive back to the home directory."""
        self.home.files.move(directory.path / name, self.home.path / name)
