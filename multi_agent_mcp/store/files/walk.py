"""A walk through a session's directory for `doctor` and `prune`, one file at a time, however many there are."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from multi_agent_mcp.system.file_status import in_place
from multi_agent_mcp.system.writing import DIRECTORY_MODE, FILE_MODE, storage_errors


class Node(NamedTuple):
    """A file or directory. `name` is its path in the session directory (`.` for that directory itself); `place` is the
    descriptor of its directory, valid until the next node is requested."""

    name: str
    status: os.stat_result
    place: int | None = None

    @property
    def last(self) -> str:
        """The name within `place`."""
        return self.name.rpartition("/")[2]

    @property
    def is_directory(self) -> bool:
        return stat.S_ISDIR(self.status.st_mode)

    @property
    def is_file(self) -> bool:
        return stat.S_ISREG(self.status.st_mode)

    @property
    def is_link(self) -> bool:
        return stat.S_ISLNK(self.status.st_mode)

    @property
    def mode(self) -> int:
        return stat.S_IMODE(self.status.st_mode)

    @property
    def wanted_mode(self) -> int:
        return DIRECTORY_MODE if self.is_directory else FILE_MODE

    @property
    def disk_bytes(self) -> int:
        """The bytes used on disk; `st_blocks` of stat(2) counts 512 bytes each."""
        return self.status.st_blocks * 512


def walk(base: Path) -> Iterator[Node]:
    """Yields the session directory and everything below it, the last directory of each level first, without following
    symbolic links. A file may be deleted once it was yielded. Raises `StorageError`."""
    yield Node(".", base.lstat())
    pending = [""]
    while pending:
        place = pending.pop()
        inside = []
        for node in _nodes(base, place):
            if node.is_directory:
                inside.append(f"{node.name}/")
            yield node
        pending += sorted(inside)


def _nodes(base: Path, place: str) -> Iterator[Node]:
    """Yields the entries of one directory, unordered; none if it is gone or unreadable, which its mode shows."""
    directory = f"{base}/{place}"
    missing = FileNotFoundError, PermissionError
    try:
        with storage_errors(directory, *missing), in_place(directory) as descriptor, os.scandir(descriptor) as found:
            for item in found:
                try:
                    status = item.stat(follow_symlinks=False)
                except FileNotFoundError:  # moved or deleted meanwhile
                    continue
                yield Node(place + item.name, status, descriptor)
    except missing:
        return
