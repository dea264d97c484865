"""Synchronous queries of inotify(7): the names in a directory that have changed since the last query.

The kernel queues an event before the call that causes it returns, and a query reads the queue, so it reports everything
done before it. watchdog cannot guarantee that, because its thread reads the queue some time later. Where inotify is not
available (another system, no instance left, a file system that other machines write to), no watch is given, and callers
examine the files. The kernel does not report writes through a hard link outside the directory, and those to a mapped
file before it is closed.
"""

from __future__ import annotations

import os
import struct
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from weakref import WeakSet

MODIFY, ATTRIB, CLOSE_WRITE, MOVED, CREATE, DELETE = 0x2, 0x4, 0x8, 0xC0, 0x100, 0x200
DELETE_SELF, MOVE_SELF, UNMOUNT, OVERFLOW, IGNORED = 0x400, 0x800, 0x2000, 0x4000, 0x8000
TOLD = MODIFY | ATTRIB | CLOSE_WRITE | MOVED | CREATE | DELETE | DELETE_SELF | MOVE_SELF
LOST = DELETE_SELF | MOVE_SELF | UNMOUNT | IGNORED
"""Events after which a watch reports nothing more, or not about its directory."""
HEADER = struct.Struct("iIII")
BUFFER = 1 << 16
NAMES_MAX = 10_000
"""The most names that a watch collects between queries; beyond that, examining all files is faster."""
LOCAL = frozenset({0xEF53, 0x58465342, 0x9123683E, 0x01021994, 0xF2F52010, 0x2FC12FC1, 0xCA451A4E})
"""ext2 to ext4, XFS, Btrfs, tmpfs, F2FS, ZFS, bcachefs (statfs(2)): file systems that only this kernel changes."""


class Watch:
    """A watch of one directory. Query it before examining files, and examine all of them if the result is None."""

    def __init__(self, inotify: Inotify, path: Path) -> None:
        self._inotify = inotify
        self._path = path
        self._identity, self._descriptor = inotify.follow(self, path)
        self.names: set[str] = set()
        self.lost = False

    def changed(self) -> set[str] | None:
        """The names that have changed since the last query; None if the watch cannot be used any more, because events
        were lost or the path now leads elsewhere."""
        with self._inotify.mutex:
            try:
                status = self._path.stat()
                self._inotify.read()
            except OSError:
                self.lost = True
            if self.lost or (status.st_dev, status.st_ino) != self._identity:
                self._inotify.leave(self, self._descriptor)
                return None
            found, self.names = self.names, set()
            return found


class Inotify:
    """One inotify instance, created when first needed: a user has only 128, and processes that ring already use one.
    `scratch` is a directory of ours for testing that it works."""

    def __init__(self, scratch: Path) -> None:
        self.mutex = threading.RLock()
        self._scratch = scratch
        self._owner = 0
        self._descriptor: int | None = None
        self._watches: defaultdict[int, WeakSet[Watch]] = defaultdict(WeakSet)

    def watch(self, path: Path) -> Watch | None:
        """Returns a watch of the directory; None where inotify is not reliable."""
        with self.mutex, suppress(OSError, AttributeError):  # a C library without these calls
            if self._is_ready() and _file_system(path) in LOCAL:
                return Watch(self, path)
        return None

    def follow(self, watch: Watch, path: Path) -> tuple[tuple[int, int], int]:
        """Registers a watch; returns its directory's device and inode, and the watch descriptor. Raises `OSError`."""
        directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:  # by its descriptor, because the path may lead elsewhere in the next call
            status = os.fstat(directory)
            found = _call("inotify_add_watch", self._descriptor, b"/proc/self/fd/%d" % directory, TOLD)
        finally:
            os.close(directory)
        self._watches[found].add(watch)
        return (status.st_dev, status.st_ino), found

    def leave(self, watch: Watch, descriptor: int) -> None:
        """Unregisters a watch; in a forked child without telling the kernel, because the queue is the parent's."""
        self._watches[descriptor].discard(watch)
        self._drop_if_unused(descriptor)

    def read(self) -> None:
        """Distributes the queued events to the watches. Raises `OSError`, also in a forked child."""
        if self._descriptor is None or self._owner != os.getpid():
            raise ProcessLookupError
        with suppress(BlockingIOError):
            while True:
                for descriptor, kind, name in _events(os.read(self._descriptor, BUFFER)):
                    self._tell(descriptor, kind, name)

    def _tell(self, descriptor: int, kind: int, name: str) -> None:
        concerned = [descriptor] if kind & OVERFLOW == 0 else list(self._watches)
        for one in concerned:
            for watch in self._watches[one]:
                watch.names.add(name)
                watch.lost = watch.lost or bool(kind & (LOST | OVERFLOW)) or len(watch.names) > NAMES_MAX
            self._drop_if_unused(one)

    def _drop_if_unused(self, descriptor: int) -> None:
        """Removes the watches that have lost events, and the kernel's watch if none is left."""
        for watch in [watch for watch in self._watches[descriptor] if watch.lost]:
            self._watches[descriptor].discard(watch)
        if not self._watches[descriptor]:
            del self._watches[descriptor]
            if self._owner == os.getpid():
                with suppress(OSError):  # the kernel's watch ended with its directory
                    _call("inotify_rm_watch", self._descriptor, descriptor)

    def _is_ready(self) -> bool:
        if self._owner != os.getpid():
            self._owner, self._descriptor = os.getpid(), None
            self._watches.clear()
            if sys.platform == "linux":
                self._descriptor = _call("inotify_init1", os.O_NONBLOCK | os.O_CLOEXEC)
                if not self._works():
                    os.close(self._descriptor)
                    self._descriptor = None
        return self._descriptor is not None

    def _works(self) -> bool:
        """Whether a file created here is reported."""
        try:
            watch, probe = Watch(self, self._scratch), self._scratch / f"{os.getpid()}.probe.tmp"
            probe.touch()
            probe.unlink()
            return probe.name in (watch.changed() or ())
        except OSError:
            return False
        finally:
            for descriptor in list(self._watches):
                self._watches[descriptor].clear()
                self._drop_if_unused(descriptor)


def _events(data: bytes) -> Iterator[tuple[int, int, str]]:
    at = 0
    while at < len(data):
        descriptor, kind, _, length = HEADER.unpack_from(data, at)
        at += HEADER.size + length
        yield descriptor, kind, os.fsdecode(data[at - length : at].rstrip(b"\0"))


def _call(name: str, *arguments: Any) -> int:
    """Calls a function of the C library. Raises `OSError`."""
    import ctypes  # here: most processes never watch anything

    result: int = getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), name)
    return result


def _file_system(path: Path) -> int:
    """The type of the file system: the first word of the result of statfs(2)."""
    import ctypes

    found = (ctypes.c_long * 64)()
    _call("statfs", os.fsencode(path), found)
    return found[0] & 0xFFFFFFFF
