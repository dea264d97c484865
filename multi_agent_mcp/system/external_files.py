"""Files of other programs: read as they are, and replaced atomically, with a backup among our own files.

An existing file keeps its mode; a new one is private, like all our files.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path

from multi_agent_mcp.errors import StorageError
from multi_agent_mcp.system.writing import make_directory, storage_errors, sync_directory, write_new

NAME_CHARACTERS = 60
"""The length of the path's end in a backup's name: names have at most 255 bytes, and a character up to four."""


@dataclass(frozen=True)
class FileChange:
    """A change of a file's content. `before` None means that the file does not exist yet."""

    path: Path
    before: bytes | None
    after: bytes

    @property
    def changes(self) -> bool:
        return self.before != self.after


def read_external(path: Path) -> bytes | None:
    """Reads a file; None if it does not exist. Raises `StorageError`, also for a pipe or a device, without blocking."""
    with storage_errors(path, FileNotFoundError):
        try:
            with open(path, "rb", opener=_without_waiting) as file:
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    raise OSError(errno.EINVAL, "not a regular file", str(path))
                return file.read()
        except FileNotFoundError:
            return None


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def apply_change(change: FileChange, backups: Path) -> Path | None:
    """Replaces the file atomically, following a symbolic link and keeping its mode. Returns the path of the backup in
    the directory `backups`, or None for a new file. Raises `StorageError`, also if the file's content is no longer
    `before`."""
    path = Path(os.path.realpath(change.path))  # a link, as into a user's dotfiles, stays a link
    if read_external(path) != change.before:
        raise StorageError("changed_meanwhile", path=path.name)
    with storage_errors(path):
        make_directory(path.parent)
        backup = _backed_up(path, backups) if change.before is not None else None
        scratch = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
        try:
            write_new(scratch, change.after)
            if backup is not None:
                shutil.copymode(path, scratch)
            scratch.replace(path)
        finally:
            scratch.unlink(missing_ok=True)
        sync_directory(path.parent)
    return backup


def _backed_up(path: Path, backups: Path) -> Path:
    """Makes a private copy, named by the file's path, without overwriting earlier backups. Returns its path."""
    make_directory(backups)
    name = str(path).strip("/").replace("/", "~")[-NAME_CHARACTERS:]
    number = 0
    while True:
        backup = backups / f"{name}.bak{f'.{number}' if number else ''}"
        try:
            write_new(backup, path.read_bytes())
        except FileExistsError:
            number += 1
        else:
            return backup
