"""File events of a few directories, from watchdog (inotify, FSEvents, kqueue). Where the system provides none, the
directories' modification times are polled once a second."""

from __future__ import annotations

import logging
import os
import sys
import threading
import warnings
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from multi_agent_mcp.system.file_status import is_own_directory, modified_at
from multi_agent_mcp.system.files import make_directory

if TYPE_CHECKING:
    from watchdog.events import FileSystemEvent, FileSystemEventHandler
    from watchdog.observers.api import BaseObserver, ObservedWatch

logger = logging.getLogger(__name__)
# watchdog complains of a thread of its own that has just ended, on stderr where no log is set up.
logging.getLogger("watchdog").addHandler(logging.NullHandler())

POLLING_SECONDS = 1.0
LOOKS_AFTER_A_CHANGE = 3
"""How often a changed directory is reported: a file being written there is completed without changing the directory's
time again."""
INSTANCES = Path("/proc/sys/fs/inotify/max_user_instances")
RELAY_STATE = Path(".share", "state.json")
"""The file below an ignored directory that is reported nevertheless: the connection to other machines."""
IGNORED = frozenset({".tmp", ".locks", RELAY_STATE.parts[0]})


class Watch:
    """A context manager that calls `changed(directory)`, from a thread of its own, whenever a `*.md` file was created,
    written or removed in one of the directories. `degraded` says why only polling is available, which costs a stat(2) a
    second for each directory and misses writes into existing files.

    Where the system reports less precisely than inotify, `changed` is called for other files, too."""

    def __init__(self, directories: Iterable[Path], changed: Callable[[Path], None]) -> None:
        self.degraded: str | None = None
        self._directories = list(directories)
        self._changed = changed
        self._observer: BaseObserver | _Polling | None = None
        self._by_path: dict[str, Path] = {}

    def __enter__(self) -> Watch:
        for directory in self._directories:
            make_directory(directory, within=directory.parents[1])  # `{session}/{kind}/{agent}`
            # FSEvents reports /private/tmp for /tmp.
            self._by_path |= {str(directory): directory, os.path.realpath(directory): directory}
        try:
            self._observer = self._start()
        except OSError as error:  # inotify instances or watches are used up
            self.degraded = f"no file events are available ({error}); looking once a second instead"
            logger.warning("%s", self.degraded)
            self._observer = _Polling(self._directories_to_poll, self._changed_path)
            self._observer.start()
        return self

    @property
    def runs(self) -> bool:
        """Whether it was entered."""
        return self._observer is not None

    def __exit__(self, *_: object) -> None:
        if self._observer is not None:
            self._observer.stop()
            if threading.current_thread() is not self._observer:
                self._observer.join(timeout=1.0)

    def _start(self) -> BaseObserver:
        # Imported here, because it takes 40 ms, which would delay the server's first answer.
        from watchdog import events
        from watchdog.observers import Observer

        # watchdog warns when an event arrives while its thread ends, and when it comes to know a directory twice that
        # appears while its parent is looked through. Both are harmless.
        logging.getLogger("watchdog").setLevel(logging.ERROR)
        logging.getLogger("watchdog.observers.inotify").addFilter(_is_of_a_living_thread)
        warnings.filterwarnings("ignore", "Callback with id", RuntimeWarning)
        if _has_inotify():
            _report_moves_at_once()
        noticed = self._noticed

        class Handler(events.FileSystemEventHandler):
            def on_any_event(self, event: events.FileSystemEvent) -> None:
                for path in filter(None, (event.src_path, event.dest_path)):
                    noticed(Path(str(path)))

        observer = Observer(timeout=0.2)
        observer.start()
        try:
            self._schedule(observer, Handler())
        except OSError:
            observer.stop()
            raise
        return observer

    def _schedule(self, observer: BaseObserver, handler: FileSystemEventHandler) -> None:
        for directory in self._directories:
            observer.schedule(handler, str(directory), event_filter=_reported_events())

    def _directories_to_poll(self) -> list[Path]:
        return self._directories

    def _changed_path(self, path: Path) -> None:
        """Called when polling finds that one of `_directories_to_poll` has changed."""
        self._changed(path)

    def _noticed(self, path: Path) -> None:
        if path.suffix == ".md" and not path.name.startswith("."):
            path = path.parent
        if (directory := self._by_path.get(str(path))) is not None:
            self._changed(directory)


class TreeWatch(Watch):
    """Calls `changed(path)`, with the path relative to the directory, for every change anywhere below it, for views of
    a whole session. Locks and scratch files are ignored."""

    def __init__(self, directory: Path, changed: Callable[[Path], None]) -> None:
        self._directory = directory.resolve()  # FSEvents reports real paths
        super().__init__([self._directory], changed)
        self._last_changed: dict[Path, int] = {}
        self._followed: dict[Path, ObservedWatch] = {}
        self._follow: Callable[[Path], None] | None = None

    def _schedule(self, observer: BaseObserver, handler: FileSystemEventHandler) -> None:
        """Watches each directory of the session by itself where there is inotify. A watch of the whole tree would
        report scratch files, too: each event wakes three threads, which delays this process while others write."""
        if not _has_inotify():
            observer.schedule(handler, str(self._directory), recursive=True)
            return

        def follow(path: Path) -> None:
            if (former := self._followed.pop(path, None)) is not None:  # it was deleted and created again
                observer.unschedule(former)
            if path.name not in IGNORED or path.name == RELAY_STATE.parts[0]:
                recursive, reported = path.name not in IGNORED, _reported_events()
                self._followed[path] = observer.schedule(handler, str(path), recursive=recursive, event_filter=reported)

        self._follow = follow
        observer.schedule(handler, str(self._directory), event_filter=_reported_events(directories=True))
        for path in self._directory.iterdir():
            if is_own_directory(path):
                follow(path)

    def _noticed(self, path: Path) -> None:
        if self._follow is not None and path.parent == self._directory and is_own_directory(path):
            with suppress(OSError):  # it is gone again
                self._follow(path)
            for place, _, names in os.walk(path):  # passes over what is deleted meanwhile
                for name in names:
                    self._noticed(Path(place, name))
            return
        with suppress(ValueError):  # moved out of the tree
            inside = path.relative_to(self._directory)
            if inside == RELAY_STATE or (inside.parts and inside.parts[0] not in IGNORED):
                self._changed(inside)
            elif not _has_inotify():
                self._look()

    def _look(self) -> None:
        """Reports the directories whose modification time has changed. FSEvents takes a file that was linked right
        after its scratch file was created for an old one, and reports only the scratch file."""
        for directory in self._directories_to_poll():
            with suppress(OSError):
                changed = directory.stat().st_mtime_ns
                if self._last_changed.get(directory) != changed:
                    self._changed_path(directory)
                self._last_changed[directory] = changed

    def _directories_to_poll(self) -> list[Path]:
        """The directories down to those of single agents and conversations, and the delivery logs, which are appended
        to in place."""
        found = chain.from_iterable(map(self._directory.glob, ("*/", "*/*/", ".doorbell/*")))
        paths = [path for path in found if path.relative_to(self._directory).parts[0] not in IGNORED]
        return [*paths, self._directory / RELAY_STATE]

    def _changed_path(self, path: Path) -> None:
        self._changed(path.relative_to(self._directory))


class _Polling(threading.Thread):
    """A thread that reports the paths whose modification time has changed, within a second."""

    def __init__(self, paths: Callable[[], Iterable[Path]], changed: Callable[[Path], None]) -> None:
        super().__init__(name="polling", daemon=True)
        self._paths = paths
        self._changed = changed
        self._closing = threading.Event()
        self._seen = {path: modified_at(path) for path in paths()}
        self._left: dict[Path, int] = {}

    def run(self) -> None:
        while not self._closing.wait(POLLING_SECONDS):
            for path in self._paths():
                with suppress(OSError):
                    self._look(path)

    def _look(self, path: Path) -> None:
        modified = modified_at(path)
        if self._seen.get(path) != modified:
            self._left[path] = LOOKS_AFTER_A_CHANGE
            self._seen[path] = modified
        if self._left.get(path, 0) > 0:
            self._left[path] -= 1
            self._changed(path)

    def stop(self) -> None:
        self._closing.set()


def instances_max() -> int | None:
    """The number of processes of a user that can have file events at once (inotify(7)); None if there is no limit."""
    try:
        return int(INSTANCES.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def _is_of_a_living_thread(record: logging.LogRecord) -> bool:
    """Whether a line of watchdog's log says something else than that one of its threads has found itself stopped, as a
    thread that was stopped between two events does."""
    return "called when the thread is inactive" not in str(record.msg)


def _has_inotify() -> bool:
    return sys.platform == "linux"


def _report_moves_at_once() -> None:
    """Makes watchdog report a file that leaves a directory when it does. It would keep that back for half a second, as
    the file might come into another one, and with it all that happens meanwhile: mail that comes after mail that was
    read goes to the archive."""
    from watchdog.observers.inotify_move_event_grouper import InotifyMoveEventGrouper

    InotifyMoveEventGrouper.delay = 0.0


def _reported_events(*, directories: bool = False) -> list[type[FileSystemEvent]] | None:
    """The events of files, and on request of new directories, to ask for; None for all of them. inotify reports when a
    file is complete, but also our own reading. The others have no such event, and FSEvents sometimes reports only the
    directory."""
    if not _has_inotify():
        return None
    from watchdog import events

    files = [events.FileCreatedEvent, events.FileMovedEvent, events.FileClosedEvent, events.FileDeletedEvent]
    return [*files, events.DirCreatedEvent, events.DirMovedEvent] if directories else files


class Changes:
    """Lets threads wait for changes: read `seen = changes.count`, look, then call `changes.wait(seen, seconds)`.

    A change between the look and the wait is not missed.
    """

    def __init__(self) -> None:
        self.count = 0
        self.closed = False
        self._condition = threading.Condition()

    def notify(self) -> None:
        with self._condition:
            self.count += 1
            self._condition.notify_all()

    def close(self) -> None:
        """Ends all waiting, and sets `closed`."""
        self.closed = True
        self.notify()

    def wait(self, seen: int, seconds: float) -> None:
        """Returns when the count is no longer `seen`, or after `seconds`."""
        with self._condition:
            self._condition.wait_for(lambda: self.count != seen, timeout=seconds)
