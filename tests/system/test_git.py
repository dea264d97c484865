"""The state of a working directory, in real git repositories and without git."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from multi_agent_mcp.system.git import NO_HEAD, checked_out, head_of, state_of
from multi_agent_mcp.system.working_tree import uncommitted
from tests.lies.lies import git
from tests.programs import ran

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


def _hide_by_a_setting(place: Path) -> None:
    rules = place.with_name("rules")
    rules.write_text("hidden.txt\n")
    git(place, "config", "core.excludesFile", str(rules))
    (place / "hidden.txt").write_text("x")


def _hide_for_this_user(place: Path) -> None:
    rules = Path(os.environ["XDG_CONFIG_HOME"]) / "git" / "ignore"
    rules.parent.mkdir(parents=True)
    rules.write_text("hidden.txt\n")
    (place / "hidden.txt").write_text("x")


def _hide_itself(place: Path) -> None:
    (place / "d").mkdir()
    (place / "d" / ".gitignore").write_text("*\n")
    (place / "d" / "hidden.txt").write_text("x")


def _replace(place: Path) -> None:
    blob = ran("git", "-C", str(place), "rev-parse", "HEAD:a.txt").stdout.strip()
    other = ran("git", "-C", str(place), "rev-parse", "HEAD:.gitignore").stdout.strip()
    git(place, "replace", blob, other)


HIDING = [_hide_from_git, _hide_by_a_setting, _hide_for_this_user, _hide_itself]


@pytest.mark.parametrize("change", [_edit, _add, *HIDING, _assume_unchanged, _replace, _commit, _mode])
def test_every_change_is_another_state(
    repository: Path, change: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(repository.with_name("config")))
    before = state_of(repository)
    change(repository)
    after = state_of(repository)
    assert after != before
    assert after == state_of(repository)


def test_what_tests_leave_in_their_caches_is_no_change(repository: Path) -> None:
    before = state_of(repository)
    for place in (repository / ".pytest_cache", repository / "cache"):
        place.mkdir()
        (place / ".gitignore").write_text("*\n")
        (place / "CACHEDIR.TAG").write_text("Signature: 8a477f597d28d172789f06886806bc55\n")
    assert state_of(repository) == before
    assert uncommitted(repository) == []


def test_no_filter_of_the_repository_is_run_to_see_what_has_changed(repository: Path) -> None:
    ran_here = repository.with_name("ran")
    (repository / ".git" / "info" / "attributes").write_text("*.txt filter=a.b\n")
    git(repository, "config", "filter.a.b.clean", f"touch {ran_here}; cat")
    git(repository, "config", "filter.a.b.required", "true")
    (repository / "a.txt").write_text("b\n")
    assert state_of(repository).dirty
    assert uncommitted(repository) == ["a.txt"]
    assert not ran_here.exists()


def test_a_temporary_worktree_is_of_the_commit_and_leaves_nothing(repository: Path) -> None:
    head = head_of(repository)
    (repository / "a.txt").write_text("b\n")
    hook = repository / ".git" / "hooks" / "post-checkout"
    hook.write_text("#!/bin/sh\ntouch ran\n")
    hook.chmod(0o755)
    for _ in range(2):
        with checked_out(repository, head) as place:
            assert state_of(place).is_clean_at(head)
            assert sorted(path.name for path in place.iterdir()) == [".git", ".gitignore", "a.txt"]
            (place / "left.txt").write_text("x")
        assert not place.exists()
    with checked_out(repository, head) as place, checked_out(repository, head) as again:  # as after kill -9
        assert again == place
        assert state_of(again).is_clean_at(head)


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


def test_a_hidden_change_of_the_same_size_within_the_same_second_is_seen(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    git(tmp_path, "config", "core.trustctime", "false")
    file, second = tmp_path / "a", (1_000_000_000, 1_000_000_000)
    file.write_text("one\n")
    os.utime(file, second)
    git(tmp_path, "add", "a")
    git(tmp_path, "-c", "user.name=T", "-c", "user.email=t@e", "commit", "-q", "-m", "1")
    git(tmp_path, "update-index", "--assume-unchanged", "a")
    file.write_text("two\n")
    for path in (file, tmp_path / ".git" / "index"):
        os.utime(path, second)
    assert uncommitted(tmp_path) == ["a"]
