"""A directory of things to be read once: `{YYYYMMDD_HHMMSS}_{id8}.md`, older read ones in `archive/{YYYY-MM}/`.

Mailboxes and notifications are inboxes. The hot directory stays small: what has been read is moved on to the archive
(never deleted), so counting and listing cost the same after ten messages and after ten thousand.
"""

from __future__ import annotations

import heapq
import os
import re
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from multi_agent_mcp.domain.names import id8
from multi_agent_mcp.domain.times import format_time, stamp
from multi_agent_mcp.store.disk import storage_errors, sync_directory
from multi_agent_mcp.store.enclosure import is_own_directory
from multi_agent_mcp.store.files import Files
from multi_agent_mcp.store.folder import Folder


class Readable(Protocol):
    @property
    def id(self) -> str: ...
    @property
    def created_at(self) -> datetime: ...
    @property
    def read_at(self) -> datetime | None: ...
    def mark_read(self, at: datetime | None) -> Any: ...


R = TypeVar("R", bound=Any)  # an Entity that is Readable; Python has no intersection types

# Only what is surely a time: `none` or `NULL`, written by hand, must not hide a message.
_READ = re.compile(rb"^read_at:[ \t]*['\"]?(?P<closed>\d{4}-\d\d-\d\dT[^'\"\r\n]*)", re.MULTILINE)
STAMP_LENGTH = 15

HOT_READ_MAX = 200
HOT_READ_KEPT = 100


def file_name(entity: Readable) -> str:
    """`20261121_214601_0a1b2c3d.md`."""
    return f"{stamp(entity.created_at)}_{id8(entity.id)}.md"


class Inbox(Generic[R]):
    """The inbox of one agent. Marking read happens under the lock `{lock}` and is durable when it returns."""

    def __init__(self, files: Files, path: Path, entity_type: type[R], *, lock: str, **defaults: Any) -> None:
        self.files = files
        self.path = path
        self.lock = lock
        self.hot: Folder[R] = Folder(files, path, entity_type, closed=_READ, **defaults)
        self._entity_type = entity_type
        self._defaults = defaults

    def deliver(self, entity: R) -> None:
        """Puts a new file in place, exclusively; raises `FileExistsError`."""
        self.hot.create(file_name(entity), entity)

    def unread(self, *, fresh: bool = False) -> list[tuple[str, R]]:
        """Names and entities not yet read, in no particular order."""
        return [(name, entity) for name, entity in self.hot.open_entities(fresh=fresh) if entity.read_at is None]

    def any_unread(self, ids: frozenset[str]) -> bool:
        """Whether one of these is surely unread, looking at no other file. False may be wrong for a file that was put
        here under a name of its own."""
        endings = tuple(f"_{id8(entity_id)}.md" for entity_id in ids)
        likely = (self.hot.load(name) for name in file_names(self.path) if name.endswith(endings))
        return any(entity is not None and entity.id in ids and entity.read_at is None for entity in likely)

    def mark_read(self, names: list[str], at: datetime | None) -> None:
        """Sets `read_at` of these files; whoever calls holds the lock. `at` None makes them unread again."""
        changed = False
        for name in names:
            entity = self.hot.load(name)
            if entity is not None and (entity.read_at is None) != (at is None):
                self.hot.replace(name, entity.mark_read(at), sync=False)
                changed = True
        if changed:
            sync_directory(self.path)

    def give_back(self, entity_ids: Iterable[str]) -> int:
        """Makes unread again every file with one of these ids, archived ones too; whoever calls holds the lock. When
        they were read does not matter: a clock may have been set back. Returns how many."""
        wanted = set(entity_ids)
        found = [item for like in wanted for item in self.find_all(lambda entity: entity.id in wanted, like=like)]
        read = [path for path, entity in dict(found).items() if entity.read_at is not None]
        back = self.files.relocate([(path, self.path / path.name) for path in read if path.parent != self.path])
        self.mark_read([path.name for path in [*back, *(path for path in read if path.parent == self.path)]], None)
        return len(read)

    def find(self, entity_id: str) -> tuple[Path, R] | None:
        """The entity with this id, hot or archived; hot files with names of their own are looked at last."""
        for folder in self.folders():
            for name in fitting(file_names(folder.path), entity_id):
                entity = folder.load(name)
                if entity is not None and entity.id == entity_id:
                    return folder.path / name, entity
        for name, entry in self.hot.entries(fresh=True).items():
            entity = entry.entity or self.hot.load(name)
            if entity is not None and entity.id == entity_id:
                return self.path / name, entity
        return None

    def find_all(self, wanted: Callable[[R], bool], like: str) -> list[tuple[Path, R]]:
        """Every entity whose id begins like `like` and that `wanted` accepts (the copies of a broadcast)."""
        named = [(folder, name) for folder in self.folders() for name in fitting(file_names(folder.path), like)]
        named += [(self.hot, name) for name in file_names(self.path) if not OUR_NAME.fullmatch(name)]
        return [
            (folder.path / name, entity)
            for folder, name in dict.fromkeys(named)
            if (entity := folder.load(name)) is not None and wanted(entity)
        ]

    def history(self) -> Iterator[R]:
        """Everything, newest first: the hot directory merged with the archive, which is read only as far as asked."""
        hot = [entity for name in self.hot.entries() if (entity := self.hot.load(name)) is not None]
        hot.sort(key=age, reverse=True)
        seen = {entity.id for entity in hot}
        archived = (entity for entity in self._archived() if entity.id not in seen)
        return heapq.merge(hot, archived, key=age, reverse=True)

    def archive_read(self, *, keep: int = HOT_READ_KEPT, above: int = HOT_READ_MAX) -> int:
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
        moves = [
            (self.path / name, self.path / "archive" / entity.created_at.strftime("%Y-%m") / file_name(entity))
            for name, entity in entities
        ]
        self.files.relocate(moves)
        return len(moves)

    def _months(self) -> list[Path]:
        archive = self.path / "archive"
        if not is_own_directory(archive):
            return []
        return sorted((item for item in archive.iterdir() if is_own_directory(item)), reverse=True)

    def folders(self) -> Iterator[Folder[R]]:
        """The hot directory and the archive's months, newest first."""
        yield self.hot
        for month in self._months():
            yield Folder(self.files, month, self._entity_type, **self._defaults)

    def _archived(self) -> Iterator[R]:
        for month in self._months():
            folder: Folder[R] = Folder(self.files, month, self._entity_type, **self._defaults)
            names = sorted(file_names(month), reverse=True)
            for _, same_second in groupby(names, key=lambda name: name[:STAMP_LENGTH]):
                entities = [entity for name in same_second if (entity := folder.load(name)) is not None]
                yield from sorted(entities, key=age, reverse=True)


OUR_NAME = re.compile(r"\d{8}_\d{6}_[0-9a-f]{8}(\.\d+)?\.md")


def file_names(path: Path) -> list[str]:
    """The mail in a directory by name; a directory or a pipe called like mail is none."""
    try:
        with storage_errors(path, FileNotFoundError), os.scandir(path) as found:
            return [
                item.name
                for item in found
                if item.name.endswith(".md") and not item.name.startswith(".") and item.is_file(follow_symlinks=False)
            ]
    except FileNotFoundError:
        return []


def fitting(names: Iterable[str], entity_id: str) -> list[str]:
    """The names under which we would have put this id: `…_{id8}.md`, or `…_{id8}.1.md` beside a namesake."""
    digits = f"_{id8(entity_id)}."
    return [name for name in names if name.startswith(digits, STAMP_LENGTH)]


def age(entity: Readable) -> tuple[datetime, str]:
    return entity.created_at, entity.id


def _is_read(entity: Readable | None) -> bool:
    return entity is not None and entity.read_at is not None
