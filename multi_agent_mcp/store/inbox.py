"""A directory of items that are read once: `{YYYYMMDD_HHMMSS}_{id8}.md`, older read ones in `archive/{YYYY-MM}/`.

Mailboxes and notifications are inboxes. The hot directory stays small: what has been read is moved on to the archive
(never deleted), so counting and listing cost the same after ten messages and after ten thousand.

A file is identified by its path: an id is only what the file says, and two files may say the same.
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
from multi_agent_mcp.domain.times import format_time, stamp
from multi_agent_mcp.store.archive import ARCHIVE, HOT_KEPT, HOT_MAX, Archive, month_of
from multi_agent_mcp.store.archived_names import OUR_NAME, ArchivedNames, file_names, fitting
from multi_agent_mcp.store.directory import Directory
from multi_agent_mcp.store.files.durable_files import Files
from multi_agent_mcp.store.inbox_addresses import Addresses
from multi_agent_mcp.store.inbox_history import Position, newest_first
from multi_agent_mcp.system.writing import spelled, sync_directory

R = TypeVar("R", bound=Readable)

# Only what is surely a time: `none` or `NULL`, written by hand, must not hide a message.
_READ = re.compile(rb"\nread_at:[ \t]*['\"]?(?P<closed>\d{4}-\d\d-\d\dT[^'\"\r\n]*)")
_UNREAD = b"\nread_at: null\n"


def file_name(entity: Readable) -> str:
    """`20261121_214601_0a1b2c3d.md`."""
    return f"{stamp(entity.created_at)}_{id8(entity.id)}.md"


class Inbox(Generic[R]):
    """The inbox of one agent. Marking read happens under the lock `{lock}` and is durable when it returns.

    What is unread is told in `order` (a sort key), the oldest first if there is none.

    `held` returns the files that were handed out and not confirmed yet (see `reference`): they are not archived, so
    that they can be made unread again.
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
        self._prefix = f"{path.relative_to(files.base)}/"

    def reference(self, name: str) -> str:
        """What a session notes of a file of the hot directory that it hands out: its path in the session directory."""
        return f"{self._prefix}{spelled(name)}"

    def has_any(self, held: Iterable[str]) -> bool:
        """Whether one of these may be a file of this inbox; see `requeue`."""
        return any(item.startswith(self._prefix) or not _is_path(item) for item in held)

    def deliver(self, entity: R) -> None:
        """Puts a new file in place, exclusively; raises `FileExistsError`."""
        self.hot.create(file_name(entity), entity)

    def has(self, entity: R) -> bool:
        """Whether a file of this entity's name lies here, read and archived or not."""
        name = file_name(entity)
        return (self.path / name).exists() or (self.path / ARCHIVE / month_of(entity.created_at) / name).exists()

    def accept(self, name: str, data: bytes, modified: int, read_at: datetime | None = None) -> R | None:
        """Puts a file of another machine in place under its name, as its bytes are but for `read_at`; None when it is
        there, read and archived ones included. An empty file is what a power cut has left of an earlier attempt
        (`Files.in_bulk`)."""
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
        """Sets `read_at` as the agent's own machine says; unread again, a file comes back from the archive."""
        with self.files.locks.held(self.lock):
            if at is None:
                archived = [item.path / name for item in self.directories() if item is not self.hot]
                self.files.relocate([(path, self.path / name) for path in archived if path.exists()])
            entity = self.hot.load(name)
            if entity is not None and entity.read_at != at:
                self.hot.replace(name, entity.mark_read(at))

    def remove(self, entity: R) -> None:
        """Takes back what was delivered a moment ago and not acknowledged to anybody."""
        self.hot.remove(file_name(entity))

    def unread(self, *, fresh: bool = False) -> list[tuple[str, R]]:
        """Names and entities not yet read, as far as the index keeps them (see `Directory`), in the inbox's order."""
        return self.hot.open_entities(fresh=fresh)

    def read_of(self, groups: Collection[str]) -> list[R]:
        """What has been read of these groups (see `Directory`) and lies in the hot directory still."""
        names = [name for name, entry in self.hot.entries().items() if entry.group in groups]
        return [entity for name in names if (entity := self.hot.load(name)) is not None]

    def names_since(self, moment: datetime) -> tuple[list[str], list[str]]:
        """All names in the hot directory, and those of this second or a later one, by names of our form alone."""
        names, second = file_names(self.path), stamp(moment)
        return names, [name for name in names if name >= second and OUR_NAME.fullmatch(name)]

    def any_unread(self, ids: frozenset[str]) -> bool:
        """Whether one of these is surely unread, looking at no other file. False may be wrong for a file that was put
        here under a name of its own."""
        digits = set(map(id8, ids))
        likely = (self.hot.load(name) for name in file_names(self.path) if name[-11:-3] in digits)  # `…_{id8}.md`
        return any(entity is not None and entity.id in ids and entity.read_at is None for entity in likely)

    def mark_read(self, names: list[str], at: datetime | None) -> None:
        """Sets `read_at` of these files; the caller holds the lock. `at` None makes them unread again."""
        changed = False
        for name in names:
            entity = self.hot.load(name)
            if entity is not None and (entity.read_at is None) != (at is None):
                self.hot.replace(name, entity.mark_read(at), sync=False)
                changed = True
        if changed:
            sync_directory(self.path)

    def requeue(self, held: Iterable[str]) -> list[R]:
        """Makes unread again the files with these references; the caller holds the lock. When they were read does
        not matter: a clock may have been set back. Earlier versions noted ids: then it is every file with one of them,
        archived ones too. Returns what is unread now, as it was."""
        held = set(held)
        names = [name for name in file_names(self.path) if self.reference(name) in held]
        found = {self.path / name: entity for name in names if (entity := self.hot.load(name)) is not None}
        ids = {item for item in held if not _is_path(item)}
        for like in ids:
            found.update(self.find_all(lambda entity: entity.id in ids, like=like))
        read = [path for path, entity in found.items() if entity.read_at is not None]
        back = self.files.relocate([(path, self.path / path.name) for path in read if path.parent != self.path])
        self.mark_read([path.name for path in [*back, *(path for path in read if path.parent == self.path)]], None)
        return list(found.values())

    def find(self, named: str, *, fresh: bool = True) -> tuple[Path, R] | None:
        """The file with this path in the inbox (`note.md`, `archive/2026-11/….md`), else the oldest with this id,
        wherever that lies: archiving a file gives its id to no other. Without `fresh` an id that was edited in place
        just now is not seen."""
        if named.endswith(".md") and (found := self._at(named)) is not None:
            return found
        bearers = (
            (directory.path / name, entity)
            for directory, name in self.likely(named, thorough=True, fresh=fresh)
            if (entity := directory.load(name)) is not None and entity.id == named
        )
        return min(bearers, key=_precedence, default=None)

    def find_all(self, wanted: Callable[[R], bool], like: str) -> list[tuple[Path, R]]:
        """Every entity whose id begins like `like` and that `wanted` accepts (the copies of a broadcast)."""
        return [
            (directory.path / name, entity)
            for directory, name in self.likely(like)
            if (entity := directory.load(name)) is not None and wanted(entity)
        ]

    def likely(
        self, entity_id: str, *, thorough: bool = False, fresh: bool = False
    ) -> Iterator[tuple[Directory[R], str]]:
        """The files that may have an id with the first eight digits of this one. Those with a name of our form are
        found by it; it is believed in the archive, while in the hot directory it may be somebody's copy of another
        file: with `thorough` those are found, too, unless one has the name."""
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
        names = [last] if "\\" not in last else file_names(directory.path)  # one that is no UTF-8 is spelled out
        name = next((name for name in names if spelled(name) == last), None)
        entity = directory.load(name) if name is not None else None
        return (directory.path / last, entity) if name is not None and entity is not None else None

    def addresses(self) -> Addresses[R]:
        """What names each file."""
        return Addresses(self.path, self.hot.index(), partial(self.find, fresh=False), self.within)

    def within(self, path: Path) -> str:
        """A path in the inbox, as answers spell it."""
        return spelled(str(path.relative_to(self.path)))

    def history(self) -> Iterator[R]:
        """Everything, newest first."""
        return (entity for _, entity in self.newest_first())

    def newest_first(self, before: Position | None = None) -> Iterator[tuple[Path, R]]:
        """Everything below this position, with its path."""
        return newest_first(self.hot, self.months(), before)

    def archive_read(self, *, keep: int = HOT_KEPT, above: int = HOT_MAX) -> int:
        """Moves the oldest read files on once there are more than `above`; `keep` of them stay. Returns how many."""
        if self.hot.closed_counts().total() <= above:
            return 0
        read = [name for name, entry in self.hot.entries().items() if entry.closed]
        entities = [(name, entity) for name in read if (entity := self.hot.load(name)) is not None]
        entities.sort(key=lambda item: age(item[1]))
        return self._archive(entities[: len(entities) - keep])

    def archive_older(self, than: datetime) -> int:
        """Moves on what was read before `than`. Returns how many. Only those are parsed: the index knows when the
        others were read."""
        border = format_time(than)
        old = [
            name for name, entry in self.hot.entries().items() if entry.closed and entry.closed.strip("'\"") < border
        ]
        entities = [(name, entity) for name in old if (entity := self.hot.load(name)) is not None]
        return self._archive([item for item in entities if item[1].read_at is not None and item[1].read_at < than])

    def _archive(self, entities: list[tuple[str, R]]) -> int:
        held = self._held() if entities else ()
        moves = [
            (self.path / name, self.path / ARCHIVE / month_of(entity.created_at) / file_name(entity))
            for name, entity in entities
            if self.reference(name) not in held
        ]
        self.files.relocate(moves)
        return len(moves)

    def directories(self) -> Iterator[Directory[R]]:
        """The hot directory and the archive's months, newest first."""
        yield self.hot
        yield from self.months()

    def months(self) -> list[ArchivedNames[R]]:
        """The archive's months, newest first."""
        return self._archived_months.months()


def deliver_all(entities: Sequence[tuple[Inbox[R], R]]) -> None:
    """As `deliver`, one file into each of several inboxes: all of them or, when this raises, none."""
    for inbox, _ in entities:
        inbox.hot.require_inside()
    inbox, _ = entities[0]
    inbox.files.create_all({to.path / file_name(entity): to.hot.codec.encode(entity) for to, entity in entities})


def _has_bytes(path: str) -> bool:
    """Whether a file is there that is not empty."""
    try:
        return os.stat(path).st_size > 0  # noqa: PTH116 - a `Path` takes five times as long
    except (FileNotFoundError, NotADirectoryError):
        return False


def _marked_read(data: bytes, at: datetime) -> bytes | None:
    """The bytes with nothing else changed, in a sixth of the time; None for a file that was not written by us."""
    header_end = data.find(b"\n---\n", 3) + 1
    before, unread, after = data[:header_end].partition(_UNREAD)
    return (
        b"".join((before, f"\nread_at: '{format_time(at)}'\n".encode(), after, data[header_end:])) if unread else None
    )


def _is_path(held: str) -> bool:
    """Whether a session has noted a file and not, as earlier versions did, an id."""
    return "/" in held


def _precedence(item: tuple[Path, R]) -> tuple[datetime, str]:
    """Nothing that marking a file read or archiving it changes: of two of one time their contents decide."""
    _, entity = item
    return entity.created_at, repr(entity.mark_read(None))


def _read_at(entity: Readable) -> str:
    return format_time(entity.read_at) if entity.read_at else ""
