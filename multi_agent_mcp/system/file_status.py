"""The status of files and directories (stat(2)), whether it may be cached and whether anything in a tree has changed;
and git's working trees, by their files alone (gitrepository-layout(5)).

`hook` imports this module, and a host waits for it at every tool call: so it starts no program and imports nothing
slow, not even pathlib.
"""

from __future__ import annotations

import os
import stat
import time
from contextlib import contextmanager

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
    from typing import Any, TypeVar

    T = TypeVar("T")

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
    except (FileNotFoundError, NotADirectoryError):
        return 0


def are_unchanged(seen: Mapping[str, int]) -> bool:
    """Whether the files and directories at these paths still have these modification times (see `modified_at`)."""
    try:
        for path, mtime in seen.items():  # a generator would take as long again: every call asks this several times
            if modified_at(path) != mtime:
                return False
    except OSError:
        return False
    return True


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


def settled_times(*paths: str | os.PathLike[str]) -> tuple[int, ...] | None:
    """The modification times of files and directories, None while one is too recent to be relied on (`is_settled`)."""
    looked_at = time.time_ns()
    times = tuple(map(modified_at, paths))
    return times if is_settled(max(times), looked_at) else None


class Memory:
    """Values that were made from something, by `key`, each good while the `state` of that is the same: the
    `settled_times` of directories, say. With `good_for`, a value is good for so long at most by the `clock`.
    It keeps as many values as are asked for, or `most`; none whose state is None, as that cannot be relied on, and no
    value of None.

    The state is taken before the value is made, so that what changes meanwhile is seen the next time. A value is kept
    in one step, so that threads may share a memory; each of several at once makes its own."""

    def __init__(self, most: int | None = None) -> None:
        self._most = most
        self._kept: dict[Hashable, tuple[Hashable, Any, Any]] = {}

    def get(
        self,
        state: Hashable,
        make: Callable[[], T],
        *,
        key: Hashable = None,
        clock: Callable[[], Any] = time.monotonic,
        good_for: Any = None,
    ) -> T:
        """The value of this key for this state: the one that is kept, or a new one."""
        kept = self._kept.get(key)
        if kept is not None and kept[0] == state and (good_for is None or kept[1] <= clock() < kept[1] + good_for):
            found: T = kept[2]
            return found
        value = make()
        if self._most is not None and len(self._kept) >= self._most:
            self._kept.clear()
        if state is not None and value is not None:
            self._kept[key] = state, clock(), value
        return value

    def known(self, state: Hashable, key: Hashable = None) -> Any:
        """What is kept of this key for this state, whenever it was made; None if nothing is."""
        kept = self._kept.get(key)
        return kept[2] if kept is not None and kept[0] == state else None

    def forget(self) -> None:
        self._kept.clear()


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


class TreeState:
    """The state of a directory and of those in it, down to `DEPTH` levels below it; archives are deeper.
    `left_out` and `growing` are names in the directory itself: what nobody asks for, and what is appended to.

    It costs one stat(2) for each directory: every atomic change in one sets its modification time (`modified_at`). What
    is edited in place or appended to does not; directories whose files grow are therefore looked at file by file.
    """

    DEPTH = 2

    def __init__(self, base: str | os.PathLike[str], *, left_out: Collection[str], growing: Collection[str]) -> None:
        self._base = os.fspath(base)
        self._left_out = left_out
        self._growing = growing
        self._known = Memory()

    def now(self) -> int | None:
        """A number that differs once anything has changed; None while the last change is so recent that another one
        might not be seen (`is_settled`)."""
        looked_at = time.time_ns()
        times = tuple(self._times(self._base, self.DEPTH))
        return hash(times) if is_settled(max(times), looked_at) else None

    def _times(self, directory: str, depth: int) -> Iterator[int]:
        try:
            modified = os.stat(directory).st_mtime_ns  # noqa: PTH116 - a `Path` takes ten times as long
        except OSError:
            yield 0
            return
        yield modified
        for below in self._below(directory, modified) if depth else ():
            yield from self._times(below, depth - 1)

    def _below(self, directory: str, modified: int) -> list[str]:
        """What has to be looked at in a directory, listed again only when it has changed."""
        return self._known.get(modified, lambda: sorted(self._listed(directory)), key=directory)

    def _listed(self, directory: str) -> Iterator[str]:
        grows = directory != self._base and directory[len(self._base) + 1 :] in self._growing
        try:
            with os.scandir(directory) as found:
                for item in found:
                    is_asked_for = directory != self._base or item.name not in self._left_out
                    if is_asked_for and (grows or stat.S_ISDIR(item.stat(follow_symlinks=False).st_mode)):
                        yield item.path
        except OSError:  # gone, or going
            return


def tree_of(path: str) -> str | None:
    """The working tree that contains this absolute path, whether it exists or not; None outside of any."""
    place = os.path.realpath(os.path.dirname(path))  # noqa: PTH120 - see above
    while not os.path.lexists(f"{place}/.git"):
        place, before = os.path.dirname(place), place  # noqa: PTH120 - see above
        if place == before:
            return None
    return place


def within(tree: str, path: str) -> str | None:
    """The path relative to the tree, as git spells it; None for one outside of it."""
    place = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))  # noqa: PTH118, PTH119, PTH120
    return place.removeprefix(f"{tree.rstrip('/')}/") if place.startswith(f"{tree.rstrip('/')}/") else None


def common_directory(tree: str) -> str:
    """The directory that all worktrees of a repository share (git-worktree(1), DETAILS): the repository's own."""
    try:
        with open(f"{tree}/.git", encoding="utf-8", errors="surrogateescape") as file:
            link = file.read().removeprefix("gitdir:").strip()
    except OSError:  # a directory: the main working tree
        return f"{tree}/.git"
    own = os.path.join(tree, link)  # noqa: PTH118 - see above
    try:
        with open(f"{own}/commondir", encoding="utf-8", errors="surrogateescape") as file:
            return os.path.normpath(os.path.join(own, file.read().strip()))  # noqa: PTH118 - see above
    except OSError:
        return os.path.normpath(own)
