"""File events: what is put into a watched directory is told."""

from __future__ import annotations

import errno
import queue
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from watchdog import observers
from watchdog.observers.api import BaseObserver

from multi_agent_mcp.domain.message import Message
from multi_agent_mcp.store.durable_files import Files
from multi_agent_mcp.store.inbox import Inbox
from multi_agent_mcp.system.file_events import TreeWatch, Watch
from tests.store.support import mailbox, message, put

PATIENCE_SECONDS = 60.0


def test_a_delivered_message_is_told_with_its_directory(files: Files) -> None:
    told: queue.Queue[Path] = queue.Queue()
    inbox: Inbox[Message] = mailbox(files)
    with Watch([inbox.path, files.base / "other"], told.put):
        inbox.deliver(message(1))
        assert told.get(timeout=PATIENCE_SECONDS) == inbox.path


def test_a_file_written_by_hand_is_told_and_others_are_not(files: Files) -> None:
    told: queue.Queue[Path] = queue.Queue()
    first, second = files.base / "first", files.base / "second"
    with Watch([first, second], told.put):
        put(first / ".hidden.md", "x")
        put(first / "x.tmp", "x")
        put(second / "note.md", "x")
        assert told.get(timeout=PATIENCE_SECONDS) == second


def test_an_archived_message_is_told_as_gone(files: Files) -> None:
    told: queue.Queue[Path] = queue.Queue()
    inbox: Inbox[Message] = mailbox(files)
    inbox.deliver(message(1))
    with Watch([inbox.path], told.put):
        inbox.end([name for name, _ in inbox.unread()], message(2).created_at)
        assert told.get(timeout=PATIENCE_SECONDS) == inbox.path


@pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's")
def test_a_watch_that_ends_between_two_events_says_nothing_of_it(
    files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    with Watch([files.base / "first"], lambda _: None) as watch:
        assert isinstance(watch._observer, BaseObserver)
        emitters = list(watch._observer.emitters)
    for emitter in emitters:
        emitter.queue_events(0)  # as its thread does that has not seen yet that it is stopped
    assert emitters
    assert caplog.messages == []


class RealPaths(observers.Observer):  # type: ignore[misc, valid-type]
    """Reports changes as FSEvents does: by the real path, independent of the watched path."""

    def schedule(self, handler: Any, path: str, **options: Any) -> Any:
        return super().schedule(handler, str(Path(path).resolve()), **options)


@pytest.mark.parametrize("observer", [observers.Observer, RealPaths])
def test_what_changes_below_a_root_behind_a_link_is_told(
    files: Files, monkeypatch: pytest.MonkeyPatch, observer: type
) -> None:
    monkeypatch.setattr(observers, "Observer", observer)
    told: queue.Queue[Path] = queue.Queue()
    (files.base / "real").mkdir(parents=True)
    (files.base / "link").symlink_to("real")
    with TreeWatch(files.base / "link" / "session", told.put):
        put(files.base / "real" / "session" / "note.md", "x")
        assert told.get(timeout=PATIENCE_SECONDS) == Path("note.md")


def test_directories_that_come_and_go_are_watched_with_what_is_in_them(files: Files) -> None:
    told: queue.Queue[Path] = queue.Queue()
    with TreeWatch(files.base, told.put):
        for name in ("first.md", "second.md"):
            _make_at_once(files.base / "tasks", name)
            _await(told, Path("tasks", "worker", name))
            put(files.base / "tasks" / "worker" / "later.md", name)
            _await(told, Path("tasks", "worker", "later.md"))
            shutil.rmtree(files.base / "tasks")
            _await(told, Path("tasks", "worker", "later.md"))


def test_scratch_files_wake_no_thread_and_the_state_of_the_relay_does(files: Files) -> None:
    told: queue.Queue[Path] = queue.Queue()
    woken: list[str] = []
    noticed = TreeWatch._noticed

    class Listening(TreeWatch):
        def _noticed(self, path: Path) -> None:
            woken.append(path.name)
            noticed(self, path)

    put(files.base / ".tmp" / "1.tmp", "x")
    with Listening(files.base, told.put):
        put(files.base / ".tmp" / "2.tmp", "x")
        put(files.base / ".locks" / "a.lock", "x")
        put(files.base / ".share" / "state.json", "{}")
        assert told.get(timeout=PATIENCE_SECONDS) == Path(".share/state.json")
    assert "2.tmp" not in woken


def _make_at_once(directory: Path, name: str) -> None:
    """A directory that comes with its contents, in one step."""
    made = directory.parent.parent / "made"
    put(made / "worker" / name, "x")
    made.rename(directory)


def _await(told: queue.Queue[Path], path: Path) -> None:
    while told.get(timeout=PATIENCE_SECONDS) != path:
        pass


@pytest.fixture
def without_inotify(monkeypatch: pytest.MonkeyPatch) -> None:
    """inotify_init(2) fails as it does when the instances of this user are used up."""

    class NoObserver:
        def __init__(self, **_: Any) -> None:
            raise OSError(errno.EMFILE, "inotify instance limit reached")

    monkeypatch.setattr(observers, "Observer", NoObserver)


@pytest.mark.usefixtures("without_inotify")
def test_without_file_events_the_directories_are_looked_at(files: Files) -> None:
    told: queue.Queue[Path] = queue.Queue()
    inbox: Inbox[Message] = mailbox(files)
    other = files.base / "other"
    with Watch([inbox.path, other], told.put) as watch:
        assert "looking once a second" in str(watch.degraded)
        inbox.deliver(message(1))
        assert told.get(timeout=PATIENCE_SECONDS) == inbox.path
        put(other / "note.md", "x")
        while told.get(timeout=PATIENCE_SECONDS) != other:
            pass


@pytest.mark.usefixtures("without_inotify")
def test_without_file_events_a_whole_session_is_looked_at_directory_by_directory(files: Files) -> None:
    told: queue.Queue[Path] = queue.Queue()
    inbox: Inbox[Message] = mailbox(files)
    inbox.deliver(message(1))
    put(files.base / ".doorbell" / "a.jsonl", "1\n")
    with TreeWatch(files.base, told.put):
        inbox.deliver(message(2))
        assert told.get(timeout=PATIENCE_SECONDS) == inbox.path.relative_to(files.base)
        with (files.base / ".doorbell" / "a.jsonl").open("a") as log:
            log.write("2\n")
        while told.get(timeout=PATIENCE_SECONDS) != Path(".doorbell/a.jsonl"):
            pass


@pytest.mark.filterwarnings("ignore:Callback with id")  # watchdog's, for directories that it has seen already
def test_directories_that_vanish_at_once_do_not_end_the_watch(files: Files) -> None:
    told: queue.Queue[Path] = queue.Queue()
    with TreeWatch(files.base, told.put):
        for number in range(60):
            for inner in range(20):
                put(files.base / "short" / f"{inner}" / "deep" / "note.md", f"{number}")
            shutil.rmtree(files.base / "short")
        put(files.base / "tasks" / "note.md", "x")
        _await(told, Path("tasks", "note.md"))
