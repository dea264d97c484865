"""One directory of entity files, with an index in memory.

The index is trusted as long as the directory's own modification time stays the same; see `file_status.is_settled`.
Otherwise all files are examined, or those that inotify(7) names.
"""

from __future__ import annotations

import contextlib
import math
import os
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from multi_agent_mcp.domain.entity import Entity
from multi_agent_mcp.store.files.durable_files import Files
from multi_agent_mcp.store.files.locks import Mutex
from multi_agent_mcp.store.index import Entry, Index, IndexedFiles, Order
from multi_agent_mcp.system.file_status import Signature, is_settled, modified_at, signature
from multi_agent_mcp.system.inotify import Watch

E = TypeVar("E", bound=Entity)

LOOKED_AT_EACH = 5_000
WATCHED_FROM = 1_000
"""The number of files from which on a directory that has changed is watched, where possible (see `Inotify`): the cost
of an update then depends on the number of changes, not of files."""
NEVER = -math.inf
WATCHED_SECONDS = 60
"""The interval after which all files of a watched directory are examined: some changes cause no event there."""


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


class Directory(IndexedFiles[E]):
    """The files `*.md` of one directory. Open entities are sorted by `order`; see `IndexedFiles` for other options."""

    def __init__(
        self,
        files: Files,
        path: Path,
        entity_type: type[E],
        *,
        order: Order[E] = lambda _: None,
        looks: Looks | None = None,
        **options: Any,
    ) -> None:
        super().__init__(files, path, entity_type, **options)
        self._order = order
        self._looks = looks or Looks()
        self._index = Index[E](order=order)
        self._watch: Watch | None = None
        self._seen_whole = NEVER
        self._ids: dict[tuple[str, Signature], str] = {}
        self.version = 0
        """A number that increases whenever the directory was found changed."""
        self._seen_mtime = -1
        self._trusted = False
        self._mutex = Mutex("directory")

    def entries(self, *, fresh: bool = False) -> dict[str, Entry[E]]:
        """Returns the entries by file name. `fresh` examines every file even if the directory is unchanged (edits in
        place), unless there are more than `LOOKED_AT_EACH`, unwatched: examining 100 000 takes a third of a second."""
        return self.index(fresh=fresh).entries

    def open_entities(self, *, fresh: bool = False) -> list[tuple[str, E]]:
        """Returns names and entities of the open files: unread mail, unfinished tasks. Closed ones cost nothing."""
        return self.index(fresh=fresh).open

    def index(self, *, fresh: bool = False) -> Index[E]:
        """Returns the index, brought up to date; `fresh` as in `entries`."""
        with self._mutex:
            if fresh or self.path not in self._looks:
                self._look(fresh=fresh)
                self._looks.add(self.path)
            return self._index

    def ids(self, names: Iterable[str], *, fresh: bool = False) -> dict[str, str]:
        """Returns the ids of these files, by file name. Those of closed files, which are not in the index, are read
        once and remembered."""
        with self._mutex:
            entries = self.entries(fresh=fresh)
            self._ids = {key: found for key, found in self._ids.items() if key[0] in entries}
            return {name: found for name in names if (found := self._id(name, entries.get(name))) is not None}

    def _id(self, name: str, entry: Entry[E] | None) -> str | None:
        if entry is None or (key := (name, entry.signature)) in self._ids:
            return None if entry is None else self._ids[key]
        entity: Any = entry.entity or self.load(name)
        if entity is not None and entry.entity is None:
            self._ids[key] = entity.id
        return None if entity is None else str(entity.id)

    def closed_counts(self) -> Counter[str]:
        """Returns the number of closed files by label (`Entry.closed`)."""
        return self.index().closed_counts

    def group_counts(self) -> Counter[tuple[str, str]]:
        """Returns the number of closed files that belong to a group, by group and label."""
        return self.index().group_counts

    def skipped(self) -> list[str]:
        """Returns the names of the files that the disk cannot read at the moment (EIO)."""
        with self._mutex:
            self.entries(fresh=True)
            return sorted(self.skipped_names)

    def is_unchanged(self, mtime: int, looked_at: int) -> bool:
        """Returns whether data read from time `looked_at` on, when the modification time was `mtime`, may be cached."""
        return is_settled(mtime, looked_at) and modified_at(self.path) == mtime

    def _look(self, *, fresh: bool) -> None:
        began, mtime, touched = time.time_ns(), modified_at(self.path), self._touched()
        each = fresh and len(self._index.entries) <= LOOKED_AT_EACH
        if touched is None and self._trusted and mtime == self._seen_mtime and not each:
            return
        whole_at, self._seen_whole, self._trusted = self._seen_whole, NEVER, False  # as long as this may fail
        if touched is None:
            self._scan()
            whole_at = time.monotonic()
        else:
            self._look_at(touched | self.skipped_names)
        self._seen_whole, self._seen_mtime = whole_at, mtime
        self._trusted = not self.skipped_names and self.is_unchanged(mtime, began)

    def _touched(self) -> set[str] | None:
        """Returns the names that the watch reports as changed; None if there is no watch or its report does not
        suffice: then the directory's modification time decides whether all files are examined."""
        if self._watch is None:
            return None
        if time.monotonic() - self._seen_whole > WATCHED_SECONDS:
            touched = None
        elif (touched := self._watch.changed()) is None:
            self._watch = None
        self._trusted = self._trusted and touched is not None
        return touched

    def _look_at(self, touched: set[str]) -> None:
        """Updates the index for the files with these names."""
        self.skipped_names.clear()
        found = {name: self.entry(name) for name in touched if self.is_ours(name)}
        if any(self._index.entries.get(name) != entry for name, entry in found.items()):
            self._index = self._index.changed(found)
            self.version += 1

    def _scan(self) -> None:
        self.skipped_names.clear()
        if self._watch is None and len(self._index.entries) >= WATCHED_FROM:
            self._watch = self.files.inotify.watch(self.path)
        entries: dict[str, Entry[E]] = {}
        for item, place in self.listing():
            known = self._index.entries.get(item.name)
            if known is not None and known.signature == _signature(item):
                entries[item.name] = known
            elif (entry := self.entry(item.name, place)) is not None:
                entries[item.name] = entry
        self.version += entries != self._index.entries
        self._index = Index(entries, self._order)


def _signature(item: os.DirEntry[str]) -> Signature | None:
    with contextlib.suppress(FileNotFoundError):
        return signature(item.stat(follow_symlinks=False))
    return None
