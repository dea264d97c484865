"""The status of files and directories (stat(2)), and whether it may be cached.

`hook` imports this module, and a host waits for it at every tool call: so it imports nothing slow, not even pathlib.
"""

from __future__ import annotations

import os
import stat
from contextlib import contextmanager

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

RACY_NS = 50_000_000

Signature = tuple[int, int, int]


def signature(status: os.stat_result) -> Signature:
    """A value that changes with a file's content: modification time, size and inode."""
    return status.st_mtime_ns, status.st_size, status.st_ino


def signature_of(path: str | os.PathLike[str]) -> Signature | None:
    """The signature of the file at this path; None if it does not exist or may not be accessed."""
    try:
        return signature(os.stat(path, follow_symlinks=False))  # noqa: PTH116 - see above
    except OSError:
        return None


def modified_at(path: str | os.PathLike[str]) -> int:
    """The modification time of a directory or file in nanoseconds; 0 if it does not exist. Every atomic change in a
    directory (link, rename, unlink) sets its time, so one stat(2) tells whether anything changed, however many files
    there are."""
    try:
        return os.stat(path).st_mtime_ns  # noqa: PTH116 - see above
    except FileNotFoundError:
        return 0


def are_unchanged(seen: Mapping[str, int]) -> bool:
    """Whether the files and directories at these paths still have these modification times (see `modified_at`)."""
    try:
        return all(modified_at(path) == mtime for path, mtime in seen.items())
    except OSError:
        return False


def is_own_directory(path: str | os.PathLike[str]) -> bool:
    """Whether there is a directory at this path, and not a symbolic link to one."""
    try:
        return stat.S_ISDIR(os.stat(path, follow_symlinks=False).st_mode)  # noqa: PTH116 - see above
    except OSError:
        return False


def is_settled(modified: int, looked_at: int) -> bool:
    """Whether data read at or after `looked_at` may be cached until the modification time changes. If the last change
    is too recent, a further one within the same tick of the kernel's clock would not change it (git's "racy")."""
    return looked_at - modified > RACY_NS


def careful(path: str, flags: int, place: int | None = None) -> int:
    """An opener for `open` that follows no link and blocks on no pipe. With the descriptor `place` of a directory, the
    path is relative to it."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=place)


@contextmanager
def in_place(directory: str | os.PathLike[str]) -> Iterator[int]:
    """A context manager for the descriptor of a directory, so that its path, a quarter of the cost of a stat(2), is
    resolved only once."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
