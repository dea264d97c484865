"""The floors: the costs of the same operations without this program."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from watchdog.events import FileSystemEvent, FileSystemEventHandler
from watchdog.observers import Observer

from benchmarks.wire import Server

REPOSITORY = Path(__file__).parents[1]


def bare_server(directory: Path) -> Server:
    """A server of the same MCP library with one tool, `write`, that puts one file durably into the directory."""
    command = [sys.executable, "-m", "benchmarks.bare_server", str(directory)]
    return Server(command, {"PYTHONPATH": str(REPOSITORY)})


class FileEvents:
    """The latency of file events: the time until a process is notified of a new file."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._heard = threading.Event()
        self._number = 0

    def latency(self) -> float:
        """Returns the seconds from the rename that puts a file in place to the notification."""
        self._heard.clear()
        self._number += 1
        scratch = self.directory.parent / f"{self.directory.name}.tmp"
        scratch.touch()
        began = time.perf_counter()
        scratch.rename(self.directory / f"{self._number}.md")
        assert self._heard.wait(5)
        return time.perf_counter() - began

    @contextmanager
    def watched(self) -> Iterator[FileEvents]:
        """Watches with watchdog, as the product does."""
        heard = self._heard

        class Handler(FileSystemEventHandler):
            def on_created(self, event: FileSystemEvent) -> None:  # noqa: ARG002 - any file will do
                heard.set()

        observer = Observer()
        observer.schedule(Handler(), str(self.directory))
        observer.start()
        try:
            yield self
        finally:
            observer.stop()
            observer.join()
