"""A collection of entities, one file each, on shelves: `tasks/{assignee_id}/{task_id}.md` and its like.

There is one concurrency idea: `update(id, change)` runs a pure function under that entity's lock, between read and
atomic replace. Two agents finishing the same task at once: one wins, the other's change raises.
"""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime
from operator import itemgetter
from pathlib import Path
from typing import Any, Generic, TypeVar

from multi_agent_mcp.errors import InvalidId, Refusal, StorageError
from multi_agent_mcp.store.directory import Directory
from multi_agent_mcp.store.files.containment import is_own_directory
from multi_agent_mcp.store.files.durable_files import Files
from multi_agent_mcp.system.disk import storage_errors

E = TypeVar("E", bound=Any)  # an Entity with an id; Python has no intersection types

LOCK_STRIPES = 256
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")


class Collection(Generic[E]):
    """`shelf` names the sub-directory an entity belongs to; `missing` is raised for an unknown id.

    With `file_name` every entity has a directory of its own, named by its id, and its file there is called so. With
    `shelf_field` the shelf itself says what that field is. An entity's id is what its file is called by, whatever
    stands in it: nothing else finds it.
    """

    def __init__(
        self,
        files: Files,
        base: Path,
        entity_type: type[E],
        *,
        shelf: Callable[[E], str],
        missing: Callable[[str], Refusal],
        closed: re.Pattern[bytes] | None = None,
        grouped: re.Pattern[bytes] | None = None,
        file_name: str | None = None,
        shelf_field: str | None = None,
    ) -> None:
        self.files = files
        self.base = base
        self._entity_type = entity_type
        self._shelf = shelf
        self._missing = missing
        self._closed = closed
        self._grouped = grouped
        self._file_name = file_name
        self._shelf_field = shelf_field
        self._folders: dict[str, Directory[E]] = {}

    def add(self, entity: E) -> E:
        """Exclusive and durable; raises `FileExistsError`."""
        folder = self.folder(self._shelf(entity))
        try:
            folder.create(self._name(entity.id), entity)
        except StorageError:
            self._drop_own_directory(folder)
            raise
        return entity

    def find(self, entity_id: str) -> E | None:
        """The entity, on whichever shelf it lies."""
        # Twice: it may have moved from a shelf not yet looked at to one already looked at.
        located = self._locate(entity_id) or self._locate(entity_id)
        return located[1] if located else None

    def get(self, entity_id: str) -> E:
        """As `find`; raises the collection's own error for an unknown id."""
        entity = self.find(entity_id)
        if entity is None:
            raise self._missing(entity_id)
        return entity

    def update(self, entity_id: str, change: Callable[[E], E]) -> E:
        """Applies a pure change under the entity's lock; returns the new value. What `change` raises changes nothing.

        An entity whose shelf changes is rewritten where it lies and then moved: its content is the truth, the shelf
        only follows.
        """
        with self.files.locks.held(self._lock(entity_id)):
            located = self._locate(entity_id)
            if located is None:
                raise self._missing(entity_id)
            folder, entity = located
            changed = change(entity)
            if changed != entity:
                folder.replace(self._name(entity_id), changed)
            self._reshelve(entity_id, folder, changed)
            return changed

    def all(self, shelf: str | None = None) -> list[E]:
        """Every readable entity, of one shelf or of all. A corrupt file never empties the list."""
        return [*self.open(shelf), *self.closed(shelf)]

    def open(self, shelf: str | None = None) -> list[E]:
        """The entities that are not closed; the others are not even parsed."""
        return [entity for folder in self._chosen(shelf) for _, entity in folder.open_entities()]

    def closed(
        self,
        shelf: str | None = None,
        *,
        label: str | None = None,
        group: str | None = None,
        offset: int = 0,
        limit: int | None = None,
        since: datetime | None = None,
    ) -> list[E]:
        """Closed entities, the most recently changed first; parsed anew, so ask for few of many: `limit` of them, after
        the first `offset`. With `since`, only those changed since then, the least recently changed first; with `group`,
        only those that belong to it."""
        names = [
            item for item in self._closed_names(shelf, label, group) if since is None or item[0] >= since.timestamp()
        ]
        names.sort(key=itemgetter(0), reverse=since is None)
        return [entity for _, folder, name in names[offset:][:limit] if (entity := folder.load(name)) is not None]

    def count_closed(self, since: datetime, until: datetime) -> int:
        """How many closed entities were last changed in this period."""
        return sum(since.timestamp() <= changed <= until.timestamp() for changed, _, _ in self._closed_names())

    def closed_counts(self, shelf: str | None = None) -> Counter[str]:
        """How many entities were closed by what."""
        return sum((folder.closed_counts() for folder in self._chosen(shelf)), Counter[str]())

    def group_counts(self) -> Counter[tuple[str, str]]:
        """How many closed entities belong to what, by what they were closed by."""
        return sum((folder.group_counts() for folder in self._chosen(None)), Counter[tuple[str, str]]())

    def remove(self, entity: E) -> None:
        """Takes back what was added a moment ago and not acknowledged to anybody."""
        folder = self.folder(self._shelf(entity))
        (folder.path / self._name(entity.id)).unlink(missing_ok=True)
        self._drop_own_directory(folder)

    def shelves(self) -> list[str]:
        with storage_errors(self.base, FileNotFoundError), suppress(FileNotFoundError):
            return sorted(item.name for item in self.base.iterdir() if is_own_directory(item) and _is_plain(item.name))
        return []

    def folder(self, shelf: str) -> Directory[E]:
        """Raises `InvalidId` for a shelf that is no plain name: a hand-written file may name anything as its agent."""
        if shelf not in self._folders:
            if not _is_plain(shelf):
                raise InvalidId(value=repr(shelf)[:80])
            alone = self._file_name is not None
            self._folders[shelf] = Directory(
                self.files,
                self.base / shelf,
                self._entity_type,
                closed=self._closed,
                grouped=self._grouped,
                named=re.compile(re.escape(self._file_name)) if self._file_name is not None else None,
                place={self._shelf_field: shelf} if self._shelf_field is not None else None,
                identity=lambda stem: shelf if alone else stem,
            )
        return self._folders[shelf]

    def _chosen(self, shelf: str | None) -> list[Directory[E]]:
        return [self.folder(name) for name in (self.shelves() if shelf is None else [shelf])]

    def _closed_names(
        self, shelf: str | None = None, label: str | None = None, group: str | None = None
    ) -> Iterator[tuple[float, Directory[E], str]]:
        """When each was last changed (seconds since the epoch), and where it lies."""
        for folder in self._chosen(shelf):
            for name, entry in folder.entries().items():
                if entry.closed and label in (None, entry.closed) and group in (None, entry.group):
                    yield entry.signature[0] / 1e9, folder, name

    def _locate(self, entity_id: str) -> tuple[Directory[E], E] | None:
        if not _is_plain(entity_id):
            return None  # a hand-written file may name anything as an id
        for shelf in self.shelves() if self._file_name is None else [entity_id]:
            entity = self.folder(shelf).load(self._name(entity_id))
            if entity is not None:
                return self.folder(shelf), entity
        return None

    def _drop_own_directory(self, folder: Directory[E]) -> None:
        """An entity that could not be made leaves no directory of its own, unless something else lies in it."""
        if self._file_name is not None:
            with suppress(OSError):
                folder.path.rmdir()

    def _reshelve(self, entity_id: str, folder: Directory[E], entity: E) -> None:
        shelf = self._shelf(entity)
        target = self.folder(shelf) if _is_plain(shelf) else folder  # else it stays where it lies
        if target.path != folder.path:
            self.files.move(folder.path / self._name(entity_id), target.path / self._name(entity_id))

    def _name(self, entity_id: str) -> str:
        return self._file_name or f"{entity_id}.md"

    def _lock(self, entity_id: str) -> str:
        """Lock files are striped, so that there is a bounded number of them. Never hold two of one collection."""
        return f"{self.base.name}-{zlib.crc32(entity_id.encode()) % LOCK_STRIPES:02x}"


def _is_plain(shelf: str) -> bool:
    return _PLAIN.fullmatch(shelf) is not None
