"""One directory of entity files, indexed in memory.

The index is trusted as long as the directory's own modification time stays the same; see `file_status.is_settled`.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import re
import stat
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from multi_agent_mcp.domain.entity import Entity
from multi_agent_mcp.errors import StorageError
from multi_agent_mcp.store.entity_files import EntityFiles
from multi_agent_mcp.store.files.durable_files import Files
from multi_agent_mcp.store.files.locks import Mutex
from multi_agent_mcp.system.disk import storage_errors
from multi_agent_mcp.system.file_status import Signature, careful, is_settled, modified_at, signature

E = TypeVar("E", bound=Entity)

logger = logging.getLogger(__name__)

PEEK_BYTES = 4096


class Entry(NamedTuple, Generic[E]):
    """What the index knows of a file. `closed` says what closed it (`done`, the time it was read at), "" for an open
    one. `entity` is None for a closed file (read mail, a finished task) that only had its header peeked at, and for one
    that is still being written. `group` is what a closed one belongs to (the task of an execution), "" for nothing."""

    signature: Signature
    entity: E | None
    closed: str
    group: str = ""


class Directory(EntityFiles[E]):
    """The files `*.md` of one directory. Dot-files and other suffixes are not ours.

    `closed` is a pattern (with a group of that name) that, found in a file's header, says the file is done with and
    need not be parsed to be counted out; anything it does not match is parsed. `grouped` likewise (its group is called
    `group`) says what such a file belongs to. `named` narrows the file names that are ours.
    """

    def __init__(
        self,
        files: Files,
        path: Path,
        entity_type: type[E],
        *,
        closed: re.Pattern[bytes] | None = None,
        grouped: re.Pattern[bytes] | None = None,
        named: re.Pattern[str] | None = None,
        place: Mapping[str, str] | None = None,
        adopt: Callable[[E, str], E] = lambda entity, _: entity,
        **defaults: Any,
    ) -> None:
        super().__init__(files, path, entity_type, place=place, adopt=adopt, **defaults)
        self._closed = closed
        self._grouped = grouped
        self._named = named
        self._index: dict[str, Entry[E]] = {}
        self._open: list[tuple[str, E]] = []
        self._ids: dict[tuple[str, Signature], str] = {}
        self._closed_counts: Counter[str] = Counter()
        self._group_counts: Counter[tuple[str, str]] = Counter()
        self.version = 0
        """Counts up whenever a scan found the directory changed."""
        self._seen_mtime = -1
        self._trusted = False
        self._passed_over: set[str] = set()
        self._mutex = Mutex("directory")

    def entries(self, *, fresh: bool = False) -> dict[str, Entry[E]]:
        """File name → entry. `fresh` looks at every file even if the directory did not change (edits in place)."""
        with self._mutex:
            mtime = modified_at(self.path)
            if fresh or not self._trusted or mtime != self._seen_mtime:
                self._scan(mtime)
            return self._index

    def open_entities(self, *, fresh: bool = False) -> list[tuple[str, E]]:
        """What is not closed: unread mail, unfinished tasks. Costs nothing for the closed ones."""
        with self._mutex:
            self.entries(fresh=fresh)
            return self._open

    def ids(self, *, fresh: bool = False) -> dict[str, str]:
        """File name → id, of entities that have one. Those of closed files, which the index does not know, are read
        once and remembered."""
        with self._mutex:
            known, self._ids = self._ids, {}
            for name, entry in self.entries(fresh=fresh).items():
                key = name, entry.signature
                entity: Any = None if key in known else entry.entity or self.load(name)
                if key in known or entity is not None:
                    self._ids[key] = known.get(key) or entity.id
            return {name: entity_id for (name, _), entity_id in self._ids.items()}

    def each(self) -> Iterator[tuple[str, E]]:
        """Every entity with its file's name, one at a time, in no order; nothing is remembered."""
        return ((name, entity) for name, _ in self._listing() if (entity := self.load(name)) is not None)

    def closed_counts(self) -> Counter[str]:
        """How many files were closed by what."""
        with self._mutex:
            self.entries()
            return self._closed_counts

    def group_counts(self) -> Counter[tuple[str, str]]:
        """The same of those that belong to something: by what they belong to and what closed them."""
        with self._mutex:
            self.entries()
            return self._group_counts

    def passed_over(self) -> list[str]:
        """Files that the disk would not give out just now (EIO)."""
        with self._mutex:
            self.entries(fresh=True)
            return sorted(self._passed_over)

    def is_closed(self, name: str) -> bool:
        """Whether a file's header closes it at this moment."""
        return self._closed is not None and self._peek(name, self._closed) is not None

    def is_unchanged(self, mtime: int, looked_at: int) -> bool:
        """Whether what was read from `looked_at` on, when `mtime` was the modification time, may be remembered."""
        return is_settled(mtime, looked_at) and modified_at(self.path) == mtime

    def _scan(self, mtime: int) -> None:
        began = time.time_ns()
        self._passed_over.clear()
        index: dict[str, Entry[E]] = {}
        for name, found in self._listing():
            known = self._index.get(name)
            if known is not None and known.signature == found:
                index[name] = known
            elif (entry := self._entry(name, found)) is not None:
                index[name] = entry
        self.version += index != self._index
        self._remember(index, mtime)
        self._trusted = not self._passed_over and self.is_unchanged(mtime, began)

    def _remember(self, index: dict[str, Entry[E]], mtime: int) -> None:
        self._index = index
        self._open = [(name, entry.entity) for name, entry in index.items() if entry.entity and not entry.closed]
        self._closed_counts = Counter(entry.closed for entry in index.values() if entry.closed)
        self._group_counts = Counter((entry.group, entry.closed) for entry in index.values() if entry.group)
        self._seen_mtime = mtime

    def _listing(self) -> Iterator[tuple[str, Signature]]:
        self.require_inside()
        try:
            with storage_errors(self.path, FileNotFoundError), os.scandir(self.path) as directory:
                for item in directory:
                    if self._is_ours(item.name):
                        with contextlib.suppress(FileNotFoundError):
                            status = item.stat(follow_symlinks=False)
                            if stat.S_ISREG(status.st_mode):
                                yield item.name, signature(status)
        except FileNotFoundError:
            return  # the directory is made by the first file put into it

    def _is_ours(self, name: str) -> bool:
        if not name.endswith(".md") or name.startswith("."):
            return False
        return self._named is None or self._named.fullmatch(name) is not None

    def _entry(self, name: str, found: Signature) -> Entry[E] | None:
        if self._closed is not None and (closed := self._peek(name, self._closed)):
            return Entry(found, None, *closed)
        try:
            entity = self.load(name)
        except StorageError as error:
            if not _is_bad_sector(error):
                raise
            # It must not hide the others, and may be readable again: it stays where it is and is tried at every look.
            logger.warning("%s is passed over: %s", self.path / name, error)
            self._passed_over.add(name)
            return None
        if entity is None:
            return Entry(found, None, "") if (self.path / name).exists() else None
        return Entry(found, entity, "")

    def _peek(self, name: str, closed: re.Pattern[bytes]) -> tuple[str, str] | None:
        """What closed a file and what it belongs to; None for one that is open as far as its header tells."""
        found = closed.search(header := _header(self.path / name))
        if found is None:
            return None
        group = self._grouped.search(header) if self._grouped is not None else None
        return found["closed"].decode(errors="replace"), group["group"].decode(errors="replace") if group else ""


def _header(path: Path) -> bytes:
    """A file's header as it is written; nothing where there is none, or it cannot be read."""
    try:
        with open(path, "rb", buffering=0, opener=careful) as file:
            data = file.read(PEEK_BYTES)
            while (end := data.find(b"\n---")) < 0 and (more := file.read(PEEK_BYTES)):
                data += more
    except OSError:
        return b""
    return data[:end] if end > 0 else b""


def _is_bad_sector(error: StorageError) -> bool:
    """Whether the disk failed for this one file; what fails for any (no descriptors, no memory) is no reason to count
    it out."""
    return isinstance(error.__cause__, OSError) and error.__cause__.errno == errno.EIO
