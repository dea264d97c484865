"""Nothing in a session directory leads out of it: symbolic links are not followed, pipes are not waited for."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from multi_agent_mcp.errors import StorageError

PEEK_BYTES = 4096
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def read_file(path: Path | str) -> tuple[bytes, os.stat_result]:
    """A regular file's bytes and status. Raises OSError: ELOOP for a symbolic link, EINVAL for a pipe or a device
    (opening one would wait for its writer), `IsADirectoryError`."""
    descriptor = os.open(path, _READ)
    with open(descriptor, "rb") as file:  # closes the descriptor
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        return file.read(), status


def peek(path: str, place: int | None = None) -> tuple[bytes, os.stat_result | None]:
    """A file as far as its header reaches, and a little more, with the status it had before; nothing of one that cannot
    be read, and None of one that cannot be opened. With `place`, the path is one from the directory that has this
    descriptor."""
    try:
        descriptor = os.open(path, _READ, dir_fd=place)
    except OSError:
        return b"", None
    try:
        status = os.fstat(descriptor)
        return _header(descriptor) if stat.S_ISREG(status.st_mode) else b"", status
    except OSError:
        return b"", None
    finally:
        os.close(descriptor)


def header(path: str, place: int | None = None) -> bytes:
    """The bytes that `peek` gives, of what was a regular file a moment ago."""
    try:
        descriptor = os.open(path, _READ, dir_fd=place)
    except OSError:
        return b""
    try:
        return _header(descriptor)
    except OSError:  # it has become something else
        return b""
    finally:
        os.close(descriptor)


def _header(descriptor: int) -> bytes:
    data = os.read(descriptor, PEEK_BYTES)
    if b"\n---" in data:
        return data
    while b"\n---" not in data[-PEEK_BYTES - 4 :] and (more := os.read(descriptor, PEEK_BYTES)):
        data += more
    return data


def is_own_directory(path: Path) -> bool:
    """A directory, and no symbolic link to one."""
    return path.is_dir() and not path.is_symlink()


class Containment:
    """Knows which directories really lie below `base`.

    A directory that was found to lie inside is remembered by its inode: asking again is one stat(2).
    """

    def __init__(self, base: Path) -> None:
        self.base = base
        self._inside: dict[str, tuple[int, int]] = {}
        """By name: a new `Path` takes longer to hash and to compare than the stat(2)."""

    def require(self, directory: Path) -> None:
        """Raises `StorageError` when a symbolic link on the way to the directory leads out of `base`; a directory that
        does not exist yet is judged by the one it would be made in."""
        try:
            status = directory.stat()
        except FileNotFoundError:
            if directory != self.base:
                self.require(directory.parent)
            return
        identity = status.st_dev, status.st_ino
        if self._inside.get(str(directory)) == identity:
            return
        real, inside = os.path.realpath(directory), os.path.realpath(self.base.parent)
        allowed = os.path.join(inside, self.base.name)  # noqa: PTH118 - beside realpath, which pathlib has no equal for
        if real != allowed and not real.startswith(allowed + os.sep):
            raise StorageError("leads_out", path=directory.name)
        self._inside[str(directory)] = identity
