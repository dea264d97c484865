"""The floors: the costs of the same operations without this program."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median

from nacl.signing import SigningKey
from watchdog.events import FileSystemEvent, FileSystemEventHandler
from watchdog.observers import Observer

from benchmarks.durable import durable_write
from benchmarks.timing import command_seconds
from benchmarks.wire import Server

REPOSITORY = Path(__file__).parents[1]
KILOBYTE = b"x" * 1024
FILES = 2_000

Floor = Callable[[Path], float]
"""The processor time of a thing that every machine does, in seconds; it may use the directory."""


def file_read(directory: Path) -> float:
    """A small file opened, read and closed."""
    paths = [directory / f"{number}.md" for number in range(FILES)]
    for path in paths:
        path.write_bytes(KILOBYTE)
    return median(_processor_seconds(lambda: [path.read_bytes() for path in paths]) / FILES for _ in range(5))


def file_written(directory: Path) -> float:
    """A small file put in place so that it survives a power cut."""
    return median(_processor_seconds(lambda: durable_write(directory, KILOBYTE)) for _ in range(FILES // 10))


def signature_verified(_: Path) -> float:
    """A signature verified by the library that does it for us."""
    key = SigningKey.generate()
    signature = key.sign(KILOBYTE).signature
    verify = partial(key.verify_key.verify, KILOBYTE, signature)
    return median(_processor_seconds(lambda: [verify() for _ in range(FILES)]) / FILES for _ in range(5))


def python_started(_: Path) -> float:
    """An interpreter that does nothing."""
    return median(command_seconds([sys.executable, "-c", "pass"]) for _ in range(11))


def _processor_seconds(action: Callable[[], object]) -> float:
    began = time.process_time()
    action()
    return time.process_time() - began


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
