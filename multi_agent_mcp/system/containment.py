"""Containment: reading never leaves the session's directory by a symbolic link, nor blocks on a pipe, and nothing is
taken from a directory that somebody else has put in place of ours."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path

from multi_agent_mcp.errors import StorageError, UntrustedSession
from multi_agent_mcp.system.ownership import own_users, require_owner

PEEK_BYTES = 4096
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def read_file(path: Path | str) -> tuple[bytes, os.stat_result]:
    """Returns a regular file's bytes and status. Raises OSError: ELOOP for a symbolic link, EINVAL for a pipe or a
    device (opening one would wait for its writer), `IsADirectoryError`."""
    descriptor = os.open(path, _READ)
    with open(descriptor, "rb") as file:  # closes the descriptor
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        return file.read(), status


def peek(path: str, place: int | None = None) -> tuple[bytes, os.stat_result | None]:
    """Returns at least the header of a file, with the status from before reading: no bytes if it is not a readable
    regular file, and None if it cannot be opened. With `place`, the path is relative to the directory of this
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
    """Returns the bytes that `peek` returns, for a path known to be a regular file."""
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


class Containment:
    """Checks that directories are inside `base`.

    Each directory from `base` down is looked at each time, one lstat(2) each: a directory may be moved out of
    the session, and a link to it put in its place, while a server runs. Where others may write beside the root, they
    may also replace the whole of it (docs/security.md, Other users' sessions).
    """

    def __init__(self, base: Path) -> None:
        self.base = base
        self._owners = own_users()
        self._ways: dict[str, list[str]] = {}
        """For each directory, by its path, those from `base` down to it: making `Path`s takes longer than lstat(2)."""

    def require(self, directory: Path) -> None:
        """Raises `StorageError` if a symbolic link in the directory's path leads out of `base`, `UntrustedSession` if
        somebody else owns a directory in it. What does not exist yet leads nowhere."""
        way = self._ways.get(str(directory)) or self._way(directory)
        if way and not any(map(self._is_link, way)):
            return
        real, inside = os.path.realpath(directory), os.path.realpath(self.base.parent)
        allowed = os.path.join(inside, self.base.name)  # noqa: PTH118 - beside realpath, which pathlib has no equal for
        if real != allowed and not real.startswith(allowed + os.sep):
            raise StorageError("leads_out", path=directory.name)

    def _is_link(self, path: str) -> bool:
        """Returns whether there is a symbolic link. Raises `UntrustedSession`."""
        try:
            status = os.lstat(path)
        except (OSError, ValueError):
            return False
        self.require_owner(status, path)
        return stat.S_ISLNK(status.st_mode)

    def require_owner(self, status: os.stat_result, path: Path | str) -> None:
        """Raises `UntrustedSession` for something of somebody else, unless the session's root is trusted."""
        if status.st_uid not in self._owners:
            require_owner(status.st_uid, Path(path), self.base.parent)
            self._owners |= {status.st_uid}

    def is_own(self, status: os.stat_result) -> bool:
        """Returns whether `require_owner` lets this file pass."""
        if status.st_uid not in self._owners:
            with suppress(UntrustedSession):
                self.require_owner(status, self.base)
        return status.st_uid in self._owners

    def _way(self, directory: Path) -> list[str]:
        """Returns the directories from `base` down to this one; [] if it is certain only on the disk that it is below
        `base`."""
        if ".." in directory.parts:
            return []
        way = [str(path) for path in (directory, *directory.parents) if path.is_relative_to(self.base)][::-1]
        self._ways[str(directory)] = way
        return way
