"""A directory of things to be read once: `{YYYYMMDD_HHMMSS}_{id8}.md`, older read ones in `archive/{YYYY-MM}/`.

Mailboxes and notifications are inboxes. The hot directory stays small: what has been read is moved on to the archive
(never deleted), so counting and listing cost the same after ten messages and after ten thousand.

A file is identified by its path: an id is only what the file says, and two files may say the same.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import Any, Generic, TypeVar

from multi_agent_mcp.domain.entity import Readable
from multi_agent_mcp.domain.ids import id8
from multi_agent_mcp.domain.times import format_time, stamp
from multi_agent_mcp.store.archive import ARCHIVE, HOT_KEPT, HOT_MAX, month_of
from multi_agent_mcp.store.directory import Directory
from multi_agent_mcp.store.files.containment import is_own_directory
from multi_agent_mcp.store.files.durable_files import Files
from multi_agent_mcp.store.inbox_lookup import OUR_NAME, STAMP_LENGTH, Addresses, file_names, fitting
from multi_agent_mcp.system.disk import spelled, sync_directory

R = TypeVar("R", bound=Readable)

# Only what is surely a time: `none` or `NULL`, written by hand, must not hide a message.
_READ = re.compile(rb"^read_at:[ \t]*['\"]?(?P<closed>\d{4}-\d\d-\d\dT[^'\"\r\n]*)", re.MULTILINE)

Position = tuple[datetime, str, str]


def file_name(entity: Readable) -> str:
    """`20261121_214601_0a1b2c3d.md`."""
    return f"{stamp(entity.created_at)}_{id8(entity.id)}.md"


class Inbox(Generic[R]):
    """The inbox of one agent. Marking read happens under the lock `{lock}` and is durable when it returns.

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
        **defaults: Any,
    ) -> None:
        self.files = files
        self.path = path
        self.lock = lock
        self.hot: Directory[R] = Directory(files, path, entity_type, closed=_READ, grouped=grouped, **defaults)
        self._entity_type = entity_type
        self._defaults = defaults
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

    def accept(self, name: str, data: bytes, modified: int) -> R | None:
        """Puts a file of another machine in place under its name, as its bytes are; None when it is there, read and
        archived ones included. An empty file is what a power cut has left of an earlier attempt (`Files.in_bulk`)."""
        entity = self.hot.decode(data, name, modified)
        month = self.path / ARCHIVE / month_of(entity.created_at)
        places = (self.path / name, month / name, month / file_name(entity))
        if any(path.exists() and path.stat().st_size for path in places):
            return None
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
        """Names and entities not yet read, in no particular order."""
        return [(name, entity) for name, entity in self.hot.open_entities(fresh=fresh) if entity.read_at is None]

    def read_of(self, groups: Collection[str]) -> list[R]:
        """What has been read of these groups (see `Directory`) and lies in the hot directory still."""
        names = [name for name, entry in self.hot.entries().items() if entry.group in groups]
        return [entity for name in names if (entity := self.hot.load(name)) is not None]

    def since(self, moment: datetime) -> list[R]:
        """What lies in the hot directory and is of this second or a later one, by names of our form alone."""
        second = stamp(moment)
        names = (name for name in file_names(self.path) if name >= second and OUR_NAME.fullmatch(name))
        return [entity for name in names if (entity := self.hot.load(name)) is not None]

    def any_unread(self, ids: frozenset[str]) -> bool:
        """Whether one of these is surely unread, looking at no other file. False may be wrong for a file that was put
        here under a name of its own."""
        endings = tuple(f"_{id8(entity_id)}.md" for entity_id in ids)
        likely = (self.hot.load(name) for name in file_names(self.path) if name.endswith(endings))
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

    def find(self, named: str) -> tuple[Path, R] | None:
        """The file with this path in the inbox, else the oldest with this id; see `Addresses`."""
        return self.addresses(fresh=True).find(named)

    def addresses(self, *, fresh: bool = False) -> Addresses[R]:
        """What names each file. Without `fresh` an id that was edited in place just now is not seen."""
        return Addresses(self.directories(), fresh=fresh)

    def order(self, path: Path, entity: R) -> Position:
        """Where a file stands in `newest_first`, reversed."""
        return entity.created_at, entity.id, self._within(path)

    def find_all(self, wanted: Callable[[R], bool], like: str) -> list[tuple[Path, R]]:
        """Every entity whose id begins like `like` and that `wanted` accepts (the copies of a broadcast)."""
        named = [
            (directory, name) for directory in self.directories() for name in fitting(file_names(directory.path), like)
        ]
        named += [(self.hot, name) for name in file_names(self.path) if not OUR_NAME.fullmatch(name)]
        return [
            (directory.path / name, entity)
            for directory, name in dict.fromkeys(named)
            if (entity := directory.load(name)) is not None and wanted(entity)
        ]

    def history(self) -> Iterator[R]:
        """Everything, newest first."""
        return (entity for _, entity in self.newest_first())

    def newest_first(self) -> Iterator[tuple[Path, R]]:
        """Everything with its path, newest first: the hot directory merged with the archive, which is read only as far
        as asked. A file that a crash has left at both places is there once."""
        index = self.hot.entries()
        hot = [(self.path / name, entity) for name in index if (entity := self.hot.load(name)) is not None]
        hot.sort(key=self._order, reverse=True)
        seen = {entry.signature[2] for entry in index.values()}
        archived = (item for item in self._archived() if _inode(item[0]) not in seen)
        return heapq.merge(hot, archived, key=self._order, reverse=True)

    def archive_read(self, *, keep: int = HOT_KEPT, above: int = HOT_MAX) -> int:
        """Moves the oldest read files on once there are more than `above`; `keep` of them stay. Returns how many."""
        read = [name for name, entry in self.hot.entries().items() if entry.closed or _is_read(entry.entity)]
        if len(read) <= above:
            return 0
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

    def _months(self) -> list[Path]:
        archive = self.path / "archive"
        if not is_own_directory(archive):
            return []
        return sorted((item for item in archive.iterdir() if is_own_directory(item)), reverse=True)

    def directories(self) -> Iterator[Directory[R]]:
        """The hot directory and the archive's months, newest first."""
        yield self.hot
        for month in self._months():
            yield Directory(self.files, month, self._entity_type, **self._defaults)

    def _archived(self) -> Iterator[tuple[Path, R]]:
        for directory in self.directories():
            if directory is self.hot:
                continue
            names = sorted(file_names(directory.path), reverse=True)
            for _, same_second in groupby(names, key=lambda name: name[:STAMP_LENGTH]):
                found = [(directory.path / name, entity) for name in same_second if (entity := directory.load(name))]
                yield from sorted(found, key=self._order, reverse=True)

    def _order(self, item: tuple[Path, R]) -> Position:
        return self.order(*item)

    def _within(self, path: Path) -> str:
        return str(path.relative_to(self.path))


def deliver_all(entities: Sequence[tuple[Inbox[R], R]]) -> None:
    """As `deliver`, one file into each of several inboxes: all of them or, when this raises, none."""
    for inbox, _ in entities:
        inbox.hot.require_inside()
    inbox, _ = entities[0]
    inbox.files.create_all({to.path / file_name(entity): to.hot.codec.encode(entity) for to, entity in entities})


def _inode(path: Path) -> int | None:
    """None for a file that has been moved on."""
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return None


def _is_path(held: str) -> bool:
    """Whether a session has noted a file and not, as earlier versions did, an id."""
    return "/" in held


def age(entity: Readable) -> tuple[datetime, str]:
    return entity.created_at, entity.id


def _is_read(entity: Readable | None) -> bool:
    return entity is not None and entity.read_at is not None
