"""Reading that stays inside a session's directory, and atomic and durable ways to write there: `create`, `replace` and
`relocate`.

New content is written to a scratch directory on the same file system, fsynced and put in place atomically, and the
directory is fsynced (docs/protocol.md, Durability). The scratch directory keeps partial files out of the directories
that people `ls` and processes watch; files that a killed process leaves there were never acknowledged.
"""

from __future__ import annotations

import errno
import logging
import os
import secrets
import stat
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from multi_agent_mcp.errors import StorageError, UntrustedSession
from multi_agent_mcp.store.locks import Locks
from multi_agent_mcp.system.file_status import Signature, careful, signature, signature_of
from multi_agent_mcp.system.files import (
    FILE_MODE,
    in_directory,
    make_private,
    storage_errors,
    sync_directory,
    sync_file_system,
    sync_together,
    write_all,
    write_new,
)
from multi_agent_mcp.system.ownership import own_users, require_owner

BLOCK_BYTES = 1 << 16
NEWEST_BYTES = 1 << 12
WITHOUT_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})
"""The errors of link(2) if the file system has no hard links, or allows none of this file (fs.protected_hardlinks)."""
INDEXES = ".index"
"""The directory of derived data that may be deleted."""
ROOM_BYTES = 1 << 20
"""The free space below which a disk counts as full: the largest content of a message."""
PLACES = 16

logger = logging.getLogger(__name__)

# Containment: reading never leaves the session's directory by a symbolic link, nor blocks on a pipe, and nothing is
# taken from a directory that somebody else has put in place of ours.

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def read_file(path: Path | str, place: int | None = None) -> tuple[bytes, os.stat_result]:
    """Returns a regular file's bytes and status. With the descriptor `place` of a directory, the path is relative to
    it. Raises OSError: ELOOP for a symbolic link, EINVAL for a pipe or a device (opening one would wait for its
    writer), `IsADirectoryError`."""
    descriptor = os.open(path, _READ, dir_fd=place)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            code = errno.EISDIR if stat.S_ISDIR(status.st_mode) else errno.EINVAL
            raise OSError(code, "not a regular file", str(path))
        data = os.read(descriptor, status.st_size + 1)
        if len(data) != status.st_size:  # it changes, or is larger than one read(2) returns
            with open(descriptor, "rb", closefd=False) as file:
                data += file.read()
        return data, status
    finally:
        os.close(descriptor)


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

    def require(self, directory: Path | str) -> None:
        """Raises `StorageError` if a symbolic link in the directory's path leads out of `base`, `UntrustedSession` if
        somebody else owns a directory in it. What does not exist yet leads nowhere."""
        way, is_inside = self._ways.get(str(directory)) or self._way(Path(directory)), True
        for path in way:  # one loop, and no function for each: this runs some hundred times in a call of a tool
            try:
                status = os.lstat(path)
            except (OSError, ValueError):
                continue
            if status.st_uid not in self._owners:
                self.require_owner(status, path)
            if stat.S_ISLNK(status.st_mode):
                is_inside = False
                break
        if way and is_inside:
            return
        real, inside = os.path.realpath(directory), os.path.realpath(self.base.parent)
        allowed = os.path.join(inside, self.base.name)  # noqa: PTH118 - beside realpath, which pathlib has no equal for
        if real != allowed and not real.startswith(allowed + os.sep):
            raise StorageError("leads_out", path=Path(directory).name)

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


# Every write names a scratch file and a directory or two. They are texts: to make a `Path` takes longer than lstat(2).


def _parent(path: Path | str) -> str:
    return str(path).rpartition("/")[0]


def _unlink(path: str) -> None:
    """Removes a file if it exists."""
    with suppress(FileNotFoundError):
        os.unlink(path)  # noqa: PTH108 - see above


class FileChanged(Exception):
    """Raised when a file that was to be replaced is not the one that was read: a person has saved it meanwhile."""


class Looks(threading.local):
    """The directories that this thread has already checked for changes within `once`; None outside of it."""

    def __init__(self) -> None:
        self.seen: set[object] | None = None

    @contextmanager
    def once(self) -> Iterator[None]:
        """Makes this thread check each directory of the session only once within the context, for callers that only
        read. The index of a directory that has just changed is not trusted: every query would examine all of its files
        again. What judges an entity has to be looked at after that entity was found."""
        outer, self.seen = self.seen, set() if self.seen is None else self.seen
        try:
            yield
        finally:
            self.seen = outer

    def again(self) -> None:
        """Lets this thread check every directory again, within `once` too: before it changes what it has seen, and
        after it has."""
        if self.seen is not None:
            self.seen.clear()


class Files:
    """Writes below one session directory (`{root}/{session_id}`)."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.scratch = base / ".tmp"
        self.containment = Containment(base)
        self.locks = Locks(base / ".locks", self.containment.require)
        self.looks = Looks()
        self._in_bulk = False
        self._this_thread = threading.local()

    @contextmanager
    def noting(self, note: Callable[[Signature], object]) -> Iterator[None]:
        """Calls `note` within the context with the signature of each file that this thread creates or replaces, before
        it is in place, so that file events can be attributed to this process."""
        self._this_thread.note = note
        try:
            yield
        finally:
            del self._this_thread.note

    @contextmanager
    def in_bulk(self, *, durable: bool = True) -> Iterator[None]:
        """Makes files written within the context durable only at its end: for many files that can be fetched again.
        A power cut may leave empty ones. With `durable=False` the caller makes them durable."""
        self._in_bulk = True
        try:
            yield
        finally:
            self._in_bulk = False
            if durable:
                sync_file_system(self.base)

    # The order of a durable write, and what would go wrong in another one:
    #
    # 1. The content is complete in a scratch file, and fsynced there. Placed before that, a power cut could leave a
    #    name with an empty or half a file behind it: most file systems order a name before the content that it leads
    #    to.
    # 2. link(2) or rename(2) gives it its name, in one step. Readers list directories without any lock, so a file
    #    must never be there in part; and link(2) fails if the name is taken, which no check beforehand can promise.
    # 3. The directory is fsynced, since the name is its content. Only now may the caller say that the file is stored.
    # 4. The scratch name goes. Killed before this, a process leaves it in `.tmp/`, where nobody looks and `doctor`
    #    tidies: whatever was placed is whole, and whatever was not was acknowledged to nobody.
    #
    # Several files of one act share steps 1 and 3 (`create_all`), not the order.
    def create(self, path: Path | str, data: bytes, *, sync: bool = True, modified: int | None = None) -> None:
        """Creates a file, exclusively: raises `FileExistsError` and never overwrites.

        With `sync=False` the caller fsyncs the directory itself, after several files. `modified` is the modification
        time to set, in nanoseconds since the epoch, for a file written on another machine.
        """
        directory = _parent(path)
        with storage_errors(path):
            self.containment.require(directory)
            scratch = self._written(data, modified=modified)
            try:
                self._place(scratch, path)
            finally:
                _unlink(scratch)
            if sync:
                self._sync(directory)

    def prepare(self, data: bytes, *, modified: int | None = None) -> Path:
        """Writes content to a scratch file, for `place` or `replace_all`: so a lock is held only for the last step.
        `modified` as in `create`."""
        with storage_errors(self.scratch):
            return Path(self._written(data, modified=modified))

    def place(self, scratch: Path, path: Path) -> None:
        """Puts a prepared file in place, durably and exclusively, as `create`. The scratch file is gone afterwards,
        whatever happens."""
        try:
            with storage_errors(path):
                self.containment.require(path.parent)
                self._note(scratch)  # again: its place changes its `st_ctime`
                self._place(scratch, path)
                self._sync(path.parent)
        finally:
            scratch.unlink(missing_ok=True)

    def replace_all(self, scratches: Mapping[Path, Path]) -> None:
        """Puts prepared files in place, by their paths in one directory, replacing what is there; they are durable
        together. No scratch file is left afterwards, whatever happens."""
        directory, left = next(iter(scratches)).parent, dict(scratches)
        try:
            with storage_errors(directory):
                self.containment.require(directory)
                with self.locks.writing():
                    for path, scratch in scratches.items():
                        self._note(scratch)
                        in_directory(directory, partial(os.replace, scratch, path), within=self.base)
                        del left[path]
                self._sync(directory)
        finally:
            for scratch in left.values():
                scratch.unlink(missing_ok=True)

    def create_all(self, contents: Mapping[Path, bytes]) -> None:
        """Creates several files as `create`, made durable together. Raises `FileExistsError` and `StorageError`, and
        then creates none."""
        scratches: dict[Path, str] = {}
        placed: list[Path] = []
        with storage_errors(self.scratch):
            try:
                for path, data in contents.items():
                    self.containment.require(path.parent)
                    scratches[path] = self._written(data, durable=False)
                sync_together(scratches.values())
                for path, scratch in scratches.items():
                    self._place(scratch, path)
                    placed.append(path)
                sync_together({path.parent for path in placed})
            except BaseException:
                for path in placed:
                    path.unlink(missing_ok=True)
                raise
            finally:
                for scratch in scratches.values():
                    _unlink(scratch)

    def read(self, path: Path) -> bytes | None:
        """Returns a regular file's bytes, None if it does not exist. Raises `StorageError`, also for a link or pipe,
        and `UntrustedSession` for somebody else's."""
        with storage_errors(path, FileNotFoundError):
            try:
                self.containment.require(path.parent)
                data, status = read_file(path)
                self.containment.require_owner(status, path)
                return data
            except FileNotFoundError:
                return None

    def blocks(self, path: Path, start: int = 0, size: int = BLOCK_BYTES) -> Iterator[bytes]:
        """Yields a file from this byte on, in blocks of at most `size`; nothing if it does not exist. Raises as
        `read`."""
        with storage_errors(path, FileNotFoundError), suppress(FileNotFoundError):
            self.containment.require(path.parent)
            with open(path, "rb", opener=careful) as file:
                self.containment.require_owner(os.fstat(file.fileno()), path)
                file.seek(start)
                while block := file.read(size):
                    yield block

    def blocks_from_end(self, path: Path) -> Iterator[bytes]:
        """Yields a file as it is now, in blocks, the last one first; nothing if it does not exist. Raises as `read`."""
        with storage_errors(path, FileNotFoundError), suppress(FileNotFoundError):
            self.containment.require(path.parent)
            with open(path, "rb", buffering=0, opener=careful) as file:
                self.containment.require_owner(status := os.fstat(file.fileno()), path)
                for end in range(status.st_size, 0, -NEWEST_BYTES):
                    begin = max(end - NEWEST_BYTES, 0)
                    yield os.pread(file.fileno(), end - begin, begin)

    def names(self, directory: Path) -> list[str]:
        """Returns the sorted names in a directory; [] if it does not exist. Raises `StorageError`."""
        with storage_errors(directory, FileNotFoundError):
            try:
                self.containment.require(directory)
                return sorted(os.listdir(directory))  # noqa: PTH208 - only names
            except FileNotFoundError:
                return []

    def remove(self, path: Path, *, sync: bool = False) -> None:
        """Removes a file if it exists; without `sync` a power cut may bring it back. Raises `StorageError`."""
        with storage_errors(path):
            self.containment.require(path.parent)
            with self.locks.writing():
                path.unlink(missing_ok=True)
            if sync:
                self._sync(path.parent)

    def remove_directory(self, path: Path) -> None:
        """Removes a directory if it is empty."""
        with suppress(OSError):
            self.containment.require(path.parent)
            path.rmdir()

    def replace(
        self,
        path: Path,
        data: bytes,
        *,
        sync: bool = True,
        durable: bool = True,
        modified: int | None = None,
        unchanged: Signature | None = None,
    ) -> None:
        """Replaces a file's content atomically. With `sync=False` a power cut may leave the old content, with
        `durable=False` (for derived data) an empty file. `modified` as in `create`. With `unchanged`, the file's
        signature when it was read, raises `FileChanged` if somebody has saved it since."""
        with storage_errors(path):
            self.containment.require(path.parent)
            scratch = self._written(data, durable=durable, modified=modified)
            try:
                if unchanged is not None and signature_of(path) != unchanged:
                    raise FileChanged(path)
                self._rename(scratch, path)
            except BaseException:
                _unlink(scratch)
                raise
            if sync and durable:
                self._sync(path.parent)

    # rename(2) into another directory changes two of them. Journaling file systems keep both changes or neither
    # through a power cut, and `move` relies on that. What is set aside for a person, once and for good, does not: it
    # has both names on the disk before it loses the old one. Whoever finds it twice sees by the inode that it is one
    # file.
    def relocate(self, moves: list[tuple[Path, Path]]) -> list[Path]:
        """Moves files durably: links each at the new path, syncs that, and only then unlinks the old path.

        A crash in between leaves a file at both paths (without hard links: at one of them), never at none. Returns the
        new paths: a name that is taken by another file gets a number.
        """
        if not moves:
            return []
        with storage_errors(moves[0][1]):
            for directory in {path.parent for move in moves for path in move}:
                self.containment.require(directory)
            placed = [self._link_beside(source, target) for source, target in moves]
            for directory in {target.parent for target in placed}:
                self._sync(directory)
            with self.locks.writing():
                for source, _ in moves:
                    source.unlink(missing_ok=True)
            for directory in {source.parent for source, _ in moves}:
                self._sync(directory)
        return placed

    def move(self, source: Path, target: Path, *, sync: bool = True) -> None:
        """Renames a file into another directory, atomically, and durably unless the caller syncs both directories."""
        with storage_errors(target):
            self.containment.require(source.parent)
            self.containment.require(target.parent)
            self._rename(source, target)
            if sync:
                self._sync(target.parent)
                self._sync(source.parent)

    def append(self, path: Path, line: str | bytes, *, sync: bool = False) -> int:
        """Appends one line (or several) to a journal; returns the offset of its end in bytes. Appends do not
        interleave; only with `sync` they survive a power cut. An incomplete last line is ended first. A line that
        another process is just writing may look incomplete, which leaves an empty line."""
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK  # a pipe is not waited for
        data = (line.encode() if isinstance(line, str) else line).rstrip(b"\n") + b"\n"
        directory = _parent(path)
        with storage_errors(path):
            self.containment.require(directory)
            descriptor = in_directory(directory, lambda: os.open(path, flags, FILE_MODE), within=self.base)
            try:
                make_private(descriptor)
                end = os.lseek(descriptor, 0, os.SEEK_END)
                cut_off = end > 0 and os.pread(descriptor, 1, end - 1) != b"\n"
                write_all(descriptor, b"\n" + data if cut_off else data)
                end = os.lseek(descriptor, 0, os.SEEK_CUR)
                if sync:
                    os.fsync(descriptor)
                    self._sync(directory)
                return end
            finally:
                os.close(descriptor)

    def extend(self, path: Path, offset: int, data: bytes) -> None:
        """Writes a part of another machine's log at its offset, durably."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
        with storage_errors(path):
            self.containment.require(path.parent)
            descriptor = in_directory(path.parent, lambda: os.open(path, flags, FILE_MODE), within=self.base)
            try:
                make_private(descriptor)
                os.pwrite(descriptor, data, offset)
                if not self._in_bulk:
                    os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def has_links(self) -> bool:
        """Returns whether link(2) works here. Raises `StorageError` if files cannot be written, or the disk is full."""
        with storage_errors(self.scratch):
            scratch = Path(self._written(bytes(ROOM_BYTES), durable=False))
            other = scratch.with_suffix(".link.tmp")
            try:
                os.link(scratch, other, follow_symlinks=False)
            except OSError as error:
                if error.errno not in WITHOUT_LINKS:
                    raise
                return False
            finally:
                other.unlink(missing_ok=True)
                scratch.unlink(missing_ok=True)
        return True

    def _sync(self, directory: Path | str) -> None:
        if not self._in_bulk:
            sync_directory(directory)

    def _written(self, data: bytes, *, durable: bool = True, modified: int | None = None) -> str:
        """Writes content to a scratch file and returns its path."""
        path = f"{self.scratch}/{os.getpid()}.{secrets.token_hex(8)}.tmp"
        self.containment.require(self.scratch)
        try:
            in_directory(
                self.scratch, lambda: write_new(path, data, durable=durable and not self._in_bulk), within=self.base
            )
            if modified is not None:
                os.utime(path, ns=(modified, modified))
            self._note(path)
        except BaseException:
            _unlink(path)
            raise
        return path

    def _note(self, scratch: Path | str) -> None:
        if (note := getattr(self._this_thread, "note", None)) is not None:
            note(signature(os.lstat(scratch)))

    # Exclusive creation uses link(2). On a file system without hard links (FAT, some network mounts) the file is
    # renamed into place instead, under a lock, if the name is free. Renaming over an `O_EXCL` placeholder would be
    # exclusive towards other programs, too, but a crash would leave the placeholder: an empty key or message. A lock
    # ends with its process and is exclusive among our own processes; only a foreign file created under the same
    # random name within the same microseconds would be overwritten.
    def _place(self, source: Path | str, target: Path | str) -> None:
        """Puts a file at a path that is free; raises `FileExistsError`. With hard links, the source remains."""
        try:
            self._link(source, target)
        except OSError as error:
            if error.errno not in WITHOUT_LINKS:
                raise
            logger.debug("%s: no hard links (%s); renamed under a lock instead", target, error.strerror)
            with self.locks.held(f"place-{zlib.crc32(os.fsencode(target)) % PLACES:02x}"):
                if os.path.lexists(target):
                    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target)) from None
                self._rename(source, target)

    def _link(self, source: Path | str, target: Path | str) -> None:
        in_directory(_parent(target), lambda: os.link(source, target, follow_symlinks=False), within=self.base)

    def _link_beside(self, source: Path, target: Path) -> Path:
        """Links a file at a path, or with the next free number, unless an earlier attempt has linked it there."""
        candidate, number = target, 0
        while True:
            try:
                self._place(source, candidate)
            except FileExistsError:
                if candidate.samefile(source):
                    return candidate
                number += 1
                candidate = target.with_name(f"{target.stem}.{number}{target.suffix}")
            else:
                return candidate

    def _rename(self, source: Path | str, target: Path | str) -> None:
        with self.locks.writing():
            in_directory(_parent(target), partial(os.replace, source, target), within=self.base)
