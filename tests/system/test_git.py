"""The state of a working directory, in real git repositories and without git."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from multi_agent_mcp.system.git import NO_HEAD, state_of
from tests.lies.lies import git

COMMIT = ("-c", "user.name=x", "-c", "user.email=x@example", "commit", "-qm", "x")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    place = tmp_path / "repository"
    (place / "part").mkdir(parents=True)
    (place / "a.txt").write_text("a\n")
    (place / ".gitignore").write_text("*.log\n")
    git(place, "init", "-q")
    git(place, "add", "-A")
    git(place, *COMMIT)
    return place


def test_a_clean_repository_is_its_commit_wherever_one_looks_from(repository: Path) -> None:
    state = state_of(repository)
    assert (len(state.head), state.dirty) == (40, False)
    assert state_of(repository / "part") == state
    (repository / "out.log").write_text("ignored")
    assert state_of(repository) == state


def _edit(place: Path) -> None:
    (place / "a.txt").write_text("b\n")


def _add(place: Path) -> None:
    (place / "new.txt").write_text("new")


def _hide_from_git(place: Path) -> None:
    (place / ".git" / "info" / "exclude").write_text("hidden.txt\n")
    (place / "hidden.txt").write_text("x")


def _assume_unchanged(place: Path) -> None:
    git(place, "update-index", "--assume-unchanged", "a.txt")
    _edit(place)


def _commit(place: Path) -> None:
    git(place, *COMMIT, "--allow-empty")


def _mode(place: Path) -> None:
    (place / "a.txt").chmod(0o755)


@pytest.mark.parametrize("change", [_edit, _add, _hide_from_git, _assume_unchanged, _commit, _mode])
def test_every_change_is_another_state(repository: Path, change: Callable[[Path], None]) -> None:
    before = state_of(repository)
    change(repository)
    after = state_of(repository)
    assert after != before
    assert after == state_of(repository)


def test_the_content_of_untracked_files_counts_not_only_their_names(repository: Path) -> None:
    _add(repository)
    before = state_of(repository)
    (repository / "new.txt").write_text("old")
    assert state_of(repository) != before


def test_what_is_excluded_does_not_count(repository: Path) -> None:
    session = repository / "sessions"
    before = state_of(repository, [session])
    session.mkdir()
    (session / "x.md").write_text("x")
    assert state_of(repository, [session]) == before
    assert state_of(repository) != before


def test_without_git_or_a_commit_names_sizes_and_times_count(tmp_path: Path) -> None:
    place = tmp_path / "plain"
    place.mkdir()
    (place / "a.txt").write_text("a")
    before = state_of(place)
    assert (before.head, state_of(place)) == (NO_HEAD, before)
    (place / ".cache").mkdir()
    (place / ".cache" / "x").write_text("x")
    assert state_of(place) == before
    os.utime(place / "a.txt", (1, 1))
    assert state_of(place) != before
    git(place, "init", "-q")
    assert state_of(place).head == NO_HEAD
