"""One hot directory of entity files, with an index in memory. It holds what is open, so it is small.

The index is trusted as long as the directory's own modification time stays the same; see `file_status.is_settled`.
Otherwise all files are examined, and those whose signature has changed are read again.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from stat import S_ISREG
from typing import Any, Generic, NamedTuple, TypeVar

from multi_agent_mcp.domain.entity import Entity
from multi_agent_mcp.errors import StorageError
from multi_agent_mcp.store.entity_files import DIRECTORY, EntityFiles
from multi_agent_mcp.store.files.durable_files import Files
from multi_agent_mcp.store.files.locks import Mutex
from multi_agent_mcp.system.file_status import Signature, in_place, is_settled, modified_at, signature
from multi_agent_mcp.system.files import storage_errors

T = TypeVar("T")
E = TypeVar("E", bound=Entity)

Order = Callable[[T], Any]
"""A sort key of entities; equal ones are sorted by file name."""
ARCHIVE = "archive"
LOOKED_AT_EACH = 5_000

logger = logging.getLogger(__name__)


class Looks(threading.local):
    """The directories that this thread has already checked for changes within `once`."""

    def __init__(self) -> None:
        self._seen: set[Path] | None = None

    @contextlib.contextmanager
    def once(self) -> Iterator[None]:
        """Makes this thread check each directory only once within the context, for callers that only read. The index of
        a directory that has just changed is not trusted: every query would examine all of its files again."""
        outer, self._seen = self._seen, set() if self._seen is None else self._seen
        try:
            yield
        finally:
            self._seen = outer

    def __contains__(self, path: Path) -> bool:
        return self._seen is not None and path in self._seen

    def add(self, path: Path) -> None:
        if self._seen is not None:
            self._seen.add(path)


class Entry(NamedTuple, Generic[T]):
    """A file in the index. `entity` is None while the file is still being written."""

    signature: Signature
    entity: T | None


class Directory(EntityFiles[E]):
    """The files `*.md` of one directory, without dot-files; with `nested`, the file of that name in each of its
    sub-directories, whose name is the entity's id. Entities are sorted by `order`; `named` accepts file names;
    `indexed` returns the version of an entity that the index keeps."""

    def __init__(
        self,
        files: Files,
        path: Path,
        entity_type: type[E],
        *,
        order: Order[E] = lambda _: None,
        looks: Looks | None = None,
        named: Callable[[str], object] | None = None,
        nested: str | None = None,
        indexed: Callable[[E], E] = lambda entity: entity,
        **options: Any,
    ) -> None:
        super().__init__(files, path, entity_type, **options)
        self._order = order
        self._looks = looks or Looks()
        self._named = named
        self._nested = nested
        self._indexed = indexed
        self._entries: dict[str, Entry[E]] = {}
        self._sorted: list[tuple[str, E]] | None = []
        self.version = 0
        """A number that increases whenever the directory was found changed."""
        self.skipped_names: set[str] = set()
        """The names of the files that the disk cannot read at the moment (EIO)."""
        self._seen_mtime = -1
        self._trusted = False
        self._mutex = Mutex("directory")

    def names(self) -> list[str]:
        """Returns the file names, unordered, without examining the files."""
        with storage_errors(self.path, FileNotFoundError), contextlib.suppress(FileNotFoundError):
            found = os.listdir(self.path)  # noqa: PTH208 - only names
            if self._nested is not None:
                return [f"{name}/{self._nested}" for name in found if _is_entity_directory(name)]
            found = [name for name in found if name[-3:] == ".md" and name[0] != "."]
            return found if self._named is None else [*filter(self._named, found)]
        return []

    def each(self) -> Iterator[tuple[str, E]]:
        """Yields file names and entities, unordered; nothing is cached."""
        return ((name, entity) for name, _ in self._listing() if (entity := self.load(name)) is not None)

    def entries(self, *, fresh: bool = False) -> dict[str, Entry[E]]:
        """Returns the entries by file name. `fresh` examines every file even if the directory is unchanged (edits in
        place), unless there are more than `LOOKED_AT_EACH`."""
        with self._mutex:
            if fresh or self.path not in self._looks:
                self._look(fresh=fresh)
                self._looks.add(self.path)
            return self._entries

    def entities(self, *, fresh: bool = False) -> list[tuple[str, E]]:
        """Returns names and entities, sorted; `fresh` as in `entries`."""
        with self._mutex:
            entries = self.entries(fresh=fresh)
            if self._sorted is None:
                found = ((name, entry.entity) for name, entry in entries.items() if entry.entity is not None)
                self._sorted = sorted(found, key=lambda item: (self._order(item[1]), item[0]))
            return self._sorted

    def ids(self, names: Iterable[str], *, fresh: bool = False) -> dict[str, str]:
        """Returns the ids of these files, by file name."""
        entries = self.entries(fresh=fresh)
        found: dict[str, Any] = {name: entry.entity for name in names if (entry := entries.get(name)) is not None}
        return {name: str(entity.id) for name, entity in found.items() if entity is not None}

    def skipped(self) -> list[str]:
        """Returns the names of the files that the disk cannot read at the moment (EIO)."""
        with self._mutex:
            self.entries(fresh=True)
            return sorted(self.skipped_names)

    def changed(self) -> Iterator[tuple[str, int]]:
        """Yields file names with their modification times, in nanoseconds since the epoch, unordered."""
        return ((name, status.st_mtime_ns) for name, status in self._listing())

    def is_unchanged(self, mtime: int, looked_at: int) -> bool:
        """Returns whether data read from time `looked_at` on, when the modification time was `mtime`, may be cached."""
        return is_settled(mtime, looked_at) and modified_at(self.path) == mtime

    def is_ours(self, name: str) -> bool:
        if not name.endswith(".md") or name.startswith("."):
            return False
        return self._named is None or bool(self._named(name))

    def _look(self, *, fresh: bool) -> None:
        began, mtime = time.time_ns(), modified_at(self.path)
        each = fresh and len(self._entries) <= LOOKED_AT_EACH
        if self._trusted and mtime == self._seen_mtime and not each:
            return
        self._trusted = False  # as long as this may fail
        self._scan()
        self._seen_mtime = mtime
        # What changes in a sub-directory does not change this one's time.
        self._trusted = self._nested is None and not self.skipped_names and self.is_unchanged(mtime, began)

    def _scan(self) -> None:
        self.skipped_names.clear()
        entries: dict[str, Entry[E]] = {}
        for name, status in self._listing():
            known = self._entries.get(name)
            if known is not None and known.signature == signature(status) and known.entity is not None:
                entries[name] = known
            elif (entry := self._entry(name, status)) is not None:
                entries[name] = entry
        if entries != self._entries:
            self.version += 1
            self._entries, self._sorted = entries, None  # a new one, so that code that iterates is not disturbed

    def _listing(self) -> Iterator[tuple[str, os.stat_result]]:
        """Yields our regular files with their status."""
        self.require_inside()
        try:
            with storage_errors(self.path, FileNotFoundError), in_place(self.path) as place, os.scandir(place) as found:
                for item in found:
                    name = item.name
                    if self._nested is not None:
                        if not _is_entity_directory(name) or not item.is_dir(follow_symlinks=False):
                            continue
                        name = f"{name}/{self._nested}"
                    elif not self.is_ours(name):
                        continue
                    with contextlib.suppress(FileNotFoundError):
                        status = os.stat(name, dir_fd=place, follow_symlinks=False)
                        if S_ISREG(status.st_mode):
                            yield name, status
        except FileNotFoundError:
            return  # the directory is made with its first file

    def _entry(self, name: str, status: os.stat_result) -> Entry[E] | None:
        try:
            entity = self.load(name)
        except StorageError as error:
            if not _is_bad_sector(error):
                raise
            # It must not hide the others and may become readable again: it stays, and is tried at every update.
            logger.warning("%s is passed over: %s", self.path / name, error)
            self.skipped_names.add(name)
            return None
        if entity is None:
            return Entry(signature(status), None) if (self.path / name).exists() else None
        return Entry(signature(status), self._indexed(entity))


def _is_entity_directory(name: str) -> bool:
    return name[0] != "." and name not in (ARCHIVE, DIRECTORY)


def _is_bad_sector(error: StorageError) -> bool:
    """Returns whether the disk failed for this file alone (EIO). Errors that any file would cause (no descriptors, no
    memory) are no reason to leave it out."""
    return isinstance(error.__cause__, OSError) and error.__cause__.errno == errno.EIO
