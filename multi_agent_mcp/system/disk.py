"""What every write is made of: private directories, whole writes, durable names, and what the disk refuses in words."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeVar

from multi_agent_mcp.errors import StorageError

T = TypeVar("T")

FILE_MODE = 0o600
DIRECTORY_MODE = 0o700
WITHOUT_FULL_SYNC = frozenset({errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOTTY, errno.ENOSYS})
"""How fcntl(2) says that this file system does not know F_FULLFSYNC."""


@contextmanager
def storage_errors(path: Path, *answers: type[OSError]) -> Iterator[None]:
    """Turns what the operating system refuses into a `StorageError`.

    `FileExistsError` and whatever is named in `answers` pass through: to their callers they are answers.
    """
    try:
        yield
    except OSError as error:
        if isinstance(error, (FileExistsError, *answers)):
            raise
        raise StorageError(path=path.name, reason=error) from error


def spelled(name: str) -> str:
    """A file's name as text that can be written down: a name need not be UTF-8."""
    return name.encode(errors="backslashreplace").decode()


def make_private(descriptor: int) -> None:
    """0600 whatever the umask was: it may have left too few rights, and an older file may have too many."""
    if stat.S_IMODE(os.fstat(descriptor).st_mode) != FILE_MODE:
        os.fchmod(descriptor, FILE_MODE)


def write_new(path: Path, data: bytes, *, durable: bool = True) -> None:
    """Writes a file that is not there yet, private to the user. Raises `FileExistsError`. With `durable=False` a power
    cut may leave it empty."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE)
    try:
        make_private(descriptor)
        write_all(descriptor, data)
        if durable:
            sync_file(descriptor)
    finally:
        os.close(descriptor)


def write_all(descriptor: int, data: bytes) -> None:
    """All of it: write(2) may write less than it is given."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def in_directory(directory: Path, write: Callable[[], T]) -> T:
    """What `write` returns. The directory is made if `write` does not find it, which is rare."""
    try:
        return write()
    except FileNotFoundError:
        make_directory(directory)
        return write()


def make_directory(path: Path) -> None:
    """Makes a directory and its parents, private to the user, durably."""
    if path.is_dir():
        return
    if not path.parent.is_dir():
        make_directory(path.parent)
    with suppress(FileExistsError):
        path.mkdir(mode=DIRECTORY_MODE)
        path.chmod(DIRECTORY_MODE)  # the umask may have taken even our own rights
        sync_directory(path.parent)
    if not path.is_dir():
        raise NotADirectoryError(20, "Not a directory", str(path))


def sync_file(descriptor: int) -> None:
    """Returns when the file is on the disk itself. On macOS fsync(2) leaves it in the disk's own cache, and F_FULLFSYNC
    is what its manual page names for that; where a file system does not know it, fsync(2) is all there is."""
    full = getattr(fcntl, "F_FULLFSYNC", None)
    if full is not None:
        try:
            fcntl.fcntl(descriptor, full)
        except OSError as error:
            if error.errno not in WITHOUT_FULL_SYNC:
                raise
        else:
            return
    os.fsync(descriptor)


def sync_directory(path: Path) -> None:
    """`sync_file` of a directory: the names in it survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        sync_file(descriptor)
    finally:
        os.close(descriptor)
