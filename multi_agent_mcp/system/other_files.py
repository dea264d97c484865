"""Files of other programs: found by patterns, read as they are, and replaced atomically, with a backup among our own
files."""

from __future__ import annotations

import errno
import glob
import os
import secrets
import shutil
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatch
from hashlib import blake2b
from pathlib import Path

from multi_agent_mcp.errors import StorageError
from multi_agent_mcp.system.files import make_directory, storage_errors, sync_directory, write_new

PUBLIC_MODE = 0o644


def matching(base: Path, pattern: str, words: Mapping[str, str]) -> list[Path]:
    """The files like `pattern` below `base`, sorted; {names} in it stand for `words`, literally."""
    for name, word in words.items():
        pattern = pattern.replace(f"{{{name}}}", glob.escape(word))
    return sorted(Path(found) for found in glob.glob(str(base / pattern)) if os.path.isfile(found))  # noqa: PTH113, PTH207


def last_lines(path: str, size: int) -> list[bytes]:
    """The complete lines in the last bytes of a file; none if it cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return []
    try:
        start = max(os.fstat(descriptor).st_size - size, 0)
        return os.pread(descriptor, size, start).split(b"\n")[bool(start) : -1]
    except OSError:
        return []
    finally:
        os.close(descriptor)


def named_from(first: Path, pattern: str, levels: int = 3) -> Iterator[Path]:
    """Yields the files like `pattern` whose path comes after that of `first`, in directories by date (`levels` of
    them, as 2026/11/23)."""
    top = first.parents[levels]
    yield from _after(top, first.relative_to(top).parts, pattern)


def _after(directory: Path, first: Sequence[str], pattern: str) -> Iterator[Path]:
    names: list[str] = []
    with suppress(OSError):
        names = sorted(os.listdir(directory))  # noqa: PTH208
    for name in names:
        if first and name < first[0]:
            continue
        if len(first) == 1:
            if name != first[0] and fnmatch(name, pattern):
                yield directory / name
        else:
            same = name == first[0]
            yield from _after(directory / name, first[1:] if same else [""] * (len(first) - 1), pattern)


# Replacing them: an existing file keeps its mode; a new one is private, like all our files.

NAME_CHARACTERS = 60
"""The length of the path's end in a backup's name: names have at most 255 bytes, and a character up to four."""


@dataclass(frozen=True)
class FileChange:
    """A change of a file's content. `before` None means that the file does not exist yet."""

    path: Path
    before: bytes | None
    after: bytes
    is_public: bool = False
    """Whether others may read the file if it is new."""

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
            elif change.is_public:
                scratch.chmod(_public_mode())
            scratch.replace(path)
        finally:
            scratch.unlink(missing_ok=True)
        sync_directory(path.parent)
    return backup


def remove_file(change: FileChange, backups: Path) -> Path:
    """Removes the file, following a symbolic link; returns the path of its backup. Raises as `apply_change`."""
    path = Path(os.path.realpath(change.path))
    if read_external(path) != change.before:
        raise StorageError("changed_meanwhile", path=path.name)
    with storage_errors(path):
        backup = _backed_up(path, backups)
        path.unlink()
        sync_directory(path.parent)
    return backup


def _public_mode() -> int:
    """The mode of a new file that others may read, as far as this process's umask(2) lets them."""
    mask = os.umask(0)
    os.umask(mask)
    return PUBLIC_MODE & ~mask


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


LINE_BYTES = 16 * 1024 * 1024
MARK_BYTES = 512


@dataclass(frozen=True)
class ReadPosition:
    """Where reading stopped: in which file, behind which byte, and a digest of the file's first bytes and of those
    before it."""

    inode: int = 0
    offset: int = 0
    mark: str = ""


BEGINNING = ReadPosition()


class GrowingFile:
    """One reading of a file, from `place` on. A file that has been replaced, shortened or rewritten is read from its
    beginning; a last line without its end is left for the next reading. After `lines`, `place` is where it stopped.
    Raises `OSError`."""

    def __init__(self, path: Path, place: ReadPosition) -> None:
        self.path = path
        self.place = place

    def may_have_grown(self) -> bool:
        """Whether there is something to read; one stat(2)."""
        status = self.path.stat()
        return status.st_ino != self.place.inode or status.st_size != self.place.offset

    def lines(self) -> Iterator[bytes]:
        """Yields the complete lines since `place`; those longer than `LINE_BYTES` are passed over."""
        descriptor = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                return
            start = self._start(descriptor, status)
            file.seek(start)
            offset = start
            is_too_long = start > 0 and os.pread(descriptor, 1, start - 1) != b"\n"  # the last look ended in a line
            while line := file.readline(LINE_BYTES):
                is_whole = line.endswith(b"\n")
                if not is_whole and not is_too_long and len(line) < LINE_BYTES:
                    break  # its end has not been written yet
                offset += len(line)
                if is_whole and not is_too_long:
                    yield line
                is_too_long = not is_whole
            self.place = ReadPosition(status.st_ino, offset, _mark(descriptor, offset))

    def _start(self, descriptor: int, status: os.stat_result) -> int:
        known = self.place
        is_same = status.st_ino == known.inode and status.st_size >= known.offset
        return known.offset if is_same and _mark(descriptor, known.offset) == known.mark else 0


def _mark(descriptor: int, offset: int) -> str:
    size = min(offset, MARK_BYTES)
    edges = os.pread(descriptor, size, 0) + os.pread(descriptor, size, offset - size)
    return blake2b(edges, digest_size=16).hexdigest()
