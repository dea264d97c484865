"""The archive of a directory, `archive/{YYYY-MM}/`: finished files move there, so that the directory stays small
(docs/format.md, Archives).

The index of each month is saved as a file in `.index/`, so that no process has to examine every archived file. It is
derived data, and used only while the month's directory is unchanged.
"""

from __future__ import annotations

import json
import mmap
import os
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from multi_agent_mcp.domain.entity import Entity
from multi_agent_mcp.domain.ids import id8
from multi_agent_mcp.errors import StorageError
from multi_agent_mcp.store.directory import Directory
from multi_agent_mcp.store.index import Entry, Index
from multi_agent_mcp.system.file_status import careful, is_own_directory, is_settled, modified_at
from multi_agent_mcp.system.files import storage_errors

# The file names in one month of an inbox's archive, found by the first eight digits of an id, which they contain.
#
# They are saved in a file in `.index/`, sorted by these digits and once more by name. The file is derived data, and
# used only while the month's directory is unchanged. A search is binary: it reads a few lines of however many there
# are.

E = TypeVar("E", bound=Entity)

_OURS = r"[0-9]{8}_[0-9]{6}_[0-9a-f]{8}(?:\.[0-9]+)?\.md"
OUR_NAME = re.compile(_OURS)
_OUR_NAMES = re.compile(rf"(?:{_OURS}/)*+(?:{_OURS})?")
STAMP_LENGTH = 15
DIGITS = slice(STAMP_LENGTH + 1, STAMP_LENGTH + 9)
STRANGERS = "~"
"""The key of names that are not of our form; it sorts after all digits and letters."""
_ARCHIVED_NAME = re.compile(r"\d{8}_\d{6}_(?P<key>[A-Za-z0-9]{1,8})(\.\d+)?\.md")
"""The name of an archived file, with the beginning of its id, be it one of ours or one written by hand."""


class ArchivedNames(Directory[E], Generic[E]):
    """One month of an inbox's archive. A name of our form is taken to contain its file's id, without reading it."""

    def named_for(self, entity_id: str, *, strangers: bool = False) -> list[str]:
        """Returns the names that we would give a file with this id; with `strangers`, also all names that are not of
        our form."""
        return self._keyed(id8(entity_id), *([STRANGERS] if strangers else []))

    def newest_first(self, last: str | None = None) -> Iterator[str]:
        """Yields the names in descending order, without those of a later second than `last` (`YYYYMMDD_HHMMSS`)."""
        mtime = modified_at(self.path)
        with suppress(OSError, ValueError), self._opened() as data:
            head = _head_of(data)
            if head.mtime == mtime:
                yield from (name for name in _backwards(data, head.by_name, last) if "/" not in name)
                return
        yield from sorted((name for name in self.names() if last is None or name[:STAMP_LENGTH] <= last), reverse=True)

    def _keyed(self, *keys: str) -> list[str]:
        mtime, began = modified_at(self.path), time.time_ns()
        if (found := self._kept(keys, mtime)) is None:
            found = sorted(name for name in self._names(mtime, began) if _key(name) in keys)
        return found

    def count(self) -> int:
        """Returns the number of files."""
        mtime, began = modified_at(self.path), time.time_ns()
        head = self._head()
        return head.files if head is not None and head.mtime == mtime else len(self._names(mtime, began))

    def _names(self, mtime: int, began: int) -> list[str]:
        """Lists the directory, and saves the index if it certainly did not change between `mtime` and the listing."""
        names = file_names(self.path)
        if mtime and self.is_unchanged(mtime, began):
            self._keep(names, mtime)
        return names

    @property
    def _index_path(self) -> Path:
        base = self.files.base
        return base / INDEXES / f"{self.path.relative_to(base)}.names"

    def _kept(self, keys: Iterable[str], mtime: int) -> list[str] | None:
        """Returns the names with these keys by the saved index; None if there is none or it is out of date."""
        with suppress(OSError, ValueError), self._opened() as data:
            head = _head_of(data)
            if head.mtime == mtime:
                found = (name for key in keys for name in _search(data, head, key.encode()))
                return [name for name in found if "/" not in name]
        return None

    def _head(self) -> _Head | None:
        with suppress(OSError, ValueError), self._opened() as data:
            return _head_of(data)
        return None

    @contextmanager
    def _opened(self) -> Iterator[mmap.mmap]:
        descriptor = careful(str(self._index_path), os.O_RDONLY)
        try:
            with mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ) as data:
                yield data
        finally:
            os.close(descriptor)

    def _keep(self, names: list[str], mtime: int) -> None:
        lines = sorted(f"{_key(name)} {name}\n" for name in names)
        if any(line.count("\n") > 1 for line in lines):
            return
        with suppress(StorageError, UnicodeEncodeError):  # without it the next reader lists the directory, too
            keyed = "".join(lines).encode()
            head = f"{mtime} {len(names)} {len(keyed)}\n".encode()
            data = head + keyed + "".join(f"{name}\n" for name in sorted(names)).encode()
            self.files.replace(self._index_path, data, durable=False)


class _Head(NamedTuple):
    """The directory's modification time, the number of its files, and the offset where each sorted part begins."""

    mtime: int
    files: int
    by_digits: int
    by_name: int


def _head_of(data: mmap.mmap) -> _Head:
    """Raises ValueError."""
    mtime, count, length = map(int, data.readline().split())
    return _Head(mtime, count, data.tell(), data.tell() + length)


def _key(name: str) -> str:
    found = _ARCHIVED_NAME.fullmatch(name)
    return STRANGERS if found is None else found["key"]


def _search(data: mmap.mmap, head: _Head, key: bytes) -> Iterator[str]:
    """Yields the names of the lines `{key} {name}` with this key."""
    data.seek(_first(data, head.by_digits, head.by_name, lambda line: data[line : line + len(key)] >= key))
    while data.tell() < head.by_name and (found := data.readline()).startswith(key + b" "):
        yield found[len(key) + 1 : -1].decode()


def _backwards(data: mmap.mmap, begin: int, last: str | None) -> Iterator[str]:
    """Yields the lines after offset `begin`, last first, without those of a later second than `last`."""
    end = len(data)
    if last is not None:
        latest = last.encode()
        end = _first(data, begin, end, lambda line: data[line : line + STAMP_LENGTH] > latest)
    while end > begin:
        line = data.rfind(b"\n", begin - 1, end - 1) + 1
        yield data[line : end - 1].decode(errors="replace")  # a damaged line names no existing file
        end = line


def _first(data: mmap.mmap, begin: int, end: int, holds: Callable[[int], bool]) -> int:
    """Returns the offset of the first line for which `holds` is true, by bisection; it is true for all lines after."""
    low, high = begin, end
    while low < high:
        line = data.rfind(b"\n", begin - 1, (low + high) // 2) + 1
        if holds(line):
            high = line
        else:
            low = data.find(b"\n", line) + 1
    return low


def file_names(path: Path) -> list[str]:
    """Returns the names of the regular files `*.md` in a directory, without dot-files; [] if it does not exist."""
    try:
        with storage_errors(path, FileNotFoundError), os.scandir(path) as found:
            return [
                item.name
                for item in found
                if item.name.endswith(".md") and not item.name.startswith(".") and item.is_file(follow_symlinks=False)
            ]
    except FileNotFoundError:
        return []


def are_ours(names: Iterable[str]) -> bool:
    """Returns whether all names are of our form; four times as fast as matching each."""
    return _OUR_NAMES.fullmatch("/".join(names)) is not None


def fitting(names: Iterable[str], entity_id: str) -> list[str]:
    """Returns those names that we would give a file with this id: `…_{id8}.md`, or `…_{id8}.1.md` if it was taken."""
    digits = f"_{id8(entity_id)}."
    return [name for name in names if name.startswith(digits, STAMP_LENGTH)]


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
