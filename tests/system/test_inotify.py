"""The kernel's reports about files in a directory, and their readers."""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path

import pytest

from multi_agent_mcp.system import inotify
from multi_agent_mcp.system.inotify import Inotify, Watch

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="inotify(7)")
QUEUED = Path("/proc/sys/fs/inotify/max_queued_events")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "place").mkdir()
    return tmp_path / "place"


def watched(place: Path) -> Watch:
    watch = Inotify(place.parent).watch(place)
    assert watch is not None
    return watch


def test_what_was_done_before_the_question_is_in_the_answer(place: Path) -> None:
    watch = watched(place)
    for number in range(100):
        (place / f"{number}.md").touch()
        assert watch.changed() == {f"{number}.md"}
    assert watch.changed() == set()


def test_a_name_that_is_no_utf8_is_told_as_python_spells_it(place: Path) -> None:
    watch = watched(place)
    path = os.fsencode(place) + b"/\xff.md"
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
    assert watch.changed() == {os.fsdecode(b"\xff.md")}


def test_two_watches_of_one_directory_are_told_the_same(place: Path) -> None:
    instance = Inotify(place.parent)
    first, second = instance.watch(place), instance.watch(place)
    assert first is not None
    assert second is not None
    (place / "a.md").touch()
    assert (first.changed(), second.changed()) == ({"a.md"}, {"a.md"})


def test_more_than_the_kernel_keeps_is_not_known(place: Path) -> None:
    watch = watched(place)
    for number in range(int(QUEUED.read_text()) // 2):  # at least three events each
        (place / f"{number}.md").touch()
    assert watch.changed() is None


def test_names_nobody_asks_for_are_not_kept_for_ever(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inotify, "NAMES_MAX", 20)
    instance = Inotify(place.parent)
    (place.parent / "other").mkdir()
    idle, other = instance.watch(place), instance.watch(place.parent / "other")
    assert idle is not None
    assert other is not None
    for number in range(30):
        (place / f"{number}.md").touch()
        other.changed()
    assert len(idle.names) <= 21
    assert idle.changed() is None


def test_a_watch_that_is_dropped_costs_nothing_any_more(place: Path) -> None:
    instance = Inotify(place.parent)
    (place.parent / "other").mkdir()
    dropped, other = instance.watch(place), instance.watch(place.parent / "other")
    assert other is not None
    assert _watched(instance) == 2
    del dropped
    (place / "a.md").touch()
    assert other.changed() == set()
    assert _watched(instance) == 1


def _watched(instance: Inotify) -> int:
    """The number of watches, counted in proc(5)."""
    information = Path(f"/proc/self/fdinfo/{instance._descriptor}").read_text(encoding="ascii")
    return information.count("inotify wd:")


def test_a_directory_that_gave_its_name_to_another_is_not_the_same(place: Path) -> None:
    watch = watched(place)
    place.rename(place.with_name("former"))
    place.mkdir()
    assert watch.changed() is None


def test_the_directory_above_may_be_replaced_too(place: Path) -> None:
    inner = place / "inner"
    inner.mkdir()
    watch = watched(inner)
    place.rename(place.with_name("former"))
    inner.mkdir(parents=True)
    assert watch.changed() is None


def test_a_deleted_directory_is_not_known_any_more(place: Path) -> None:
    watch = watched(place)
    place.rmdir()
    assert watch.changed() is None


def test_a_child_process_takes_nothing_from_its_parent(place: Path) -> None:
    watch = watched(place)
    (place / "a.md").touch()
    if (child := os.fork()) == 0:
        os._exit(0 if watch.changed() is None else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert watch.changed() == {"a.md"}


def test_without_an_instance_nothing_is_watched(place: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        assert Inotify(place.parent).watch(place) is None
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_where_nothing_can_be_tried_out_nothing_is_watched(place: Path) -> None:
    assert Inotify(place / "missing").watch(place) is None


def test_what_is_not_on_a_local_disk_is_not_watched(place: Path) -> None:
    assert Inotify(place).watch(Path("/proc/self")) is None


def test_another_system_watches_nothing(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert Inotify(place).watch(place) is None
