"""One partition of a collection: the directory with its entities, and the archive of those that are over."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from operator import attrgetter
from typing import Generic, NamedTuple, TypeVar

from multi_agent_mcp.domain.entity import Entity
from multi_agent_mcp.domain.times import from_timestamp
from multi_agent_mcp.errors import StorageError
from multi_agent_mcp.store.archive import HOT_KEPT, HOT_MAX, Archive, month_of
from multi_agent_mcp.store.directory import Directory
from multi_agent_mcp.system.disk import sync_directory
from multi_agent_mcp.system.file_status import modified_at

E = TypeVar("E", bound=Entity)

logger = logging.getLogger(__name__)

MOVED_AT_ONCE = 5_000  # half a second; what more an earlier version has left goes the next times

TIDIED_EVERY = 16


class Place(NamedTuple, Generic[E]):
    """A closed file, and when it was last changed (seconds since the epoch)."""

    changed_at: float
    directory: Directory[E]
    name: str


class Partition(Generic[E]):
    """`home` is the directory, `archive` the months beside it; None for what is never archived."""

    def __init__(self, home: Directory[E], archive: Archive[E] | None) -> None:
        self.home = home
        self.archive = archive
        self._grown = 0

    def months(self) -> list[Directory[E]]:
        """The archive's directories, newest first."""
        return self.archive.months() if self.archive is not None else []

    def directories(self) -> Iterator[Directory[E]]:
        yield self.home
        yield from self.months()

    def newest_closed(self, label: str | None, group: str | None) -> Iterator[Place[E]]:
        """The closed files (of this label, this group), the most recently changed first; the archive, which holds
        older ones, is looked at as far as asked."""
        for directory in self.directories():
            if label is None or directory.closed_counts()[label]:
                found = [
                    Place(entry.signature[0] / 1e9, directory, name)
                    for name, entry in directory.entries().items()
                    if entry.closed and label in (None, entry.closed) and group in (None, entry.group)
                ]
                yield from sorted(found, key=attrgetter("changed_at"), reverse=True)

    def has_grown(self, ended: Callable[[E], bool], locked: Callable[[str], AbstractContextManager[None]]) -> None:
        """One more is over here. `tidy` has to list the directory: not each time."""
        if self._grown % TIDIED_EVERY == 0:
            self.tidy(ended, locked)
        self._grown += 1

    def tidy(self, ended: Callable[[E], bool], locked: Callable[[str], AbstractContextManager[None]]) -> None:
        """Moves on what is over, once there is more than `HOT_MAX` of it: closed files, and those that have `ended`.
        `locked` takes the lock of an entity. Never raises: what the disk refuses now is tried
        again the next time."""
        try:
            over = [
                (entry.signature[0], name)
                for name, entry in self.home.entries().items()
                if entry.closed or (entry.entity is not None and ended(entry.entity))
            ]
            if self.archive is not None and len(over) > HOT_MAX:
                self._move_on([name for _, name in sorted(over)[:-HOT_KEPT][:MOVED_AT_ONCE]], self.archive, locked)
        except StorageError as refusal:
            logger.warning("what is over in %s is not archived yet: %s", self.home.path, refusal)

    def _move_on(
        self, names: list[str], archive: Archive[E], locked: Callable[[str], AbstractContextManager[None]]
    ) -> None:
        changed = set()
        for name in names:
            with locked(name.removesuffix(".md")):
                month = archive.path / month_of(from_timestamp(modified_at(self.home.path / name) / 1e9))
                # Somebody may have opened it again meanwhile; and nothing of this name is written over.
                if archive.takes(self.home, name) and not (month / name).exists():
                    self.home.files.move(self.home.path / name, month / name, sync=False)
                    changed.add(month)
        for path in (*changed, self.home.path):  # the new places first
            sync_directory(path)

    def bring_back(self, directory: Directory[E], name: str) -> None:
        """Moves a file from the archive back to the others."""
        self.home.files.move(directory.path / name, self.home.path / name)
