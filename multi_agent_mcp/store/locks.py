"""All locks, in the order in which they may be taken: flock(2) between processes, a mutex within one.

A thread that holds a lock may take only locks further down in `ORDER`, which excludes deadlocks. The tests enable
`ORDER_CHECK`, which fails a thread that takes a lock out of order, or one that is not in the table.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from multi_agent_mcp.errors import StorageError
from multi_agent_mcp.system.files import FILE_MODE, make_directory, make_private, storage_errors

if TYPE_CHECKING:
    from filelock import FileLock

LOCK_SECONDS = 10.0
LOCK_POLL_SECONDS = 0.002
WINDOWS = "windows"
"""The lock of a team's windows in tmux, for `up`, `down` and the supervisor. It is taken before all others."""

SERVING, WAITER, RELAY, CHECKING, LEAVING = "serving", "waiter", "relay", "checking", "leaving"
LIFELONG = (f"{SERVING}-", f"{WAITER}-", RELAY, f"{CHECKING}-", f"{LEAVING}-")
"""Prefixes of the locks that a process holds as long as it lives, as a check runs, or as it removes an agent, for
others to see; all others are held briefly. They are not in the order, as no thread that holds another lock waits for
one longer than a moment."""


def serving_lock(agent_id: str, purpose: str) -> str:
    """Returns the name of the lock that an agent's server of this purpose holds while it rings for it."""
    return f"{SERVING}-{agent_id}-{purpose}"


def waiter_lock(agent_id: str, purpose: str) -> str:
    """Returns the name of the lock that an armed waiter holds; ids contain no dots."""
    return f"{WAITER}-{agent_id}" if purpose == "task" else f"{WAITER}-{agent_id}.{purpose}"


class Level(NamedTuple):
    """A lock, or a family of locks (`{…}` stands for any text) of which a thread holds at most one."""

    name: str
    guards: str


ORDER = (
    Level("mutex:binding", "who this process is: its session, its doorbell, its watch"),
    Level("upgrade", "a session directory that was made by an earlier version"),
    Level("windows", "the windows that the team has in tmux, and what is noted of them"),
    Level("worktrees", "the agents' worktrees, and the project's branch while something is merged"),
    Level("intents", "the intents of dead processes, while they are carried out"),
    Level("recover-{agent}", "the ending of an agent's dead sessions"),
    Level("starting-{agent}", "the beginning of a delegated conversation"),
    Level("hooks-{agent}", "what the hooks of an agent's host were told"),
    Level("offering", "who gets the mail that waits for whoever is free"),
    Level("doorbell-{agent}", "the ringing of an agent and its delivery log"),
    Level("mailbox-{agent}", "which mail of an agent is read, and its archive"),
    Level("notifications-{agent}", "which notifications of an agent are read, and their archive"),
    Level("limits-{agent}", "the usage limit that an agent's host has met"),
    Level("reserving", "which files are reserved, between the check and the reservation"),
    Level("handoffs-{agent}", "which hand-offs of an agent count, and their archive"),
    Level("delegations-{stripe}", "a delegation, between read and replace"),
    Level("questions-{stripe}", "a question, between read and replace"),
    Level("conversations-{stripe}", "a conversation, between read and replace"),
    Level("tasks-{stripe}", "a task, between read and replace"),
    Level("reservations-{stripe}", "a reservation, between read and replace"),
    Level("leasing", "the order in which commands wait for leases"),
    Level("awake", "what is noted of steps of the clock"),
    Level("watches-{stripe}", "what an agent is to be told of, between read and replace"),
    Level("offers-{stripe}", "a message that waits for whoever is free, between read and replace"),
    Level("executions-{stripe}", "an execution, between read and replace"),
    Level("sessions-{stripe}", "an agent session that somebody else ends, between read and replace"),
    Level("owner-wait-{owner}", "an Owner's wait-lock"),
    Level("dashboard", "the dashboard while it is rewritten"),
    Level("agents", "agents.json, between read and replace"),
    Level("hub-users", "who may use the hub that runs here"),
    Level("hub-start", "the start of the hub that runs here"),
    Level("journal-{name}", "a journal while it begins again"),
    Level("mutex:session", "this process's own session, in memory and in its file"),
    Level("archive-{kind}-{owner}", "what moves into an archive, and its index"),
    Level("mutex:directory", "the index of a directory"),
    Level("place-{stripe}", "a name, where the file system has no hard links"),
    Level("mutex:quarantine", "which quarantined files an agent was notified of"),
    Level("mutex:intents", "which intents this process is at"),
    Level("mutex:confirmation", "what an answer hands out, and whether anybody waits for it"),
)


class OrderViolated(BaseException):
    """Raised for a lock taken out of order. It is not an `Exception`, so that no handler turns it into an answer."""


class OrderCheck:
    """Tracks the locks of each thread once `violated`, the function to call for a wrong order, is set.

    There is one in the process, as a thread's locks concern all of it.
    """

    def __init__(self) -> None:
        self.violated: Callable[[str], None] | None = None
        self._of_thread = threading.local()

    def raise_violations(self) -> None:
        """Makes a wrong order raise `OrderViolated`."""
        self.violated = _raise

    def abort_on_violations(self) -> None:
        """Makes a wrong order abort the process with a traceback, unless it raises already: in a process spawned by a
        test an exception might end a thread unnoticed."""
        self.violated = self.violated or _abort

    def take(self, name: str, *, again: object = None) -> None:
        """Checks and records that this thread takes a lock; `again` is the lock if it is re-entrant."""
        if self.violated is None:
            return
        held = self._held()
        rank = rank_of(name)
        if rank is None:
            self.violated(f"the lock {name} is not in ORDER")
        highest = max(held, default=None)
        reentered = again is not None and any(other is again for _, _, other in held)
        if highest is not None and rank is not None and highest[0] >= rank and not reentered:
            self.violated(f"the lock {name} was taken while {highest[1]} was held")
        held.append((rank or 0, name, again))

    def drop(self, name: str) -> None:
        held = self._held()
        for place in reversed(range(len(held))):
            if held[place][1] == name:
                del held[place]
                return

    def _held(self) -> list[tuple[int, str, object]]:
        if not hasattr(self._of_thread, "held"):
            self._of_thread.held = []
        held: list[tuple[int, str, object]] = self._of_thread.held
        return held


ORDER_CHECK = OrderCheck()


def mutex(name: str) -> AbstractContextManager[object]:
    """Returns a re-entrant lock within this process, `mutex:{name}` in `ORDER`. Every look at a directory takes one."""
    return threading.RLock() if ORDER_CHECK.violated is None else _CheckedMutex(f"mutex:{name}")


class _CheckedMutex:
    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        ORDER_CHECK.take(self._name, again=self)
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()
        ORDER_CHECK.drop(self._name)


class HeldLock(NamedTuple):
    """A lock held by a thread: its file with the device and inode that were locked."""

    name: str
    path: str
    descriptor: int
    identity: tuple[int, int]

    def is_in_place(self) -> bool:
        """Returns whether the lock's path still leads to the same file."""
        return _identity(self.path) == self.identity


class _Thread(threading.local):
    def __init__(self) -> None:
        self.holds: list[HeldLock] = []


class Locks:
    """The locks of one session directory: flock(2) on `.locks/{name}.lock`. The kernel releases those of processes that
    died."""

    def __init__(self, path: Path, require_inside: Callable[[Path], None]) -> None:
        """`require_inside` raises for a directory that leads out of the session's."""
        self.path = path
        self._place = str(path)
        self._require_inside = require_inside
        self._queues: dict[str, threading.Lock] = {}
        self._thread = _Thread()

    @contextmanager
    def held(self, name: str) -> Iterator[None]:
        """Holds the lock `name`; raises `StorageError` if it is not free within `LOCK_SECONDS`.

        The threads of this process queue for it in memory; only the first of them polls the file.
        """
        ORDER_CHECK.take(name)
        try:
            deadline = time.monotonic() + LOCK_SECONDS
            queue = self._queues.setdefault(name, threading.Lock())
            if not queue.acquire(timeout=LOCK_SECONDS):
                raise StorageError("lock_timeout", name=name)
            try:
                release = self._acquired(name, deadline)
                try:
                    yield
                finally:
                    release()
            finally:
                queue.release()
        finally:
            ORDER_CHECK.drop(name)

    # flock(2) locks an inode, not a name. When `prune`, or a person, deletes the file of a lock that is held, the
    # next process makes a new file and holds "the same" lock beside us, having read what we are about to overwrite.
    # We cannot prevent the deletion, but notice it in time: every change is put in place under a shared flock on the
    # session's directory, after a look whether our locks' files still have the inodes that we locked; and a lock's
    # file is made only under the exclusive one. So either our change comes first, and the new holder reads it, or the
    # new file does, and we refuse.
    @contextmanager
    def writing(self) -> Iterator[None]:
        """A context in which to put a change in place. Raises `StorageError` if the file of a lock of this thread was
        removed: another process may have taken the lock, and read the data that this change would overwrite."""
        holds = self._thread.holds
        if not holds:
            yield
            return
        with self._directory(fcntl.LOCK_SH, holds[-1].name, time.monotonic() + LOCK_SECONDS):
            for hold in holds:
                if not hold.is_in_place():
                    raise StorageError("lock_removed", name=hold.name)
            yield

    def _acquired(self, name: str, deadline: float) -> Callable[[], None]:
        """Takes the lock and returns the function that releases it."""
        with storage_errors(self.path / name):
            try:
                hold = self._flocked(name, deadline)
            except OSError as error:
                if error.errno != errno.ENOSYS:  # ENOSYS: the file system has no flock(2)
                    raise
            else:
                self._thread.holds.append(hold)
                return partial(_give_back, hold, self._thread.holds)
            from filelock import Timeout

            lock = self.lock(name)
            try:
                lock.acquire(timeout=max(deadline - time.monotonic(), 0.0))
            except Timeout as error:
                raise StorageError("lock_timeout", name=name) from error
            return lock.release

    def _flocked(self, name: str, deadline: float) -> HeldLock:
        """Takes the lock by flock(2) alone. It excludes, and is excluded by, a `FileLock` of the same file, whose
        further features (fork, re-entrance) take twenty times as long."""
        path, pause = self._file(name), LOCK_POLL_SECONDS / 16  # most locks are held for less than a millisecond
        while True:
            self._require_inside(self.path)
            try:
                hold = self._locked(name, path)
            except FileNotFoundError:
                self._make(name, deadline)
            else:
                if hold is not None:
                    return hold
                time.sleep(pause)
                pause = min(2 * pause, LOCK_POLL_SECONDS)
            if time.monotonic() >= deadline:
                raise StorageError("lock_timeout", name=name)

    @staticmethod
    def _locked(name: str, path: str) -> HeldLock | None:
        """Takes the lock if it is free and its file still exists; else returns None."""
        descriptor, hold = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK), None
        try:
            if _is_locked_by_us(descriptor):
                status = os.fstat(descriptor)
                taken = HeldLock(name, path, descriptor, (status.st_dev, status.st_ino))
                hold = taken if taken.is_in_place() else None
        finally:
            if hold is None:
                os.close(descriptor)
        return hold

    def _make(self, name: str, deadline: float) -> None:
        """Makes a lock's file, unless the directory is removed meanwhile."""
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
        with suppress(FileNotFoundError):
            make_directory(self.path, within=self.path.parent)
            with self._directory(fcntl.LOCK_EX, name, deadline):
                descriptor = os.open(self._file(name), flags, FILE_MODE)
                try:
                    make_private(descriptor)
                finally:
                    os.close(descriptor)

    @contextmanager
    def _directory(self, operation: int, name: str, deadline: float) -> Iterator[None]:
        """Holds the flock(2) on the session's directory, briefly."""
        descriptor = os.open(self.path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            while not _try_flock(descriptor, operation):
                if time.monotonic() >= deadline:
                    raise StorageError("lock_timeout", name=name)
                time.sleep(LOCK_POLL_SECONDS)
            yield
        finally:
            _unlock(descriptor)

    def lock(self, name: str) -> FileLock:
        """Returns the lock as an object, to be held beyond a `with` statement. Use it once."""
        from filelock import FileLock  # here and below: most commands hold no such lock, and it takes long to import

        with storage_errors(self.path):
            self._require_inside(self.path)
            make_directory(self.path, within=self.path.parent)
        return FileLock(
            self._file(name),
            timeout=LOCK_SECONDS,
            mode=FILE_MODE,
            thread_local=False,
            poll_interval=LOCK_POLL_SECONDS,
        )

    def remove(self, name: str) -> None:
        """Removes the file of a lock unless it is held. A process that has just opened it notices this, and makes it
        again."""
        path = self._file(name)
        with suppress(OSError):
            hold = self._locked(name, path)
            if hold is not None:
                try:
                    Path(path).unlink()
                finally:
                    _unlock(hold.descriptor)

    def was_taken(self, name: str) -> bool:
        """Returns whether anybody has ever taken the lock, as far as its file tells, which `prune` removes."""
        return os.access(self._file(name), os.F_OK)  # a stat(2) that fails takes three times as long

    def is_held(self, name: str) -> bool:
        """Returns whether the lock `name` is held, without preventing others from taking or testing it."""
        if not self.was_taken(name):
            return False  # as most are of which a sender asks
        try:
            descriptor = os.open(self._file(name), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except OSError:
            return False  # it cannot be held
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False  # a file system without flock(2): unknown
        finally:
            os.close(descriptor)
        return False

    def all_held(self) -> list[str]:
        """Returns the names of the locks that are held, sorted."""
        return sorted(path.stem for path in self.path.glob("*.lock") if self.is_held(path.stem))

    def _file(self, name: str) -> str:
        return f"{self._place}/{name}.lock"


class Lasting:
    """A lock that this process keeps until it ends, even if its file is removed meanwhile."""

    def __init__(self, locks: Locks, name: str, seconds: float) -> None:
        """Takes the lock; raises `Timeout` if it is not free within `seconds`."""
        self._locks = locks
        self._name = name
        self._seconds = seconds
        self._taken: list[FileLock] = []  # the former ones, too: a lock that nobody refers to is released
        self._take()

    def _take(self) -> None:
        lock = self._locks.lock(self._name)
        lock.acquire(timeout=self._seconds)
        self._taken.append(lock)
        self._identity = _identity(lock.lock_file)

    def keep(self) -> bool:
        """Takes the lock again if its file was removed; returns False if another process has it then. Raises
        `StorageError` and OSError."""
        from filelock import Timeout

        if self._identity is None or _identity(self._taken[0].lock_file) != self._identity:
            try:
                self._take()
            except Timeout:  # `is_held` takes it, too, but only for a moment
                return False
        return True

    def close(self) -> None:
        for lock in self._taken:
            lock.release()


def _identity(path: str) -> tuple[int, int] | None:
    """Returns the device and inode of a file; None if there is none."""
    try:
        found = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino


def _is_locked_by_us(descriptor: int) -> bool:
    """Takes the exclusive flock(2) of a lock's file; returns False if another process has it. Raises OSError on a
    file system that has none."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):  # some file systems say EACCES instead of EWOULDBLOCK
        return False
    return True


def _try_flock(descriptor: int, operation: int) -> bool:
    """Takes a flock(2); returns False if a conflicting one is held. A file system that cannot lock directories (NFS)
    counts as success; one without flock(2) raises OSError."""
    try:
        fcntl.flock(descriptor, operation | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno == errno.ENOSYS:
            raise
    return True


def _give_back(hold: HeldLock, holds: list[HeldLock]) -> None:
    holds.remove(hold)
    _unlock(hold.descriptor)


def _unlock(descriptor: int) -> None:
    """Unlocks and closes a descriptor. Closing alone would not release the lock if a forked child has it, too."""
    try:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        os.close(descriptor)


@cache
def rank_of(name: str) -> int | None:
    """Returns the index of a lock in `ORDER`; None if it is not there."""
    return next((rank for rank, level in enumerate(ORDER) if _pattern(level).fullmatch(name)), None)


@cache
def _pattern(level: Level) -> re.Pattern[str]:
    return re.compile(re.sub(r"\\\{\w+\\\}", ".+", re.escape(level.name)))


def _raise(problem: str) -> None:
    raise OrderViolated(problem)


def _abort(problem: str) -> None:
    import traceback

    traceback.print_stack()
    sys.stderr.write(f"Traceback: {problem}\n")
    sys.stderr.flush()
    os.abort()
