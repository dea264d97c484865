"""Who changed what: file events of a few directories, from watchdog (inotify, FSEvents, kqueue; polling at need)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from multi_agent_mcp.store.disk import make_directory

if TYPE_CHECKING:
    from watchdog.observers.api import BaseObserver

logger = logging.getLogger(__name__)

POLLING_SECONDS = 1.0
PASSED_OVER = frozenset({".tmp", ".locks"})


class Watch:
    """Calls `changed(directory)` from a thread of its own whenever a `*.md` file was put into, written in or taken
    out of one of the directories. Use as a context manager. `degraded` says that only polling was to be had."""

    recursive = False

    def __init__(self, directories: Iterable[Path], changed: Callable[[Path], None]) -> None:
        self.degraded: str | None = None
        self._directories = list(directories)
        self._changed = changed
        self._observer: BaseObserver | None = None

    def __enter__(self) -> Watch:
        for directory in self._directories:
            make_directory(directory)
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

        noticed = self._noticed

        class Handler(events.FileSystemEventHandler):
            def on_any_event(self, event: events.FileSystemEvent) -> None:
                noticed(Path(str(event.dest_path or event.src_path)))

        telling: list[type[events.FileSystemEvent]] = [
            events.FileCreatedEvent,
            events.FileMovedEvent,
            events.FileClosedEvent,
            events.FileDeletedEvent,
        ]

        observer: BaseObserver = PollingObserver(timeout=POLLING_SECONDS) if polling else Observer(timeout=0.2)
        for directory in self._directories:
            observer.schedule(Handler(), str(directory), recursive=self.recursive, event_filter=telling)
        observer.start()
        return observer

    def _noticed(self, path: Path) -> None:
        if path.suffix == ".md" and not path.name.startswith("."):
            self._changed(path.parent)


class TreeWatch(Watch):
    """Calls `changed(path)`, relative to the directory, for whatever changes anywhere below it: what looks at a whole
    session. Locks and half-written files are passed over."""

    recursive = True

    def __init__(self, directory: Path, changed: Callable[[Path], None]) -> None:
        self._directory = directory.resolve()  # FSEvents names what changed by its real path
        super().__init__([self._directory], changed)

    def _noticed(self, path: Path) -> None:
        with suppress(ValueError):  # moved out of the tree
            inside = path.relative_to(self._directory)
            if inside.parts and inside.parts[0] not in PASSED_OVER:
                self._changed(inside)


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
        """Nobody waits any longer."""
        self.closed = True
        self.notify()

    def wait(self, seen: int, seconds: float) -> None:
        """Returns when the count is no longer `seen`, or after `seconds`."""
        with self._condition:
            self._condition.wait_for(lambda: self.count != seen, timeout=seconds)
