"""The file names in one month of an inbox's archive, found by the first eight digits of an id, which they contain.

They are saved in a file in `.index/`, sorted by these digits and once more by name. The file is derived data, and used
only while the month's directory is unchanged. A search is binary: it reads a few lines of however many there are.
"""

from __future__ import annotations

import mmap
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from multi_agent_mcp.domain.entity import Entity
from multi_agent_mcp.domain.ids import id8
from multi_agent_mcp.errors import StorageError
from multi_agent_mcp.store.archive import INDEXES
from multi_agent_mcp.store.directory import Directory
from multi_agent_mcp.system.file_status import careful, modified_at
from multi_agent_mcp.system.writing import storage_errors

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
