"""Who made a commit: real git with the hooks that worktrees get, and what a person's own hooks see beside them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from multi_agent_mcp.system.commit_hooks import HOOKS
from multi_agent_mcp.system.git import git
from multi_agent_mcp.wiring import Services
from tests.services.repository.test_worktrees import made
from tests.services.tasks_support import running


def trailers(place: Path | str, commit: str = "HEAD") -> list[str]:
    return git(place, "log", "-1", "--format=%(trailers:unfold)", commit).splitlines()


def committed(place: Path | str, words: str, *more: str) -> None:
    git(place, "commit", "-q", "--allow-empty", "-m", words, *more)


def hook(place: Path, name: str, text: str) -> None:
    place.mkdir(parents=True, exist_ok=True)
    (place / name).write_text(f"#!/bin/sh\n{text}\n")
    (place / name).chmod(0o755)


def test_every_commit_in_a_worktree_names_task_and_agent_once(services: Services, project: Path) -> None:
    place = made(services).path
    committed(place, "before any task")
    assert trailers(place) == ["Agent: worker-a"]
    task = running(services, assignee_id="worker-a")
    named = [f"Task: {task.id}", "Agent: worker-a"]
    committed(place, "mend\n\nSigned-off-by: T <t@example.org>")
    assert trailers(place) == ["Signed-off-by: T <t@example.org>", *named]
    git(place, "commit", "-q", "--allow-empty", "--amend", "-m", "other words")
    assert trailers(place) == named
    git(place, "commit", "-q", "--allow-empty", "--amend", "--no-edit")
    assert trailers(place) == named
    committed(project, "meanwhile")
    git(place, "rebase", "-q", "--no-ff", "main")
    assert trailers(place) == named
    committed(project, "meanwhile again")
    git(place, "merge", "-q", "--no-edit", "main")
    assert trailers(place) == named
    assert trailers(project) == []  # the person's own checkout has none of this


@pytest.mark.parametrize("place_of_hooks", ["default", "absolute", "relative"])
def test_a_persons_hooks_run_as_without_ours(services: Services, project: Path, place_of_hooks: str) -> None:
    kept = project.parent / f"{project.name}-seen"
    kept.mkdir()
    places = {"default": project / ".git" / "hooks", "absolute": project.parent / f"{project.name}-hooks"}
    if place_of_hooks == "absolute":
        git(project, "config", "core.hooksPath", str(places["absolute"]))
    elif place_of_hooks == "relative":
        git(project, "config", "core.hooksPath", ".husky")
    worktree = Path(made(services).path)
    own = places.get(place_of_hooks, worktree / ".husky")  # written later, as `pre-commit install` would
    for name in ("pre-commit", "prepare-commit-msg", "commit-msg", "post-commit", "pre-push"):
        hook(
            own,
            name,
            f'printf "%s\\n" "$0" "$@" >{kept}/{name}; [ -t 0 ] || cat >>{kept}/{name}; exit $(cat {kept}/code)',
        )
    (kept / "code").write_text("0")
    committed(worktree, "words")
    assert trailers(worktree) == ["Agent: worker-a"]
    assert (kept / "pre-commit").read_text().splitlines()[0].endswith("/pre-commit")
    assert (kept / "prepare-commit-msg").read_text().splitlines()[2] == "message"
    assert (kept / "post-commit").exists()
    git(project.parent, "init", "-q", "--bare", str(project.parent / f"{project.name}.git"))
    git(worktree, "push", "-q", str(project.parent / f"{project.name}.git"), "HEAD:refs/heads/x")
    head = git(worktree, "rev-parse", "HEAD")
    assert f"HEAD {head} refs/heads/x {'0' * 40}" in (kept / "pre-push").read_text()
    (kept / "code").write_text("3")
    for name in ("pre-commit", "prepare-commit-msg", "commit-msg"):
        ran = subprocess.run(
            ["git", "commit", "--allow-empty", "-m", "x"], cwd=worktree, capture_output=True, check=False
        )
        assert (ran.returncode, git(worktree, "rev-parse", "HEAD")) == (1, head)
        (own / name).unlink()
    committed(worktree, "at last")


def test_a_message_without_words_stays_empty(services: Services, project: Path) -> None:
    place = made(services).path
    head = git(place, "rev-parse", "HEAD")
    (project / "template").write_text("Write here.\n")
    for more in ((), ("-c", f"commit.template={project / 'template'}")):
        git(place, *more, "-c", "core.editor=true", "commit", "--allow-empty", ok=(1,))
    assert git(place, "rev-parse", "HEAD") == head


def test_nothing_is_left_of_a_worktree_that_is_removed(services: Services, project: Path) -> None:
    before = (project / ".git" / "config").read_text()
    places = [Path(made(services, name).path) for name in ("worker-a", "worker-b")]
    git(places[0], "worktree", "add", "-q", str(project.parent / f"{project.name}-own"))  # git copies the setting
    for name in ("worker-a", "worker-b"):
        assert git(project, "config", "--get", "extensions.worktreeConfig", ok=(0, 1)) == "true"
        assert not services.worktrees.remove(name, discards=True).reasons(discards=True)
    assert git(project.parent / f"{project.name}-own", "config", "core.hooksPath", ok=(0, 1)) == ""
    assert (project / ".git" / "config").read_text() == before
    assert not list((project / ".git").rglob(HOOKS))


def test_what_others_have_chosen_for_a_worktree_stays(services: Services, project: Path) -> None:
    worktree = made(services)
    own = Path(git(worktree.path, "rev-parse", "--absolute-git-dir"))
    hook(own / HOOKS, "pre-push", "exit 0")  # such as another tool installs into the directory that git names
    hook(project / ".git" / "hooks", "reference-transaction", "exit 0")
    made(services)
    assert (own / HOOKS / "pre-push").read_text() == "#!/bin/sh\nexit 0\n"
    assert (own / HOOKS / "reference-transaction").exists()
    (project / ".git" / "hooks" / "reference-transaction").unlink()
    git(worktree.path, "config", "--worktree", "core.hooksPath", "/elsewhere")
    made(services)
    assert git(worktree.path, "config", "core.hooksPath") == "/elsewhere"


def test_a_repository_that_cannot_have_settings_of_worktrees_works_as_before(services: Services, project: Path) -> None:
    git(project, "config", "core.worktree", str(project))
    place = made(services).path
    git(project, "config", "--unset", "core.worktree")
    committed(place, "words")
    assert trailers(place) == []
