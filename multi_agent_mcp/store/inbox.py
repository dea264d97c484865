"""A directory of items that are read once: `{YYYYMMDD_HHMMSS}_{id8}.md`, older read ones in `archive/{YYYY-MM}/`.

Mailboxes and notifications are inboxes. The hot directory stays small: read files are moved to the archive (never
deleted), so counting and listing cost the same after ten messages and after ten thousand.

A file is identified by its path: its id is part of its content, and two files may have the same.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

from multi_agent_mcp.domain.entity import Readable, age
from multi_agent_mcp.domain.ids import id8
from multi_agent_mcp.domain.times import format_time, parse_time, stamp
from multi_agent_mcp.store.archive import (
    ARCHIVE,
    HOT_KEPT,
    HOT_MAX,
    OUR_NAME,
    Archive,
    ArchivedNames,
    file_names,
    fitting,
    month_of,
)
from multi_agent_mcp.store.directory import Directory
from multi_agent_mcp.store.files.durable_files import Files
from multi_agent_mcp.store.inbox_views import Addresses, Position, newest_first
from multi_agent_mcp.store.index import Entry
from multi_agent_mcp.system.files import spelled, sync_directory

R = TypeVar("R", bound=Readable)

# It matches only times: `none` or `NULL`, written by hand, must not hide a message.
_READ = re.compile(rb"\nread_at:[ \t]*['\"]?(?P<closed>\d{4}-\d\d-\d\dT[^'\"\r\n]*)")
_UNREAD = b"\nread_at: null\n"


def file_name(entity: Readable) -> str:
    """Returns the name of an entity's file: `20261121_214601_0a1b2c3d.md`."""
    return f"{stamp(entity.created_at)}_{id8(entity.id)}.md"


class Inbox(Generic[R]):
    """The inbox of one agent. Files are marked read under the lock `lock`, durably.

    Unread entities are sorted by the key `order`, by default oldest first.

    `held` returns the references of files that were handed out and not confirmed yet (see `reference`): they are not
    archived, so that they can be made unread again. With `keeps_names`, archiving does not give a file the name of its
    id: on several machines a file is the same only under the same name.
    """

    def __init__(
        self,
        files: Files,
        path: Path,
        entity_type: type[R],
        *,
        lock: str,
        held: Callable[[], Collection[str]] = frozenset,
        grouped: re.Pattern[bytes] | None = None,
        indexed: Callable[[R], R] = lambda entity: entity,
        order: Callable[[R], Any] | None = None,
        keeps_names: bool = False,
        **defaults: Any,
    ) -> None:
        self.files = files
        self.path = path
        self.lock = lock
        self.hot: Directory[R] = Directory(
            files,
            path,
            entity_type,
            closed=_READ,
            grouped=grouped,
            indexed=indexed,
            order=order or age,
            over=_read_at,
            **defaults,
        )
        self._archived_months = Archive(path, partial(ArchivedNames, files, entity_type=entity_type, **defaults))
        self._held = held
        self._keeps_names = keeps_names
        self._prefix = f"{path.relative_to(files.base)}/"

    def reference(self, name: str, read_at: datetime | None = None) -> str:
        """Returns a file's path in the session directory and the time at which it is marked read, if given: this is
        what an agent session records when it hands the file out."""
        return f"{self._prefix}{spelled(name)}" + (f" {format_time(read_at)}" if read_at else "")

    def has_any(self, held: Iterable[str]) -> bool:
        """Returns whether one of these references may be to a file of this inbox; see `requeue`."""
        return any(item.startswith(self._prefix) or not _is_path(item) for item in held)

    def deliver(self, entity: R) -> None:
        """Creates the entity's file, exclusively; raises `FileExistsError`."""
        self.hot.create(file_name(entity), entity)

    def has(self, entity: R) -> bool:
        """Returns whether a file with this entity's name exists, here or in the archive."""
        name = file_name(entity)
        return (self.path / name).exists() or (self.path / ARCHIVE / month_of(entity.created_at) / name).exists()

    def accept(self, name: str, data: bytes, modified: int, read_at: datetime | None = None) -> R | None:
        """Stores a file of another machine under its name, its bytes unchanged except for `read_at`; returns None if it
        exists already, here or in the archive. An empty file does not count: a power cut has left it from an earlier
        attempt (`Files.in_bulk`)."""
        entity = self.hot.decode(data, name.removesuffix(".md"), modified / 1e9)
        month = f"{self.path}/{ARCHIVE}/{month_of(entity.created_at)}"
        if any(map(_has_bytes, {f"{self.path}/{name}", f"{month}/{name}", f"{month}/{file_name(entity)}"})):
            return None
        if read_at is not None:
            entity = entity.mark_read(read_at)
            data = _marked_read(data, read_at) or self.hot.codec.encode(entity)
        self.files.replace(self.path / name, data, modified=modified)
        return entity

    def accept_read(self, name: str, at: datetime | None) -> None:
        """Sets `read_at` to its value on the agent's own machine. With None, the file also moves back from the
        archive."""
        with self.files.locks.held(self.lock):
            if at is None:
                archived = [item.path / name for item in self.directories() if item is not self.hot]
                self.files.relocate([(path, self.path / name) for path in archived if path.exists()])
            entity = self.hot.load(name)
            if entity is not None and entity.read_at != at:
                self.hot.replace(name, entity.mark_read(at))

    def remove(self, entity: R) -> None:
        """Removes an entity that was just delivered and not acknowledged to any caller."""
        self.hot.remove(file_name(entity))

    def unread(self, *, fresh: bool = False) -> list[tuple[str, R]]:
        """Returns names and entities of the unread files in the inbox's order, with the parts that the index keeps
        (`indexed`, see `IndexedFiles`)."""
        return self.hot.open_entities(fresh=fresh)

    def read_of(self, groups: Collection[str]) -> list[R]:
        """Returns the read entities of these groups (see `IndexedFiles`) that are not archived."""
        names = [name for name, entry in self.hot.entries().items() if entry.group in groups]
        return [entity for name in names if (entity := self.hot.load(name)) is not None]

    def read_since(self, moment: datetime) -> list[R]:
        """Returns the entities that were read after `moment` and are not archived."""
        border = format_time(moment)
        names = [name for name, entry in self.hot.entries().items() if _closed_at(entry) > border]
        return [entity for name in names if (entity := self.hot.load(name)) is not None]

    def names_since(self, moment: datetime) -> tuple[list[str], list[str]]:
        """Returns all file names in the hot directory, and those of our form from this second on."""
        names, second = file_names(self.path), stamp(moment)
        return names, [name for name in names if name >= second and OUR_NAME.fullmatch(name)]

    def any_unread(self, ids: frozenset[str]) -> bool:
        """Returns whether an entity with one of these ids is unread, found by file name. A file whose name is not of
        our form may be missed."""
        digits = set(map(id8, ids))
        likely = (self.hot.load(name) for name in file_names(self.path) if name[-11:-3] in digits)  # `…_{id8}.md`
        return any(entity is not None and entity.id in ids and entity.read_at is None for entity in likely)

    def mark_read(self, names: list[str], at: datetime | None) -> None:
        """Sets `read_at` of these files, None to make them unread again; the caller holds the lock."""
        changed = False
        for name in names:
            entity = self.hot.load(name)
            if entity is not None and (entity.read_at is None) != (at is None):
                self.hot.replace(name, entity.mark_read(at), sync=False)
                changed = True
        if changed:
            sync_directory(self.path)

    def requeue(self, held: Iterable[str]) -> list[R]:
        """Makes the files with these references unread again, unless they were marked read at another time than the
        reference says: by another reader, after the one that holds it had died. The caller holds the lock. Earlier
        versions recorded no time, or ids: such a reference means every file with that id, also in the archive. Returns
        the entities as they were before."""
        held = set(held)
        times: dict[str, set[datetime | None]] = {}
        for path, time in map(_parted, held):
            times.setdefault(path, set()).add(time)
        found = {}
        for name in file_names(self.path):
            marked = times.get(self.reference(name))
            entity = self.hot.load(name) if marked is not None else None
            if entity is not None and marked is not None and not marked.isdisjoint({None, entity.read_at}):
                found[self.path / name] = entity
        ids = {item for item in held if not _is_path(item)}
        for like in ids:
            found.update(self.find_all(lambda entity: entity.id in ids, like=like))
        read = [path for path, entity in found.items() if entity.read_at is not None]
        back = self.files.relocate([(path, self.path / path.name) for path in read if path.parent != self.path])
        self.mark_read([path.name for path in [*back, *(path for path in read if path.parent == self.path)]], None)
        return list(found.values())

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
        return min(bearers, key=_precedence, default=None)

    def find_all(self, wanted: Callable[[R], bool], like: str) -> list[tuple[Path, R]]:
        """Returns paths and entities that `wanted` accepts (the copies of a broadcast), among those whose id begins
        with the same eight digits as `like`."""
        return [
            (directory.path / name, entity)
            for directory, name in self.likely(like)
            if (entity := directory.load(name)) is not None and wanted(entity)
        ]

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
        directory = next((item for item in self.directories() if self.within(item.path) == (place or ".")), None)
        if directory is None:
            return None
        names = [last] if "\\" not in last else file_names(directory.path)  # names that are not UTF-8 are escaped
        name = next((name for name in names if spelled(name) == last), None)
        entity = directory.load(name) if name is not None else None
        return (directory.path / last, entity) if name is not None and entity is not None else None

    def addresses(self) -> Addresses[R]:
        """Returns the addresses of the files as of now."""
        return Addresses(self.path, self.hot.index(), partial(self.find, fresh=False), self.within)

    def within(self, path: Path) -> str:
        """Returns a path relative to the inbox, escaped as in answers."""
        return spelled(str(path.relative_to(self.path)))

    def history(self) -> Iterator[R]:
        """Yields all entities, read or not, newest first."""
        return (entity for _, entity in self.newest_first())

    def newest_first(self, before: Position | None = None) -> Iterator[tuple[Path, R]]:
        """Yields paths and entities, read or not, newest first; with `before`, those after this position."""
        return newest_first(self.hot, self.months(), before)

    def archive_read(self, *, keep: int = HOT_KEPT, above: int = HOT_MAX) -> int:
        """Archives all but the newest `keep` read files if there are more than `above`. Returns the number archived."""
        if self.hot.closed_counts().total() <= above:
            return 0
        read = [name for name, entry in self.hot.entries().items() if entry.closed]
        entities = [(name, entity) for name in read if (entity := self.hot.load(name)) is not None]
        entities.sort(key=lambda item: age(item[1]))
        return self._archive(entities[: len(entities) - keep])

    def archive_older(self, than: datetime) -> int:
        """Archives the files read before `than`, and returns their number. The others are not parsed: the index knows
        when they were read."""
        border = format_time(than)
        old = [name for name, entry in self.hot.entries().items() if "" < _closed_at(entry) < border]
        entities = [(name, entity) for name in old if (entity := self.hot.load(name)) is not None]
        return self._archive([item for item in entities if item[1].read_at is not None and item[1].read_at < than])

    def _archive(self, entities: list[tuple[str, R]]) -> int:
        held = {path for path, _ in map(_parted, self._held())} if entities else ()
        moves = [
            (self.path / name, self.path / ARCHIVE / month_of(entity.created_at) / self._archived_name(name, entity))
            for name, entity in entities
            if self.reference(name) not in held
        ]
        self.files.relocate(moves)
        return len(moves)

    def _archived_name(self, name: str, entity: R) -> str:
        return name if self._keeps_names else file_name(entity)

    def directories(self) -> Iterator[Directory[R]]:
        """Yields the hot directory and the archive's months, newest first."""
        yield self.hot
        yield from self.months()

    def months(self) -> list[ArchivedNames[R]]:
        """Returns the archive's months, newest first."""
        return self._archived_months.months()


def deliver_all(entities: Sequence[tuple[Inbox[R], R]]) -> None:
    """Delivers one entity to each of several inboxes, all of them or, if this raises, none; see `Inbox.deliver`."""
    for inbox, _ in entities:
        inbox.hot.require_inside()
    inbox, _ = entities[0]
    inbox.files.create_all({to.path / file_name(entity): to.hot.codec.encode(entity) for to, entity in entities})


def _has_bytes(path: str) -> bool:
    """Returns whether the file exists and is not empty."""
    try:
        return os.stat(path).st_size > 0  # noqa: PTH116 - a `Path` takes five times as long
    except (FileNotFoundError, NotADirectoryError):
        return False


def _marked_read(data: bytes, at: datetime) -> bytes | None:
    """Returns the bytes with only `read_at` changed, six times as fast as the codec; None if not written by us."""
    header_end = data.find(b"\n---\n", 3) + 1
    before, unread, after = data[:header_end].partition(_UNREAD)
    return (
        b"".join((before, f"\nread_at: '{format_time(at)}'\n".encode(), after, data[header_end:])) if unread else None
    )


def _is_path(held: str) -> bool:
    """Returns whether a reference is a path, and not an id as in earlier versions."""
    return "/" in held


def _parted(held: str) -> tuple[str, datetime | None]:
    """Returns the path of a reference, and the time of its mark; None as in earlier versions."""
    path, _, time = held.rpartition(" ")
    return (held, None) if held.endswith(".md") else (path, parse_time(time))


def _precedence(item: tuple[Path, R]) -> tuple[datetime, str]:
    """Returns a sort key that does not change when the file is marked read or archived: its time, then its content."""
    _, entity = item
    return entity.created_at, repr(entity.mark_read(None))


def _closed_at(entry: Entry[R]) -> str:
    """Returns the time at which the entry's file was read, as it says; "" if it is unread."""
    return entry.closed.strip("'\"")


def _read_at(entity: Readable) -> str:
    return format_time(entity.read_at) if entity.read_at else ""
