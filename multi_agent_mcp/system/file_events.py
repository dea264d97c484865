"""Who changed what: file events of a few directories, from watchdog (inotify, FSEvents, kqueue; polling at need)."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from multi_agent_mcp.system.disk import make_directory

if TYPE_CHECKING:
    from watchdog.observers.api import BaseObserver

logger = logging.getLogger(__name__)

POLLING_SECONDS = 1.0
INSTANCES = Path("/proc/sys/fs/inotify/max_user_instances")
PASSED_OVER = frozenset({".tmp", ".locks", ".share"})


class Watch:
    """Calls `changed(directory)` from a thread of its own whenever a `*.md` file was put into, written in or taken
    out of one of the directories. Use as a context manager. `degraded` says that only polling was to be had.

    Where the system tells less exactly than inotify what has happened, it is called for other files, too."""

    recursive = False

    def __init__(self, directories: Iterable[Path], changed: Callable[[Path], None]) -> None:
        self.degraded: str | None = None
        self._directories = list(directories)
        self._changed = changed
        self._observer: BaseObserver | None = None
        self._by_path: dict[str, Path] = {}

    def __enter__(self) -> Watch:
        for directory in self._directories:
            make_directory(directory)
            # FSEvents speaks of /private/tmp where /tmp was asked for.
            self._by_path |= {str(directory): directory, os.path.realpath(directory): directory}
        try:
            self._observer = self._start(polling=False)
        except OSError as error:  # inotify instances or watches are used up
            self.degraded = f"file events are not to be had ({error}); looking once a second instead"
            logger.warning("%s", self.degraded)
            self._observer = self._start(polling=True)
        return self

    def __exit__(self, *_: object) -> None:
        if self._observer is not None:
            self._observer.stop()
            if threading.current_thread() is not self._observer:
                self._observer.join(timeout=1.0)

    def _start(self, *, polling: bool) -> BaseObserver:
        # Imported here: 40 ms that the server's first answer need not wait for.
        from watchdog import events
        from watchdog.observers import Observer
        from watchdog.observers.polling import PollingObserver

        # It warns when an event arrives while its thread ends, which is no news to anybody who stops watching.
        logging.getLogger("watchdog").setLevel(logging.ERROR)
        noticed = self._noticed

        class Handler(events.FileSystemEventHandler):
            def on_any_event(self, event: events.FileSystemEvent) -> None:
                for path in filter(None, (event.src_path, event.dest_path)):
                    noticed(Path(str(path)))

        # inotify says when a file is whole, and would tell of our own looking, too. The others know no such event, and
        # FSEvents at times speaks of the directory only.
        telling: list[type[events.FileSystemEvent]] | None = [
            events.FileCreatedEvent,
            events.FileMovedEvent,
            events.FileClosedEvent,
            events.FileDeletedEvent,
        ]
        if polling or not _has_inotify():
            telling = None

        observer: BaseObserver = PollingObserver(timeout=POLLING_SECONDS) if polling else Observer(timeout=0.2)
        for directory in self._directories:
            observer.schedule(Handler(), str(directory), recursive=self.recursive, event_filter=telling)
        observer.start()
        return observer

    def _noticed(self, path: Path) -> None:
        if path.suffix == ".md" and not path.name.startswith("."):
            path = path.parent
        if (directory := self._by_path.get(str(path))) is not None:
            self._changed(directory)


class TreeWatch(Watch):
    """Calls `changed(path)`, relative to the directory, for whatever changes anywhere below it: what looks at a whole
    session. Locks and half-written files are passed over."""

    recursive = True

    def __init__(self, directory: Path, changed: Callable[[Path], None]) -> None:
        self._directory = directory.resolve()  # FSEvents names what changed by its real path
        super().__init__([self._directory], changed)
        self._last_changed: dict[Path, int] = {}

    def _noticed(self, path: Path) -> None:
        with suppress(ValueError):  # moved out of the tree
            inside = path.relative_to(self._directory)
            if inside.parts and inside.parts[0] not in PASSED_OVER:
                self._changed(inside)
            elif not _has_inotify():
                self._look()

    def _look(self) -> None:
        """Tells of the directories whose modification time has moved. FSEvents takes a file that was linked right after
        its scratch file was made for one that was there before, and says nothing of it but where the scratch was."""
        for directory in (*self._directory.glob("*/"), *self._directory.glob("*/*/")):
            with suppress(OSError):
                changed = directory.stat().st_mtime_ns
                inside = directory.relative_to(self._directory)
                if self._last_changed.get(inside) != changed and inside.parts[0] not in PASSED_OVER:
                    self._changed(inside)
                self._last_changed[inside] = changed


def instances_max() -> int | None:
    """How many processes of a user can have file events at once (inotify(7)); None where there is no such limit."""
    try:
        return int(INSTANCES.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return None


def _has_inotify() -> bool:
    return sys.platform == "linux"


class Changes:
    """Lets threads wait until something was changed: `seen = changes.count`, look, `changes.wait(seen, seconds)`.

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
        """Ends all waiting, now and later."""
        self.closed = True
        self.notify()

    def wait(self, seen: int, seconds: float) -> None:
        """Returns when the count is no longer `seen`, or after `seconds`."""
        with self._condition:
            self._condition.wait_for(lambda: self.count != seen, timeout=seconds)
