"""Locks between processes and threads: flock(2) on `.locks/{name}.lock`. The kernel takes them back from the dead."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from multi_agent_mcp.errors import StorageError
from multi_agent_mcp.store.disk import FILE_MODE, make_directory, storage_errors
from multi_agent_mcp.store.enclosure import Enclosure

LOCK_SECONDS = 10.0
LOCK_POLL_SECONDS = 0.002

WINDOWS = "windows"
"""What a team has open in tmux: `up`, `down` and the supervisor look and act under it. Taken before any other lock."""

SERVING, WAITER = "serving", "waiter"
LIFELONG = (f"{SERVING}-", f"{WAITER}-")
"""How the locks begin that a process holds for as long as it lives, for others to see; all others are held briefly."""


class Locks:
    """The locks of one session directory."""

    def __init__(self, path: Path, enclosure: Enclosure) -> None:
        self.path = path
        self.enclosure = enclosure

    @contextmanager
    def held(self, name: str) -> Iterator[None]:
        """Holds the lock `name`; raises `StorageError` after ten seconds."""
        with storage_errors(self.path / name):
            lock = self.lock(name)
            try:
                lock.acquire()
            except Timeout as error:
                raise StorageError("lock_timeout", name=name) from error
        try:
            yield
        finally:
            lock.release()

    def lock(self, name: str) -> FileLock:
        """The lock itself, for those who hold it beyond a `with`. Use it once."""
        with storage_errors(self.path):
            self.enclosure.require(self.path)
            make_directory(self.path)
        return FileLock(
            self._file(name),
            timeout=LOCK_SECONDS,
            mode=FILE_MODE,
            thread_local=False,
            poll_interval=LOCK_POLL_SECONDS,
        )

    def is_held(self, name: str) -> bool:
        """Whether somebody holds the lock `name`, asked without being in anybody's way: several may ask at once."""
        try:
            descriptor = os.open(self._file(name), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            return False  # nobody has ever held it, or nobody can
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False  # a file system without flock(2): nobody can be known to hold it
        finally:
            os.close(descriptor)
        return False

    def all_held(self) -> list[str]:
        """The names of those that somebody holds at this moment, sorted."""
        return sorted(path.stem for path in self.path.glob("*.lock") if self.is_held(path.stem))

    def _file(self, name: str) -> str:
        return f"{self.path}/{name}.lock"
