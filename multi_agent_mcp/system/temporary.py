"""What a worktree has beside the files of its commit: the temporary worktrees of checks, and the ignored files of the
project that each worktree gets copies of."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from multi_agent_mcp.domain.patterns import matcher, patterns_of
from multi_agent_mcp.domain.text import some
from multi_agent_mcp.system.commits import shown_name
from multi_agent_mcp.system.files import storage_errors
from multi_agent_mcp.system.git import NO_HOOKS, Git, clear_worktree, git
from multi_agent_mcp.system.other_files import read_external
from multi_agent_mcp.system.work_state import true_kinds
from multi_agent_mcp.system.working_tree import aside_of, files_of, remove_aside, set_aside

INCLUDED = ".worktreeinclude"
"""Names files of the project that git ignores, as in .gitignore, that a new worktree gets copies of (`.env`)."""


def temporary_of(tree: Path, agent_id: str) -> Path:
    """Where the temporary worktree of an agent's checks is: beside its own, or, where it has none, the project."""
    is_main = (tree / ".git").is_dir()
    return tree.with_name(f"{tree.name}-{agent_id}.check" if is_main else f"{tree.name}.check")


@contextmanager
def checked_out(tree: Path, path: Path, commit: str) -> Iterator[None]:
    """A temporary worktree of this commit at `path`, on no branch, with the files that a sparse checkout in `tree` has;
    what a killed process left in its place goes first. Runs no hook. Raises `GitFailed`, `StorageError`."""
    clear_temporary(tree, path)
    quiet = (*NO_HOOKS, "-c", "advice.detachedHead=false")
    call: Git = partial(git, tree, *quiet)
    try:
        call("worktree", "add", "--quiet", "--detach", str(path), commit, **true_kinds(path.parent))
        yield
    finally:
        clear_temporary(tree, path)


def is_left(path: Path) -> bool:
    """Whether anything of a temporary worktree is at `path`."""
    return (path / ".git").is_file() or aside_of(path).exists()


def clear_temporary(tree: Path, path: Path) -> None:
    """Removes a temporary worktree, whole or half made or half removed; a directory that is no worktree stays. Raises
    `GitFailed`, `StorageError`."""
    remove_aside(path)
    if (path / ".git").is_file():
        set_aside(path)  # in one step: git would leave half of it behind if it was killed
    clear_worktree(tree, str(path))
    remove_aside(path)


def copy_included(project: Path, target: Path, *, but: Path) -> None:
    """Copies the files of the project that git ignores and its `.worktreeinclude` names to another working tree, except
    where something is already, and what is below `but`. One that is not ignored would be uncommitted work there. The
    patterns are matched by us: git takes minutes for some. Raises `GitFailed`, `StorageError`."""
    place = project / INCLUDED
    text = (read_external(place) or b"").decode(errors="surrogateescape") if place.is_file() else ""
    if not (patterns := patterns_of(text)):
        return
    listed = git(project, "ls-files", "--others", "--ignored", "--exclude-standard", "-z").split("\0")
    for name in filter(matcher(patterns), filter(None, listed)):
        found, copy = project / name, target / name
        if found.is_symlink() or not found.is_file() or copy.exists() or found.is_relative_to(but):
            continue
        with storage_errors(copy):
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(found, copy)


def absent(tree: Path, path: Path, *, but: Path) -> str:
    """The ignored files of a working tree that another one lacks, in words; "" for none. Raises `GitFailed`."""
    names = files_of(str(tree)).ignored
    return some([shown_name(name) for name in names if tree / name != but and not (path / name).exists()])
