"""Reads the lines that another program has appended to a file since the last time."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

MARK_BYTES = 512


@dataclass(frozen=True)
class Place:
    """Where reading stopped: in which file, behind which byte, and a digest of the file's first bytes and of those
    before it."""

    inode: int = 0
    offset: int = 0
    mark: str = ""


BEGINNING = Place()


class GrowingFile:
    """One reading of a file, from `place` on. A file that has been replaced, shortened or written anew is read from its
    beginning; a last line without its end is left for the next reading. After `lines`, `place` is where it stopped.
    Raises `OSError`."""

    def __init__(self, path: Path, place: Place) -> None:
        self.path = path
        self.place = place

    def may_have_grown(self) -> bool:
        """Whether there is something to read; one stat(2)."""
        status = self.path.stat()
        return status.st_ino != self.place.inode or status.st_size != self.place.offset

    def lines(self) -> Iterator[bytes]:
        """Yields the complete lines since `place`."""
        descriptor = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                return
            start = self._start(descriptor, status)
            file.seek(start)
            offset = start
            for line in file:
                if not line.endswith(b"\n"):
                    break
                offset += len(line)
                yield line
            self.place = Place(status.st_ino, offset, _mark(descriptor, offset))

    def _start(self, descriptor: int, status: os.stat_result) -> int:
        known = self.place
        is_same = status.st_ino == known.inode and status.st_size >= known.offset
        return known.offset if is_same and _mark(descriptor, known.offset) == known.mark else 0


def _mark(descriptor: int, offset: int) -> str:
    size = min(offset, MARK_BYTES)
    edges = os.pread(descriptor, size, 0) + os.pread(descriptor, size, offset - size)
    return blake2b(edges, digest_size=16).hexdigest()
