"""The names in a month of an inbox's archive, found by the eight digits of an id that they carry.

They are kept sorted by these digits in a file of `.index/`: derived, and trusted as far as the month's directory has
not changed since. A search looks at a few of its lines, however many there are.
"""

from __future__ import annotations

import mmap
import os
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Generic, TypeVar

from multi_agent_mcp.domain.entity import Entity
from multi_agent_mcp.domain.ids import id8
from multi_agent_mcp.errors import StorageError
from multi_agent_mcp.store.archive import INDEXES
from multi_agent_mcp.store.directory import Directory
from multi_agent_mcp.system.disk import storage_errors
from multi_agent_mcp.system.file_status import careful, modified_at

E = TypeVar("E", bound=Entity)

OUR_NAME = re.compile(r"\d{8}_\d{6}_[0-9a-f]{8}(\.\d+)?\.md")
STAMP_LENGTH = 15
DIGITS = slice(STAMP_LENGTH + 1, STAMP_LENGTH + 9)
STRANGERS = "~"
"""Sorted behind all digits and letters: what the names of another form are found by."""
_ARCHIVED_NAME = re.compile(r"\d{8}_\d{6}_(?P<key>[A-Za-z0-9]{1,8})(\.\d+)?\.md")
"""What an archived file is called: by an id of ours, or by one that somebody has written."""


class ArchivedNames(Directory[E], Generic[E]):
    """A month of an archive whose files have names of our form, which are believed here."""

    def named_for(self, entity_id: str) -> list[str]:
        """The names under which we would have put this id."""
        return self._keyed(id8(entity_id))

    def strangers(self) -> list[str]:
        """The names of another form, that somebody else has put here."""
        return self._keyed(STRANGERS)

    def _keyed(self, key: str) -> list[str]:
        mtime, began = modified_at(self.path), time.time_ns()
        if (found := self._kept(key, mtime)) is None:
            found = sorted(name for name in self._names(mtime, began) if _key(name) == key)
        return found

    def count(self) -> int:
        """How many files there are."""
        mtime, began = modified_at(self.path), time.time_ns()
        head = self._head()
        return head[1] if head is not None and head[0] == mtime else len(self._names(mtime, began))

    def _names(self, mtime: int, began: int) -> list[str]:
        """What the directory holds, for which an index is kept, if it surely is what has this modification time."""
        names = file_names(self.path)
        if mtime and self.is_unchanged(mtime, began):
            self._keep(names, mtime)
        return names

    @property
    def _index_path(self) -> Path:
        base = self.files.base
        return base / INDEXES / f"{self.path.relative_to(base)}.names"

    def _kept(self, key: str, mtime: int) -> list[str] | None:
        """None when there is no index that can be trusted."""
        with suppress(OSError, ValueError), self._opened() as data:
            if _head_of(data)[0] == mtime:
                return [name for name in _search(data, key.encode()) if "/" not in name]
        return None

    def _head(self) -> tuple[int, int] | None:
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
        with suppress(StorageError, UnicodeEncodeError):  # else the next reader lists the directory, too
            data = f"{mtime} {len(names)}\n{''.join(lines)}".encode()
            self.files.replace(self._index_path, data, durable=False)


def _head_of(data: mmap.mmap) -> tuple[int, int]:
    """The directory's modification time and how many files it had. Raises ValueError."""
    mtime, count = data.readline().split()
    return int(mtime), int(count)


def _key(name: str) -> str:
    found = _ARCHIVED_NAME.fullmatch(name)
    return STRANGERS if found is None else found["key"]


def _search(data: mmap.mmap, key: bytes) -> Iterator[str]:
    """The names behind this key, from sorted lines `{key} {name}`."""
    low, high = data.tell(), len(data)
    while low < high:
        line = data.rfind(b"\n", 0, (low + high) // 2) + 1
        if data[line : line + len(key)] < key:
            low = data.find(b"\n", line) + 1
        else:
            high = line
    data.seek(low)
    while (found := data.readline()).startswith(key + b" "):
        yield found[len(key) + 1 : -1].decode()


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
