"""The steps of every write: private directories, complete and durable writes, and `OSError` as `StorageError`."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import stat
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, TypeVar

from multi_agent_mcp.errors import StorageError
from multi_agent_mcp.system.file_status import in_place

T = TypeVar("T")

FILE_MODE = 0o600
DIRECTORY_MODE = 0o700
WITHOUT_FULL_SYNC = frozenset({errno.ENOTSUP, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOTTY, errno.ENOSYS})
"""The errors of fcntl(2) on a file system that does not support F_FULLFSYNC."""


FLUSHED_AS_A_WHOLE = frozenset({"ext4", "xfs"})
"""File systems whose syncfs(2) is as good as an fsync(2) of each file; on some others (FUSE) it does nothing."""
MANY = 16
"""The number of files from which syncfs(2) pays, although it also writes all other changes on the file system."""


class storage_errors:  # noqa: N801 - as `contextlib.suppress`, of which it is a kind
    """A context that turns an `OSError` into a `StorageError`.

    `FileExistsError` and the classes in `answers` pass through, because callers handle them.
    """

    def __init__(self, path: Path | str, *answers: type[OSError]) -> None:
        self._path = path
        self._answers = answers

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        if isinstance(error, OSError) and not isinstance(error, (FileExistsError, *self._answers)):
            raise StorageError(path=Path(self._path).name, reason=error) from error


def spelled(name: str) -> str:
    """A file's name as text that can be encoded: a name need not be UTF-8."""
    return name if name.isascii() else name.encode(errors="backslashreplace").decode()


def make_private(descriptor: int) -> None:
    """Sets the mode 0600: the umask may have left too few rights, and an older file may have too many."""
    if stat.S_IMODE(os.fstat(descriptor).st_mode) != FILE_MODE:
        os.fchmod(descriptor, FILE_MODE)


def write_new(path: Path | str, data: bytes, *, durable: bool = True) -> None:
    """Writes a new file, private to the user. Raises `FileExistsError`. With `durable=False` a power cut may leave it
    empty."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE)
    try:
        make_private(descriptor)
        write_all(descriptor, data)
        if durable:
            sync_file(descriptor)
    finally:
        os.close(descriptor)


def write_all(descriptor: int, data: bytes) -> None:
    """Writes all of the data: a single write(2) may write less."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def in_directory(directory: Path | str, write: Callable[[], T], *, within: Path) -> T:
    """Calls `write` and returns its result; if the directory does not exist, which is rare, creates it first, as
    `make_directory`."""
    try:
        return write()
    except FileNotFoundError:
        make_directory(Path(directory), within=within)
        return write()


def make_directory(path: Path, *, within: Path | None = None) -> None:
    """Creates a directory and its parents, private to the user, durably. Does not create `within`, one of them: raises
    `StorageError` if it is gone, as a process must not leave a second session where one was moved away."""
    make_directories([path], within=within)


def make_directories(paths: Iterable[Path], *, within: Path | None = None) -> None:
    """Creates directories as `make_directory`, made durable together."""
    sync_together({path.parent for path in paths if _made(path, within)})


def _made(path: Path, within: Path | None) -> bool:
    """Creates a directory that is missing; returns whether it did, so that its name is not durable yet."""
    if path.is_dir():
        return False
    if path == within:
        raise StorageError("directory_gone", path=path)
    if not path.parent.is_dir():
        make_directory(path.parent, within=within)
    is_new = False
    with suppress(FileExistsError):
        path.mkdir(mode=DIRECTORY_MODE)
        path.chmod(DIRECTORY_MODE)  # the umask may have removed even our own rights
        is_new = True
    # A directory that somebody has removed again is no file in its place: stat(2) then raises `FileNotFoundError`.
    is_directory = path.is_dir() if path.is_symlink() else stat.S_ISDIR(path.stat().st_mode)
    if not is_directory:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
    return is_new


def sync_file(descriptor: int) -> None:
    """Waits until the file is on the disk. On macOS fsync(2) leaves it in the disk's cache, and its manual page names
    F_FULLFSYNC for this; if the file system does not support that, uses fsync(2)."""
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


def sync_together(paths: Collection[Path | str]) -> None:
    """Waits until all these files or directories, of one file system, are on the disk. Many of them are flushed by one
    syncfs(2), in a twentieth of the time, where that is known to be as good as fsync(2) of each."""
    if len(paths) >= MANY and _has_flushed_all(next(iter(paths))):
        return
    for path in paths:
        _sync(path, os.O_RDONLY)


def sync_file_system(path: Path) -> None:
    """Waits until everything written to the file system of `path` is on the disk, as far as the system can tell."""
    if not _has_flushed_all(path):
        os.sync()


def _has_flushed_all(path: Path | str) -> bool:
    """Flushes the file system of the path with syncfs(2); returns False where only fsync(2) is reliable. Before Linux
    5.8 syncfs(2) did not report errors of the disk."""
    if sys.platform != "linux" or tuple(map(int, re.findall(r"\d+", os.uname().release)[:2])) < (5, 8):
        return False
    if _file_system(Path(path).stat().st_dev) not in FLUSHED_AS_A_WHOLE:
        return False
    import ctypes  # only broadcasts need it

    descriptor = os.open(path, os.O_RDONLY)
    try:
        if ctypes.CDLL(None, use_errno=True).syncfs(descriptor):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    finally:
        os.close(descriptor)
    return True


def _file_system(device: int) -> str | None:
    """The type of the file system on a device, by proc(5); None if it is not listed."""
    number = f"{os.major(device)}:{os.minor(device)}"
    mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    fields = next((fields for fields in map(str.split, mounts) if fields[2] == number), None)
    return fields[fields.index("-") + 1] if fields else None


def sync_directory(path: Path | str) -> None:
    """As `sync_file`, for a directory: the names in it survive a power cut."""
    _sync(path, os.O_RDONLY | os.O_DIRECTORY)


def _sync(path: Path | str, flags: int) -> None:
    descriptor = os.open(path, flags)
    try:
        sync_file(descriptor)
    finally:
        os.close(descriptor)


# A walk through a session's directory for `doctor` and `prune`, one file at a time, however many there are.


class Node(NamedTuple):
    """A file or directory. `name` is its path in the session directory (`.` for that directory itself); `place` is the
    descriptor of its directory, valid until the next node is requested."""

    name: str
    status: os.stat_result
    place: int | None = None

    @property
    def last(self) -> str:
        """The name within `place`."""
        return self.name.rpartition("/")[2]

    @property
    def is_directory(self) -> bool:
        return stat.S_ISDIR(self.status.st_mode)

    @property
    def is_file(self) -> bool:
        return stat.S_ISREG(self.status.st_mode)

    @property
    def is_link(self) -> bool:
        return stat.S_ISLNK(self.status.st_mode)

    @property
    def mode(self) -> int:
        return stat.S_IMODE(self.status.st_mode)

    @property
    def wanted_mode(self) -> int:
        return DIRECTORY_MODE if self.is_directory else FILE_MODE

    @property
    def disk_bytes(self) -> int:
        """The bytes used on disk; `st_blocks` of stat(2) counts 512 bytes each."""
        return self.status.st_blocks * 512


def walk(base: Path) -> Iterator[Node]:
    """Yields the session directory and everything below it, the last directory of each level first, without following
    symbolic links. A file may be deleted once it was yielded. Raises `StorageError`."""
    yield Node(".", base.lstat())
    pending = [""]
    while pending:
        place = pending.pop()
        inside = []
        for node in _nodes(base, place):
            if node.is_directory:
                inside.append(f"{node.name}/")
            yield node
        pending += sorted(inside)


def _nodes(base: Path, place: str) -> Iterator[Node]:
    """Yields the entries of one directory, unordered; none if it is gone or unreadable, which its mode shows."""
    directory = f"{base}/{place}"
    missing = FileNotFoundError, PermissionError
    try:
        with storage_errors(directory, *missing), in_place(directory) as descriptor, os.scandir(descriptor) as found:
            for item in found:
                try:
                    status = item.stat(follow_symlinks=False)
                except FileNotFoundError:  # moved or deleted meanwhile
                    continue
                yield Node(place + item.name, status, descriptor)
    except missing:
        return
