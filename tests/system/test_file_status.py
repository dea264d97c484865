"""One number says whether anything changed in a tree."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from multi_agent_mcp.system.file_status import TreeState


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
