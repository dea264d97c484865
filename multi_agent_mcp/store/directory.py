"""One directory of entity files, indexed in memory.

The index is trusted as long as the directory's own modification time stays the same; see `file_status.is_settled`.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from multi_agent_mcp.domain.entity import Entity
from multi_agent_mcp.errors import StorageError
from multi_agent_mcp.store.codec.frontmatter import Unreadable
from multi_agent_mcp.store.entity_files import EntityFiles
from multi_agent_mcp.store.files.durable_files import Files
from multi_agent_mcp.store.files.locks import Mutex
from multi_agent_mcp.system.disk import storage_errors
from multi_agent_mcp.system.file_status import Signature, careful, is_settled, modified_at, signature

E = TypeVar("E", bound=Entity)

logger = logging.getLogger(__name__)

PEEK_BYTES = 4096
LOOKED_AT_EACH = 5_000


class Entry(NamedTuple, Generic[E]):
    """What the index knows of a file. `closed` says what closed it (`done`, the time it was read at), "" for an open
    one. `entity` is None for a closed file (read mail, a finished task) that only had its header peeked at, and for one
    that is still being written. `group` is what a closed one belongs to (the task of an execution), "" for nothing."""

    signature: Signature
    entity: E | None
    closed: str
    group: str = ""


class Looks(threading.local):
    """Which directories this thread has looked at within `once`."""

    def __init__(self) -> None:
        self._seen: set[Path] | None = None

    @contextlib.contextmanager
    def once(self) -> Iterator[None]:
        """Within, this thread looks at each directory once. The index of one that was changed a moment ago is not
        trusted: what only reads, but asks it several questions, would look at all of its files for each of them."""
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


class Directory(EntityFiles[E]):
    """The files `*.md` of one directory. Dot-files and other suffixes are not ours.

    `closed` is a pattern (with a group of that name) that, found in a file's header, says the file is done with and
    need not be parsed to be counted out; anything it does not match is parsed. `grouped` likewise (its group is called
    `group`) says what such a file belongs to. `named` narrows the file names that are ours. Of an
    entity the index keeps what `indexed` makes of it.
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
        indexed: Callable[[E], E] = lambda entity: entity,
        looks: Looks | None = None,
        **defaults: Any,
    ) -> None:
        super().__init__(files, path, entity_type, place=place, adopt=adopt, **defaults)
        self._closed = closed
        self._grouped = grouped
        self._named = named
        self._indexed = indexed
        self._looks = looks or Looks()
        self._index: dict[str, Entry[E]] = {}
        self._open: list[tuple[str, E]] = []
        self._ids: dict[tuple[str, Signature], str] = {}
        self._closed_counts: Counter[str] = Counter()
        self._group_counts: Counter[tuple[str, str]] = Counter()
        self.version = 0
        """Counts up whenever a scan found the directory changed."""
        self._seen_mtime = -1
        self._trusted = False
        self._skipped: set[str] = set()
        self._mutex = Mutex("directory")

    def entries(self, *, fresh: bool = False) -> dict[str, Entry[E]]:
        """File name → entry. `fresh` looks at every file even if the directory did not change (edits in place), unless
        there are more than `LOOKED_AT_EACH`: a look at each of 100 000 takes a third of a second."""
        with self._mutex:
            if fresh or self.path not in self._looks:
                mtime = modified_at(self.path)
                if (fresh and len(self._index) <= LOOKED_AT_EACH) or not self._trusted or mtime != self._seen_mtime:
                    self._scan(mtime)
                self._looks.add(self.path)
            return self._index

    def open_entities(self, *, fresh: bool = False) -> list[tuple[str, E]]:
        """What is not closed: unread mail, unfinished tasks. Costs nothing for the closed ones."""
        with self._mutex:
            self.entries(fresh=fresh)
            return self._open

    def ids(self, names: Iterable[str], *, fresh: bool = False) -> dict[str, str]:
        """File name → id, of those of these files that have one. Those of closed files, which the index does not know,
        are read once and remembered."""
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

    def names(self) -> list[str]:
        """The names of the files, in no order; nothing else of them is looked at."""
        with storage_errors(self.path, FileNotFoundError), contextlib.suppress(FileNotFoundError):
            return [name for name in os.listdir(self.path) if self._is_ours(name)]  # noqa: PTH208 - only names
        return []

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

    def skipped(self) -> list[str]:
        """Files that the disk would not give out just now (EIO)."""
        with self._mutex:
            self.entries(fresh=True)
            return sorted(self._skipped)

    def is_closed(self, name: str) -> bool:
        """Whether a file's header closes it at this moment."""
        return self._closed_by(beginning(f"{self.path}/{name}")) is not None

    def is_unchanged(self, mtime: int, looked_at: int) -> bool:
        """Whether what was read from `looked_at` on, when `mtime` was the modification time, may be remembered."""
        return is_settled(mtime, looked_at) and modified_at(self.path) == mtime

    def _scan(self, mtime: int) -> None:
        began = time.time_ns()
        self._skipped.clear()
        index: dict[str, Entry[E]] = {}
        for name, found in self._listing():
            known = self._index.get(name)
            if known is not None and known.signature == found:
                index[name] = known
            elif (entry := self._entry(name, found)) is not None:
                index[name] = entry
        self.version += index != self._index
        self._remember(index, mtime)
        self._trusted = not self._skipped and self.is_unchanged(mtime, began)

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
                    if self._is_ours(name := item.name) and item.is_file(follow_symlinks=False):
                        try:
                            yield name, signature(item.stat(follow_symlinks=False))
                        except FileNotFoundError:
                            continue
        except FileNotFoundError:
            return  # the directory is made by the first file put into it

    def _is_ours(self, name: str) -> bool:
        if not name.endswith(".md") or name.startswith("."):
            return False
        return self._named is None or self._named.fullmatch(name) is not None

    def _entry(self, name: str, found: Signature) -> Entry[E] | None:
        data = beginning(f"{self.path}/{name}")
        if (closed := self._closed_by(data)) is not None:
            return Entry(found, None, *closed)
        if len(data) == found[1]:  # all of it
            with contextlib.suppress(Unreadable):
                return Entry(found, self._indexed(self.decode(data, name[:-3], found[0] / 1e9)), "")
        return self._loaded(name, found)

    def _loaded(self, name: str, found: Signature) -> Entry[E] | None:
        try:
            entity = self.load(name)
        except StorageError as error:
            if not _is_bad_sector(error):
                raise
            # It must not hide the others, and may be readable again: it stays where it is and is tried at every look.
            logger.warning("%s is passed over: %s", self.path / name, error)
            self._skipped.add(name)
            return None
        if entity is None:
            return Entry(found, None, "") if (self.path / name).exists() else None
        return Entry(found, self._indexed(entity), "")

    def _closed_by(self, data: bytes) -> tuple[str, str] | None:
        """What closed a file that begins so, and what it belongs to; None for one that is open as far as its header
        tells."""
        if self._closed is None or (end := data.find(b"\n---")) < 0:
            return None
        found = self._closed.search(data, 0, end + 1)
        if found is None:
            return None
        group = self._grouped.search(data, 0, end + 1) if self._grouped is not None else None
        return found["closed"].decode(errors="replace"), group["group"].decode(errors="replace") if group else ""


def beginning(path: str) -> bytes:
    """A file as far as its header reaches, and a little more; nothing of one that cannot be read."""
    try:
        descriptor = careful(path, os.O_RDONLY)
        try:
            data = os.read(descriptor, PEEK_BYTES)
            while b"\n---" not in data[-PEEK_BYTES - 4 :] and (more := os.read(descriptor, PEEK_BYTES)):
                data += more
        finally:
            os.close(descriptor)
    except OSError:
        return b""
    return data


def _is_bad_sector(error: StorageError) -> bool:
    """Whether the disk failed for this one file; what fails for any (no descriptors, no memory) is no reason to count
    it out."""
    return isinstance(error.__cause__, OSError) and error.__cause__.errno == errno.EIO
