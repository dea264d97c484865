"""The status of files and directories (stat(2)), and whether it may be cached.

`hook` imports this, and a host waits for it at every tool call: nothing here takes long to import, pathlib included.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

RACY_NS = 50_000_000

Signature = tuple[int, int, int]


def signature(status: os.stat_result) -> Signature:
    """What tells one content of a file from the next: modification time, size and inode."""
    return status.st_mtime_ns, status.st_size, status.st_ino


def signature_of(path: str | os.PathLike[str]) -> Signature | None:
    """Of the file at this path; None when there is none, or it may not be looked at."""
    try:
        return signature(os.stat(path, follow_symlinks=False))  # noqa: PTH116 - see above
    except OSError:
        return None


def modified_at(path: str | os.PathLike[str]) -> int:
    """When a directory was last changed, in nanoseconds; 0 while there is none. Every atomic change of what is in it
    (link, rename, unlink) moves this, so one stat(2) tells that nothing has happened, however many files there are."""
    try:
        return os.stat(path).st_mtime_ns  # noqa: PTH116 - see above
    except FileNotFoundError:
        return 0


def is_settled(modified: int, looked_at: int) -> bool:
    """Whether what was read from `looked_at` on may be remembered for as long as the modification time stays the same.
    A further change within one tick of the kernel's clock would show the same time (what git calls "racy")."""
    return looked_at - modified > RACY_NS


def careful(path: str, flags: int, place: int | None = None) -> int:
    """An opener for `open`: no link is followed, no pipe waited for. With `place`, the path is one from there."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=place)


@contextmanager
def in_place(directory: str | os.PathLike[str]) -> Iterator[int]:
    """The descriptor of a directory: the way there, a quarter of the cost of a look at a file, is gone only once."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
