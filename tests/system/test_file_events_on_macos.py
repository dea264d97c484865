"""File events where FSEvents tells them: watchdog's own translation of them, fed with what macOS reports."""

from __future__ import annotations

import importlib
import os
import queue
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import pytest

from multi_agent_mcp.store.durable_files import Files
from multi_agent_mcp.system.file_events import TreeWatch, Watch
from tests.store.support import mailbox, message

PATIENCE_SECONDS = 60.0


@dataclass
class NativeEvent:
    """An event of macOS for one path, with the flags of FSEvents that watchdog reads."""

    path: str
    inode: int
    flags: frozenset[str]
    event_id: int = 0

    def __getattr__(self, name: str) -> bool:
        if not name.startswith("is_"):
            raise AttributeError(name)
        return name in self.flags


class Stream:
    """The part of watchdog that is written in C: hands what the kernel reports to a callback."""

    started: ClassVar[list[Stream]] = []

    def __init__(self, *_: Any, **__: Any) -> None:
        self._stopped = threading.Event()
        self._callback: Callable[..., None] = print

    def run(self, callback: Callable[..., None], ready: Callable[[], None]) -> None:
        self._callback = callback
        Stream.started.append(self)
        ready()
        self._stopped.wait()

    def stop(self) -> None:
        self._stopped.set()

    def report(self, path: Path, *flags: str, inode: int | None = None) -> None:
        number = path.stat().st_ino if inode is None else inode
        kind = ("is_directory",) if path.is_dir() else ()
        self._callback([os.path.realpath(path)], [number], [frozenset((*flags, *kind))], [0])


@pytest.fixture
def macos(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Stream]]:
    native: Any = ModuleType("_watchdog_fsevents")
    native.Stream, native.NativeEvent = Stream, NativeEvent
    monkeypatch.setitem(sys.modules, "_watchdog_fsevents", native)
    fsevents = importlib.import_module("watchdog.observers.fsevents")
    monkeypatch.setattr("watchdog.observers.Observer", fsevents.FSEventsObserver)
    monkeypatch.setattr(sys, "platform", "darwin")
    Stream.started.clear()
    yield Stream.started
    sys.modules.pop("watchdog.observers.fsevents", None)


def test_a_message_is_told_though_only_its_directory_is_spoken_of(files: Files, macos: list[Stream]) -> None:
    told: queue.Queue[Path] = queue.Queue()
    inbox = mailbox(files)
    with Watch([inbox.path], told.put):
        inbox.deliver(message(1))
        macos[0].report(inbox.path, "is_modified")
        assert told.get(timeout=PATIENCE_SECONDS) == inbox.path


@pytest.mark.parametrize("flags", [("is_modified",), ("is_inode_meta_mod",), ("is_created", "is_modified")])
def test_a_message_written_in_place_is_told(flags: tuple[str, ...], files: Files, macos: list[Stream]) -> None:
    told: queue.Queue[Path] = queue.Queue()
    inbox = mailbox(files)
    inbox.deliver(message(1))
    ((name, _),) = inbox.unread()
    with Watch([inbox.path], told.put):
        macos[0].report(inbox.path / name, *flags)
        assert told.get(timeout=PATIENCE_SECONDS) == inbox.path


def test_a_directory_that_was_asked_for_through_a_link_is_told_as_it_was_asked_for(
    files: Files, macos: list[Stream]
) -> None:
    told: queue.Queue[Path] = queue.Queue()
    inbox = mailbox(files)
    inbox.deliver(message(1))
    asked = files.base.parent / "link"
    asked.symlink_to(inbox.path)
    with Watch([asked], told.put):
        macos[0].report(inbox.path, "is_modified")
        assert told.get(timeout=PATIENCE_SECONDS) == asked


def test_a_file_linked_right_after_its_scratch_file_is_told_to_who_looks_at_the_whole_session(
    files: Files, macos: list[Stream]
) -> None:
    told: queue.Queue[Path] = queue.Queue()
    inbox = mailbox(files)
    with TreeWatch(files.base, told.put):
        inbox.deliver(message(1))
        ((name, _),) = inbox.unread()
        scratch, number = files.scratch / "1.abc.tmp", (inbox.path / name).stat().st_ino
        macos[0].report(scratch, "is_created", "is_modified", inode=number)
        macos[0].report(inbox.path / name, "is_created")  # watchdog knows this inode: historic, it says
        macos[0].report(scratch, "is_removed", inode=number)
        while told.get(timeout=PATIENCE_SECONDS) != Path("ipc/worker-a"):
            pass
