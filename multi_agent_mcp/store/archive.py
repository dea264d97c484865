"""The archive of a directory, `archive/{YYYY-MM}/`: finished files move there, so that the directory stays small
(docs/format.md, Archives).

The index of each month is saved as a file in `.index/`, so that no process has to examine every archived file. It is
derived data, and used only while the month's directory is unchanged.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Generic, TypeVar

from multi_agent_mcp.domain.entity import Entity
from multi_agent_mcp.errors import StorageError
from multi_agent_mcp.store.directory import Directory
from multi_agent_mcp.store.directory_index import Entry, Index
from multi_agent_mcp.system.file_status import is_own_directory, is_settled, modified_at
from multi_agent_mcp.system.writing import storage_errors

E = TypeVar("E", bound=Entity)

HOT_MAX = 200
"""The most finished files that stay in their directory; beyond that, all but the newest `HOT_KEPT` are archived."""
HOT_KEPT = 100
ARCHIVE, INDEXES = "archive", ".index"


def month_of(moment: datetime) -> str:
    return f"{moment:%Y-%m}"


D = TypeVar("D", bound=Directory[Any])


class Archive(Generic[D]):
    """The archive of one directory, by month. `month` makes the `Directory` of a month from its path."""

    def __init__(self, path: Path, month: Callable[[Path], D]) -> None:
        self.path = path / ARCHIVE
        self._month = month
        self._listed_at = -1
        self._months: dict[str, D] = {}

    def months(self) -> list[D]:
        """Returns the months' directories, newest first."""
        mtime, looked_at = modified_at(self.path), time.time_ns()
        if mtime != self._listed_at:
            names = self._names()
            self._months = {name: self._months.get(name) or self._month(self.path / name) for name in names}
            self._listed_at = mtime if is_settled(mtime, looked_at) else -1
        return list(self._months.values())

    def _names(self) -> list[str]:
        if not is_own_directory(self.path):
            return []
        with storage_errors(self.path):
            return sorted((item.name for item in self.path.iterdir() if is_own_directory(item)), reverse=True)


class ArchivedFiles(Directory[E]):
    """One month of finished entities, with its index saved in a file: the first line holds the modification time of the
    directory and the counts, the second an entry for each file."""

    def index(self, *, fresh: bool = False) -> Index[E]:
        with self._mutex:
            if not self._trusted and not self._index.entries:
                self._restore()
            known = self._index
            found = super().index(fresh=fresh)
            if found is not known and self._trusted:
                self._keep()
            return found

    def expect(self, moved: Mapping[str, Entry[E]]) -> None:
        """Adds the entries of files that were just moved here, so that they are not read again while unchanged."""
        with self._mutex:
            if not self._index.entries:
                self._restore()
            known = {name: entry for name, entry in moved.items() if entry.closed}
            self._index, self._watch = self._index.changed(known), None
            self._trusted = False

    def closed_counts(self) -> Counter[str]:
        with self._mutex:
            if not self._trusted and (kept := self._kept()) is not None and kept[0]["mtime"] == modified_at(self.path):
                return Counter(kept[0]["counts"])
            return super().closed_counts()

    @property
    def _index_path(self) -> Path:
        base = self.files.base
        return base / INDEXES / f"{self.path.relative_to(base)}.json"

    def _kept(self) -> tuple[dict[str, Any], bytes] | None:
        try:
            first, _, rest = (self.files.read(self._index_path) or b"").partition(b"\n")
            head = json.loads(first)
            return (head, rest) if isinstance(head["mtime"], int) and isinstance(head["counts"], dict) else None
        except (StorageError, ValueError, LookupError, TypeError, RecursionError):
            return None

    def _restore(self) -> None:
        """Loads the saved index. A wrong one does no harm: an entry is used only for a file with its signature."""
        try:
            head, rows = self._kept() or ({}, b"")
            index: dict[str, Entry[E]] = {
                name: Entry((int(mtime), int(size), int(inode)), None, str(closed), str(group))
                for name, (mtime, size, inode, closed, group) in json.loads(rows).items()
                if "/" not in name
            }
        except (ValueError, TypeError, AttributeError, RecursionError):
            return
        self._index, self._seen_mtime, self._trusted = Index(index, self._order), head["mtime"], True

    def _keep(self) -> None:
        rows = {name: [*entry.signature, entry.closed, entry.group] for name, entry in self._index.entries.items()}
        head = {"mtime": self._seen_mtime, "counts": self._index.closed_counts}
        text = f"{json.dumps(head)}\n{json.dumps(rows, separators=(',', ':'))}\n"
        try:
            self.files.replace(self._index_path, text.encode(), durable=False)
        except StorageError:
            return  # the disk is full or read-only: the next reader examines the files, too
