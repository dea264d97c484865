"""One number says whether anything changed in a tree."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest

from multi_agent_mcp.system.file_status import RACY_NS, Memory, TreeState, settled_times


@pytest.fixture
def tree(tmp_path: Path) -> TreeState:
    for name in ("tasks/worker/archive", ".doorbell", ".locks"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / ".doorbell" / "worker.jsonl").write_text("a line\n")
    return TreeState(tmp_path, left_out={".locks"}, growing={".doorbell"})


def settled(tree: TreeState) -> int:
    """The state once the last change is long enough ago for it."""
    while (state := tree.now()) is None:
        time.sleep(0.01)
    return state


def test_what_changes_in_a_directory_of_an_agent_and_what_grows_is_seen(tree: TreeState, tmp_path: Path) -> None:
    before = settled(tree)
    assert tree.now() == before
    (tmp_path / "tasks" / "worker" / "tsk.md").touch()
    assert tree.now() is None, "another change in the same tick of the clock would not be seen"
    after = settled(tree)
    assert after != before
    with (tmp_path / ".doorbell" / "worker.jsonl").open("a") as log:
        log.write("another\n")
    assert settled(tree) != after


def test_a_new_directory_counts_with_what_is_put_into_it_later(tree: TreeState, tmp_path: Path) -> None:
    settled(tree)
    (tmp_path / "tasks" / "other").mkdir()
    before = settled(tree)
    (tmp_path / "tasks" / "other" / "tsk.md").touch()
    assert settled(tree) != before


def test_locks_and_archives_do_not_count(tree: TreeState, tmp_path: Path) -> None:
    before = settled(tree)
    (tmp_path / ".locks" / "one").touch()
    (tmp_path / "tasks" / "worker" / "archive" / "tsk.md").touch()
    assert settled(tree) == before


def test_a_tree_that_is_gone_has_a_state(tmp_path: Path) -> None:
    assert TreeState(os.fspath(tmp_path / "gone"), left_out=(), growing=()).now() is not None


def test_a_memory_makes_a_value_again_once_its_state_or_its_time_is_over() -> None:
    made, memory = iter(range(100)), Memory()
    assert [memory.get(state, lambda: next(made)) for state in (1, 1, 2)] == [0, 0, 1]
    at = datetime(2026, 11, 27, tzinfo=UTC)
    values = []
    for hour in (0, 1, 2, -1):  # and a clock that was set back
        clock = partial(at.__add__, timedelta(hours=hour))
        values.append(memory.get(1, lambda: next(made), key="timed", clock=clock, good_for=timedelta(hours=2)))
    assert values == [2, 2, 3, 4]
    memory.forget()
    assert memory.get(2, lambda: next(made)) == 5


def test_a_memory_keeps_nothing_that_cannot_be_relied_on() -> None:
    made, memory = iter([None, 1, 2, 3]), Memory(most=1)
    assert [memory.get(1, lambda: next(made)) for _ in range(3)] == [None, 1, 1]
    assert [memory.get(None, lambda: next(made), key="other") for _ in range(2)] == [2, 3]


def test_times_of_files_are_known_once_the_last_change_is_long_enough_ago(tmp_path: Path) -> None:
    os.utime(tmp_path, ns=(0, time.time_ns() - 2 * RACY_NS))
    before = settled_times(tmp_path, tmp_path / "missing")
    assert before is not None
    assert before == settled_times(tmp_path, tmp_path / "missing")
    (tmp_path / "missing").mkdir()
    assert settled_times(tmp_path, tmp_path / "missing") is None
