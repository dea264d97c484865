"""Files that belong to other programs: read as they are, replaced whole, with a backup among our own files.

One that is there keeps its mode; a new one is private, like everything we make: its owner can open it.
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
"""So many of a path are in a backup's name: a file system takes 255 bytes, and one character has up to four."""


@dataclass(frozen=True)
class FileChange:
    """What a file is to hold. `before` None means that there is none yet."""

    path: Path
    before: bytes | None
    after: bytes

    @property
    def changes(self) -> bool:
        return self.before != self.after


def read_external(path: Path) -> bytes | None:
    """The file's bytes, None when there is none. Raises `StorageError`, also for a pipe or a device, which is not
    waited for."""
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
    """Replaces the file atomically, through a symbolic link and with its mode kept. Returns the backup in the directory
    `backups`, if there was something to back up. Raises `StorageError`, also when the file is not what the change was
    made from."""
    path = Path(os.path.realpath(change.path))  # a link into somebody's dotfiles stays one
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
    """A private copy named by the file's path; an earlier backup is never overwritten."""
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
