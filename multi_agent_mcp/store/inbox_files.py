"""The files of an inbox, read or not: finding one by its id or its path, and all of them, newest first.

A file is identified by its path: its id is part of its content, and two files may have the same.
"""

from __future__ import annotations

import heapq
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from datetime import datetime
from functools import cached_property
from itertools import groupby
from pathlib import Path
from stat import S_ISREG
from typing import Generic, TypeVar

from multi_agent_mcp.domain.entity import Readable, id8
from multi_agent_mcp.domain.times import month_of, stamp
from multi_agent_mcp.errors import StorageError
from multi_agent_mcp.store.archive import DIGITS, OUR_NAME, STAMP_LENGTH, Archive, ReadMonth, file_names, fitting
from multi_agent_mcp.store.directory import Directory
from multi_agent_mcp.system.file_status import modified_at
from multi_agent_mcp.system.files import spelled

R = TypeVar("R", bound=Readable)

DIGITS_MAX = 8  # of an id, in a file's name

Position = tuple[datetime, str, str, str]
"""The sort key of a file (descending): its time, its id, its name, its directory. The name comes before the directory,
so that what a reader of history has read and archived does not shift the next page."""


class InboxFiles(Generic[R]):
    """The files in one directory, `hot`, and in its archive."""

    def __init__(self, hot: Directory[R], archive: Archive[ReadMonth[R]]) -> None:
        self.path = hot.path
        self.hot = hot
        self.archive = archive

    def find(self, named: str, *, fresh: bool = True) -> tuple[Path, R] | None:
        """Returns the file with this path in the inbox (`note.md`, `archive/2026-11/….md`), else the oldest one with
        this id, so that archiving does not change which file an id means; None if there is none. Without `fresh`, an id
        that was just edited in place is not seen."""
        if named.endswith(".md") and (found := self._at(named)) is not None:
            return found
        bearers = (
            (directory.path / name, entity)
            for directory, name in self.likely(named, thorough=True, fresh=fresh)
            if (entity := directory.load(name)) is not None and entity.id == named
        )
        return min(bearers, key=lambda item: precedence(item[1]), default=None)

    def find_all(self, wanted: Callable[[R], bool], like: str) -> list[tuple[Path, R]]:
        """Returns paths and entities that `wanted` accepts (the copies of a broadcast), among those whose id begins
        with the same eight digits as `like`."""
        return [
            (directory.path / name, entity)
            for directory, name in self.likely(like, thorough=True)
            if (entity := directory.load(name)) is not None and wanted(entity)
        ]

    def beginning_with(self, start: str) -> list[tuple[Path, R]]:
        """Returns paths and entities whose id begins so."""
        digits = id8(start.rpartition("_")[2])
        named = self.likely(digits, thorough=True) if len(digits) == DIGITS_MAX else self._named(digits)
        loaded = ((directory.path / name, directory.load(name)) for directory, name in named)
        return [(path, entity) for path, entity in loaded if entity is not None and entity.id.startswith(start)]

    def _named(self, digits: str) -> Iterator[tuple[Directory[R], str]]:
        """Yields the files whose name contains an id that begins with these digits, or is not of our form."""
        for directory in self.directories():
            for name in directory.names():
                if name[DIGITS].startswith(digits) or not OUR_NAME.fullmatch(name):
                    yield directory, name

    def likely(
        self, entity_id: str, *, thorough: bool = False, fresh: bool = False
    ) -> Iterator[tuple[Directory[R], str]]:
        """Yields the files that may have an id with the same first eight digits: those whose name of our form contains
        them, and others by the ids in the index. In the hot directory a name of our form may be that of a copied file:
        `thorough` searches those by id, too, unless a name contains the digits. In the archive such names are trusted;
        `thorough` adds all other names there."""
        names = file_names(self.path)
        ours = fitting(names, entity_id)
        others = names if thorough and not ours else [name for name in names if not OUR_NAME.fullmatch(name)]
        bearing = [name for name, found in self.hot.ids(others, fresh=fresh).items() if id8(found) == id8(entity_id)]
        yield from ((self.hot, name) for name in dict.fromkeys([*sorted(ours), *sorted(bearing)]))
        for month in self.months():
            yield from ((month, name) for name in month.named_for(entity_id, strangers=thorough))

    def _at(self, named: str) -> tuple[Path, R] | None:
        place, _, last = named.rpartition("/")
        for directory in self.directories():
            if self.within(directory.path) == (place or "."):
                names = [last] if "\\" not in last else file_names(directory.path)  # not UTF-8: they are escaped
                name = next((name for name in names if spelled(name) == last), None)
                entity = directory.load(name) if name is not None else None
                if entity is not None:
                    return directory.path / last, entity
        return self._put_away_last(last) if not place else None

    def _put_away_last(self, name: str) -> tuple[Path, R] | None:
        """Returns the file that had this name in the inbox last, before it was archived: whoever was just handed it
        goes on reading it by that name."""
        stem = name.removesuffix(".md")
        form = re.compile(rf"{re.escape(stem)}(\.\d+)?\.md")
        found = [
            month.path / known
            for month in self.months()
            for known in month.strangers()
            if form.fullmatch(spelled(known))
        ]
        path = max(found, key=_changed_at, default=None)
        month = next((month for month in self.months() if path is not None and month.path == path.parent), None)
        entity = month.load(path.name) if month is not None and path is not None else None
        return (path, entity) if path is not None and entity is not None else None

    def addresses(self) -> Addresses[R]:
        """Returns the addresses of the files as the last look has found them."""
        return Addresses(self)

    def within(self, path: Path) -> str:
        """Returns a path relative to the inbox, escaped as in answers."""
        return spelled(str(path.relative_to(self.path)))

    def history(self) -> Iterator[R]:
        """Yields all entities, read or not, newest first."""
        return (entity for _, entity in self.newest_first())

    def newest_first(self, before: Position | None = None) -> Iterator[tuple[Path, R]]:
        """Yields paths and entities, read or not, newest first; with `before`, those after this position. A file that
        is archived meanwhile is yielded once."""
        index = self.hot.entries()
        known = ((self.path / name, entry.entity) for name, entry in index.items())
        order = sorted((self.position(path, entity) for path, entity in known if entity), reverse=True)
        recent = (
            (self.path / name, entity)
            for at in order
            if (before is None or at < before) and (entity := self.hot.load(name := at[2])) is not None
        )
        seen = {entry.signature[2] for entry in index.values()}
        archived = (item for item in self._archived_first(before) if inode(item[0]) not in seen)
        return heapq.merge(recent, archived, key=lambda item: self.position(*item), reverse=True)

    def position(self, path: Path, entity: R) -> Position:
        """Returns a file's position in the order of `newest_first`."""
        return entity.created_at, entity.id, path.name, path.parent.name

    def _archived_first(self, before: Position | None) -> Iterator[tuple[Path, R]]:
        """Yields paths and entities in the archive, newest first; with `before`, those after this position."""
        last = None if before is None else stamp(before[0])
        for month in self.months():
            if before is not None and month.path.name > month_of(before[0]):
                continue
            seconds = groupby(month.newest_first(last), key=lambda name: name[:STAMP_LENGTH])
            dated = (item for _, same_second in seconds for item in self._loaded(month, same_second))
            others = self._loaded(month, month.strangers())
            for item in heapq.merge(dated, others, key=lambda item: self.position(*item), reverse=True):
                if before is None or self.position(*item) < before:
                    yield item

    def _loaded(self, month: ReadMonth[R], names: Iterable[str]) -> list[tuple[Path, R]]:
        loaded = ((month.path / name, _load(month, name)) for name in names)
        found = [(path, entity) for path, entity in loaded if entity is not None]
        return sorted(found, key=lambda item: self.position(*item), reverse=True)

    def since(self, moment: datetime) -> Iterator[tuple[Directory[R], str]]:
        """Yields the files of our form that were created in this second or later, by their names alone."""
        second = stamp(moment)
        yield from ((self.hot, name) for name in self.hot.names() if name >= second and OUR_NAME.fullmatch(name))
        for month in self.months():
            if month.path.name < month_of(moment):
                return
            for name in month.newest_first():
                if name[:STAMP_LENGTH] < second:
                    break
                if OUR_NAME.fullmatch(name):
                    yield month, name

    def read_since(self, moment: datetime) -> Iterator[R]:
        """Yields the entities that were read after `moment`."""
        for directory in self.directories():
            if directory is self.hot or modified_at(directory.path) / 1e9 >= moment.timestamp():
                recent = (name for name, at in directory.changed() if at / 1e9 >= moment.timestamp())
                loaded = (entity for name in recent if (entity := directory.load(name)) is not None)
                yield from (entity for entity in loaded if entity.read_at is not None and entity.read_at > moment)

    def directories(self) -> Iterator[Directory[R]]:
        """Yields the hot directory and the archive's months, newest first."""
        yield self.hot
        yield from self.months()

    def months(self) -> list[ReadMonth[R]]:
        """Returns the archive's months, newest first."""
        return self.archive.months()


SAME_MAX = 16


class Addresses(Generic[R]):
    """The addresses of an inbox's files at one moment, that of the last look at it: a file's id, or its path if the id
    finds another file, or more than `SAME_MAX` files have it: all of them would be read to find the first."""

    def __init__(self, inbox: InboxFiles[R]) -> None:
        self._inbox = inbox
        self._first: dict[str, Path | None] = {}
        """The file that an id finds."""

    def of(self, path: Path, entity: R) -> str:
        """Returns the address by which `InboxFiles.find` finds this file."""
        if path.parent == self._inbox.path and not entity.id.endswith(".md") and self._is_alone(path.name, entity):
            return entity.id  # the usual case: an id given by us is not also in the archive
        if entity.id not in self._first and self._bearers[id8(entity.id)] <= SAME_MAX:
            found = self._inbox.find(entity.id, fresh=False)
            self._first[entity.id] = None if found is None else found[0]
        return entity.id if self._first.get(entity.id) == path else self._inbox.within(path)

    def _is_alone(self, name: str, entity: R) -> bool:
        """Returns whether the file has the name that we give to its id, and no other file in the hot directory has an
        id with the same digits."""
        digits = id8(entity.id)
        return _digits(name) == digits and self._bearers[digits] == 1

    @cached_property
    def _bearers(self) -> Counter[str]:
        """How many files in the hot directory have an id with these digits."""
        entries = self._inbox.hot.last_seen().values()
        return Counter(id8(entry.entity.id) for entry in entries if entry.entity is not None)


def _load(month: ReadMonth[R], name: str) -> R | None:
    """The entity in a file of the archive; None, too, for what is no file: a link, a socket or a pipe that somebody has
    put there hides nothing else. Raises `StorageError`."""
    try:
        return month.load(name)
    except StorageError:
        with suppress(OSError):
            if not S_ISREG((month.path / name).lstat().st_mode):
                return None
        raise


def _digits(name: str) -> str:
    """Returns the digits of the id in a name of our form, else ""."""
    return name[DIGITS] if OUR_NAME.fullmatch(name) else ""


def _changed_at(path: Path) -> int:
    try:
        return path.lstat().st_ctime_ns
    except OSError:
        return 0


def inode(path: Path) -> int | None:
    """Returns a file's inode; None if it has been moved."""
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return None


def precedence(entity: Readable) -> tuple[datetime, str]:
    """Returns a sort key that does not change when the file is marked read or archived: its time, then its content."""
    return entity.created_at, repr(entity.mark_read(None))
