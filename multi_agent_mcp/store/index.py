"""The index of a directory's files: its entries, and the index of one moment, which is immutable: an update makes a new
one, so that code that iterates over the old one is not disturbed."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import re
import stat
from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from multi_agent_mcp.domain.entity import Entity
from multi_agent_mcp.errors import StorageError
from multi_agent_mcp.store.codec.frontmatter import Unreadable
from multi_agent_mcp.store.entity_files import EntityFiles
from multi_agent_mcp.store.files.containment import PEEK_BYTES, peek
from multi_agent_mcp.store.files.durable_files import Files
from multi_agent_mcp.system.file_status import Signature, in_place, signature
from multi_agent_mcp.system.files import storage_errors

T = TypeVar("T")
Order = Callable[[T], Any]
"""A sort key of open entities; equal ones are sorted by file name."""


class Entry(NamedTuple, Generic[T]):
    """The index entry of a file. `closed` is its label: what closed it (`done`, the time it was read at), "" while it
    is open. `entity` is None for a closed file (read mail, a finished task) and for one that is still being written.
    `group` is what a closed file belongs to (the task of an execution), or ""."""

    signature: Signature
    entity: T | None
    closed: str
    group: str = ""


class Index(Generic[T]):
    """The entries of a directory: `open` has names and entities of the open files, sorted; the counts are of the closed
    files by label, and by group and label."""

    def __init__(self, entries: dict[str, Entry[T]] | None = None, order: Order[T] = lambda _: None) -> None:
        self.entries = entries or {}
        self._order = order
        found = self.entries.values()
        self.open = [(name, entry.entity) for name, entry in self.entries.items() if entry.entity and not entry.closed]
        self.open.sort(key=self._position)
        self.closed_counts = Counter(entry.closed for entry in found if entry.closed)
        self.group_counts = Counter((entry.group, entry.closed) for entry in found if entry.group)
        self._named: tuple[list[str], Callable[[str], str]] | None = None

    def named(self, key: str, key_of: Callable[[str], str]) -> list[str]:
        """Returns the names with this key. They are sorted on the first call, and kept sorted in later indexes."""
        names, _ = self._named = self._named or (sorted(self.entries, key=key_of), key_of)
        return names[bisect_left(names, key, key=key_of) : bisect_right(names, key, key=key_of)]

    def changed(self, looked_at: Mapping[str, Entry[T] | None]) -> Index[T]:
        """Returns a new index with these entries replaced, or removed if None; others cost next to nothing."""
        new = copy(self)
        new.entries, new.open = self.entries.copy(), self.open.copy()
        new.closed_counts, new.group_counts = self.closed_counts.copy(), self.group_counts.copy()
        new._named = self._named and (self._named[0].copy(), self._named[1])
        for name, entry in looked_at.items():
            if (before := new.entries.pop(name, None)) is not None:
                new._count(name, before, -1)
            if entry is not None:
                new.entries[name] = entry
                new._count(name, entry, 1)
        return new

    def _count(self, name: str, entry: Entry[T], by: int) -> None:
        if self._named is not None:
            _place(self._named[0], name, by, self._named[1])
        if entry.entity and not entry.closed:
            _place(self.open, (name, entry.entity), by, self._position)
        if entry.closed:
            _add(self.closed_counts, entry.closed, by)
        if entry.group:
            _add(self.group_counts, (entry.group, entry.closed), by)

    def _position(self, item: tuple[str, T]) -> Any:
        return self._order(item[1]), item[0]


def _place(items: list[Any], item: Any, by: int, key: Callable[[Any], Any]) -> None:
    """Inserts an item into a sorted list (`by` > 0) or removes it; keys may be equal, items are not."""
    if by > 0:
        insort(items, item, key=key)
    else:
        del items[items.index(item, bisect_left(items, key(item), key=key))]


def _add(counts: Counter[Any], key: Any, by: int) -> None:
    counts[key] += by
    if not counts[key]:
        del counts[key]


# Makes the index entries of the files of one directory. Of a closed file only the header is read.

E = TypeVar("E", bound=Entity)

logger = logging.getLogger(__name__)


class IndexedFiles(EntityFiles[E]):
    """The files `*.md` of one directory, without dot-files.

    `closed` is a pattern whose group `closed` is the label of a closed file, if found in its header; only files without
    a match are parsed. `grouped` is a pattern whose group `group` is what a closed file belongs to. `named` accepts
    file names of this collection. For a parsed entity, `over` returns the label ("" if open) and `indexed` returns the
    version that the index keeps.
    """

    def __init__(
        self,
        files: Files,
        path: Path,
        entity_type: type[E],
        *,
        closed: re.Pattern[bytes] | None = None,
        grouped: re.Pattern[bytes] | None = None,
        named: Callable[[str], object] | None = None,
        indexed: Callable[[E], E] = lambda entity: entity,
        over: Callable[[E], str] = lambda _: "",
        **options: Any,
    ) -> None:
        super().__init__(files, path, entity_type, **options)
        self._closed = closed
        self._grouped = grouped
        self._named = named
        self._indexed = indexed
        self._over = over
        self.skipped_names: set[str] = set()
        """The names of the files that the disk cannot read at the moment (EIO)."""

    def names(self) -> list[str]:
        """Returns the file names, unordered, without examining the files."""
        with storage_errors(self.path, FileNotFoundError), contextlib.suppress(FileNotFoundError):
            found = [name for name in os.listdir(self.path) if name[-3:] == ".md" and name[0] != "."]  # noqa: PTH208
            return found if self._named is None else [*filter(self._named, found)]
        return []

    def each(self) -> Iterator[tuple[str, E]]:
        """Yields file names and entities, unordered; nothing is cached."""
        return ((name, entity) for item, _ in self.listing() if (entity := self.load(name := item.name)) is not None)

    def open_among(self, names: Iterable[str]) -> Iterator[tuple[str, E, int]]:
        """Yields the open ones of these files: name, entity as the index keeps it, and change time (`st_ctime_ns`,
        which cannot be set). Reads each file, without making the index."""
        self.require_inside()
        with storage_errors(self.path), in_place(self.path) as place:
            for name in names:
                data, status = self._peek(name, place)
                entity = None if self._closed_by(data) is not None else self._whole(data, name) or self.load(name)
                if entity is not None and not self._over(entity):
                    yield name, self._indexed(entity), status.st_ctime_ns if status is not None else 0

    def is_closed(self, name: str) -> bool:
        """Returns whether the file's header, as of now, says that it is closed."""
        return self._closed_by(self._peek(f"{self.path}/{name}")[0]) is not None

    def listing(self) -> Iterator[tuple[os.DirEntry[str], int]]:
        """Yields our files, each with the open directory's descriptor."""
        self.require_inside()
        try:
            with storage_errors(self.path, FileNotFoundError), in_place(self.path) as place, os.scandir(place) as found:
                for item in found:
                    if self.is_ours(item.name) and item.is_file(follow_symlinks=False):
                        yield item, place
        except FileNotFoundError:
            return  # the directory is made with its first file

    def is_ours(self, name: str) -> bool:
        if not name.endswith(".md") or name.startswith("."):
            return False
        return self._named is None or bool(self._named(name))

    def entry(self, name: str, place: int | None = None) -> Entry[E] | None:
        """Returns the index entry of a file; None if it is gone or not a regular file."""
        data, status = self._peek(name if place is not None else f"{self.path}/{name}", place)
        with contextlib.suppress(FileNotFoundError):
            status = status or os.lstat(self.path / name)
        if status is None or not stat.S_ISREG(status.st_mode):
            return None
        found = signature(status)
        if (closed := self._closed_by(data)) is not None:
            return Entry(found, None, *closed)
        if len(data) == status.st_size:  # all of it
            with contextlib.suppress(Unreadable):
                return self._entry_of(found, self.decode(data, name[:-3], status.st_mtime))
        return self._loaded(name, found)

    def _peek(self, path: str, place: int | None = None) -> tuple[bytes, os.stat_result | None]:
        """As `peek`. Of somebody else's file no bytes count, so that it comes to `load`, which sets it aside."""
        data, status = peek(path, place)
        return (data if status is None or self.files.containment.is_own(status) else b""), status

    def _whole(self, data: bytes, name: str) -> E | None:
        """Returns the entity if `data` is certainly the whole file and contains `created_at`, so that no file time is
        needed; else None."""
        if not data or len(data) % PEEK_BYTES == 0 or b"\ncreated_at: '2" not in data:
            return None
        with contextlib.suppress(Unreadable):
            return self.decode(data, name[:-3], 0)
        return None

    def _loaded(self, name: str, found: Signature) -> Entry[E] | None:
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
            return Entry(found, None, "") if (self.path / name).exists() else None
        return self._entry_of(found, entity)

    def _entry_of(self, found: Signature, entity: E) -> Entry[E]:
        closed = self._over(entity)
        return Entry(found, None if closed else self._indexed(entity), closed)

    def _closed_by(self, data: bytes) -> tuple[str, str] | None:
        """Returns the label and the group in the header of a closed file that begins with `data`; None if the header
        does not close it."""
        if self._closed is None or (end := data.find(b"\n---")) < 0:
            return None
        found = self._closed.search(data, 0, end + 1)
        if found is None:
            return None
        group = self._grouped.search(data, 0, end + 1) if self._grouped is not None else None
        return found["closed"].decode(errors="replace"), group["group"].decode(errors="replace") if group else ""


def _is_bad_sector(error: StorageError) -> bool:
    """Returns whether the disk failed for this file alone (EIO). Errors that any file would cause (no descriptors, no
    memory) are no reason to leave it out."""
    return isinstance(error.__cause__, OSError) and error.__cause__.errno == errno.EIO
