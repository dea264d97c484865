"""What is in a worktree of git and nowhere else, so that it would be lost with it."""

from __future__ import annotations

import filecmp
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

from multi_agent_mcp.system.file_status import common_directory, tree_of
from multi_agent_mcp.system.files import storage_errors
from multi_agent_mcp.system.fresh_index import fresh_index, has_marks
from multi_agent_mcp.system.git import (
    LEFT_OUT,
    SUBMODULES_DEEP,
    Git,
    GitFailed,
    files_at,
    git,
    is_filled,
    submodules,
    without_filters,
)

BESIDE = "-worktrees"
"""Ends the name of the directory with the worktrees, which is beside the project."""
_IN_PROGRESS = {
    "rebase-merge": "rebase",
    "rebase-apply": "rebase",
    "MERGE_HEAD": "merge",
    "CHERRY_PICK_HEAD": "cherry-pick",
    "REVERT_HEAD": "revert",
    "sequencer": "cherry-pick",
    "BISECT_LOG": "bisect",
}
"""Files in a worktree's own git directory, and the command of git that is not finished while they are there."""
_LEFT = re.compile(r"checkout: moving from ([0-9a-f]{40,64}) to ")
_MADE = re.compile(r"commit|cherry-pick|revert|am\b|rebase")
_COMMITTED = re.compile(r"commit(?: \((?:initial|amend)\))?:")
_ASIDE = ".removed"
_UNSIGNED = "--no-show-signature"
"""Otherwise a setting of the repository (`log.showSignature`) could have git start another one (`gpg.program`)."""
_COMPARED_MAX = 1_000


class UncommittedFiles(NamedTuple):
    """The files of a working tree that are not committed, new ones too, and those that git ignores. Directories that
    are new or ignored as a whole end with a slash."""

    changed: list[str]
    ignored: list[str]


class Unmerged(NamedTuple):
    """Commits that the project's branch does not have: how many, and the branches or commits that lead to them."""

    commits: int
    names: tuple[str, ...]


def files_of(path: str) -> UncommittedFiles:
    """The files of a working tree that differ from its commit, and those that git ignores. Raises `GitFailed`."""
    how = ("--untracked-files=normal", "--ignored=traditional", "--ignore-submodules=dirty", "--no-renames")
    call = (*without_filters(path), "status", "--porcelain", "-z", *how)
    listed = git(path, *call, fetches=False, in_place=True).split("\0")
    return UncommittedFiles(uncommitted(path), [entry[3:] for entry in listed if entry.startswith("!!")])


def uncommitted(path: str | Path, depth: int = 0, *, quickly: bool = False) -> list[str]:
    """The files of a working tree that are not committed, new ones too, and its submodules with such files, whatever
    its settings and its index hide; `quickly`, for a view that proves nothing, whatever marks in its index hide. Starts
    no program of the repository's choice. `depth`: how many repositories are around this one. Raises `GitFailed`."""
    top = tree_of(f"{path}/-") or path
    shown = ("--untracked-files=normal", "--no-renames", "--ignore-submodules=dirty")
    is_plain = quickly and not has_marks(top)
    with nullcontext(files_at(top)) if is_plain else fresh_index(top, believed=True) as where:
        call: Git = partial(git, top, *without_filters(top), fetches=False)
        listed = call("status", "--porcelain", "-z", *shown, **where).split("\0")
    changed = (entry[3:] for entry in listed if entry)
    return list(dict.fromkeys([*changed, *_changed_submodules(top, depth, quickly)]))


def _changed_submodules(path: str | Path, depth: int, quickly: bool) -> Iterator[str]:
    """The submodules with files that are not committed there, with files but no repository, or a broken one."""
    for name, is_repository in submodules(path):
        inner, is_changed = Path(path, name), True
        if not is_repository:
            is_changed = is_filled(inner)
        elif depth < SUBMODULES_DEEP:
            with suppress(GitFailed):
                is_changed = bool(uncommitted(inner, depth + 1, quickly=quickly))
        if is_changed:
            yield name


def only_here(path: str, ignored: Sequence[str], original: Path) -> list[str]:
    """The ignored files that are no equal copies of the project's own, and not in directories of mere programs
    (`LEFT_OUT`)."""
    own = (name for name in ignored if not LEFT_OUT & set(Path(name).parts))
    return [name for name in own if not _is_copy(Path(path, name), original / name)]


def _is_copy(found: Path, original: Path) -> bool:
    if found.is_symlink() or original.is_symlink():
        return found.is_symlink() and original.is_symlink() and found.readlink() == original.readlink()
    if not found.is_dir():
        return original.is_file() and filecmp.cmp(found, original, shallow=False)
    for count, inner in enumerate(found.rglob("*")):
        if count == _COMPARED_MAX or (
            (inner.is_symlink() or not inner.is_dir()) and not _is_copy(inner, original / inner.relative_to(found))
        ):
            return False
    return True


def in_progress(path: str) -> str | None:
    """The command of git that has begun in a worktree and is not finished (`rebase`, `merge`, …), or None."""
    own = Path(git(path, "rev-parse", "--absolute-git-dir"))
    return next((command for name, command in _IN_PROGRESS.items() if (own / name).exists()), None)


def is_locked(path: str) -> bool:
    """Whether somebody has locked the worktree (`git worktree lock`)."""
    return Path(git(path, "rev-parse", "--absolute-git-dir"), "locked").exists()


def locks_of(tree: Path) -> list[Path]:
    """The locks of the index and of branches: held by a running git, or left behind by a killed one."""
    own, common = Path(git(tree, "rev-parse", "--absolute-git-dir")), Path(common_directory(str(tree)))
    return sorted({*own.glob("*.lock"), *common.glob("*.lock"), *common.glob("refs/**/*.lock")})


def set_aside(path: Path) -> None:
    """Moves a directory aside in one step. Raises `StorageError`."""
    with storage_errors(path):
        path.rename(aside_of(path))


def aside_of(path: Path) -> Path:
    return path.with_name(f"{path.name}{_ASIDE}")


def remove_aside(path: Path) -> None:
    """Removes what was moved aside from there, if anything is left of it, and the directory of worktrees with the last
    one. Raises `StorageError`."""
    aside = aside_of(path)
    with storage_errors(aside):
        if aside.exists():
            shutil.rmtree(aside)
    if path.parent.name.endswith(BESIDE):
        with suppress(OSError):  # others are there
            path.parent.rmdir()


def unmerged(project: Path, path: str | None, branch: str) -> Unmerged:
    """The commits that the project's branch does not have: of the worktree's HEAD, its branch, other branches with
    commits made in it, and what was committed without a branch. `path` is None for a worktree whose directory is
    gone. Raises `GitFailed`."""
    tips = {}
    if tip := git(project, "rev-parse", "--verify", "--quiet", f"refs/heads/{branch}", ok=(0, 1)):
        tips[branch] = tip
    if path is not None:
        tips |= dict(_tips(project, path))
    ahead = {name: tip for name, tip in tips.items() if _count(project, tip)}
    return Unmerged(_count(project, *ahead.values()) if ahead else 0, tuple(ahead))


def _count(project: Path, *tips: str) -> int:
    return int(git(project, "rev-list", "--count", *tips, "--not", "HEAD"))


def _tips(project: Path, path: str) -> Iterator[tuple[str, str]]:
    """Names and commits of everything that a worktree has made, except its own branch."""
    head = git(path, "rev-parse", "--verify", "--quiet", "HEAD", ok=(0, 1))
    if head:
        yield git(path, "symbolic-ref", "--short", "--quiet", "HEAD", ok=(0, 1)) or head[:10], head
    for line in git(
        path, "for-each-ref", "--format=%(objectname) %(refname)", "refs/worktree", "refs/bisect"
    ).splitlines():
        commit, _, name = line.partition(" ")
        yield name, commit
    entries = _reflog(path) if head else []
    for left in dict.fromkeys(found[1] for _, words in entries if (found := _LEFT.match(words)) is not None):
        if _is_commit(project, left) and not _has_ref(project, left):
            yield left[:10], left
    if made := made_in(path):
        asked = ("--branches", "--source", "--format=%H %S", "--not", "HEAD")
        listed = git(project, "log", _UNSIGNED, *asked).splitlines()
        for ref in dict.fromkeys(ref for commit, _, ref in (line.partition(" ") for line in listed) if commit in made):
            yield ref.removeprefix("refs/heads/"), ref


def made_in(path: str) -> set[str]:
    """The commits that were made in a worktree, as far as git has kept a note of it; else none."""
    return {commit for commit, words in been_at(path) if is_made(words)}


def been_at(path: str) -> list[tuple[str, str]]:
    """Where a worktree's HEAD has been, and what led there, the oldest first, as far as git has kept a note of it."""
    return _reflog(path)[::-1] if os.path.lexists(f"{path}/.git") else []


def is_making(words: str) -> bool:
    """Whether these words of a reflog are of a commit that was made there, or its amendment, and no copy or merge."""
    return _COMMITTED.match(words) is not None


def is_made(words: str) -> bool:
    """Whether these words of a reflog are of a commit that came to be there, also as a copy or a merge."""
    return _MADE.match(words) is not None


def _reflog(path: str) -> list[tuple[str, str]]:
    """Where a worktree's HEAD has been, and what led there, the newest first."""
    lines = git(path, "log", _UNSIGNED, "--walk-reflogs", "--format=%H %gs", "HEAD", "--", ok=(0, 128)).splitlines()
    return [(commit, words) for commit, _, words in (line.partition(" ") for line in lines)]


def _is_commit(place: Path, commit: str) -> bool:
    try:
        git(place, "cat-file", "-e", f"{commit}^{{commit}}")
    except GitFailed:
        return False
    return True


def _has_ref(place: Path, commit: str) -> bool:
    """Whether a branch, tag or remote branch of the repository has the commit."""
    try:
        return git(place, "for-each-ref", "--count=1", "--contains", commit) != ""
    except GitFailed:  # it does not know the commit at all
        return False


def lost_in_submodules(path: str, original: Path) -> list[str]:
    """The submodules of a worktree, in any depth, that hold something that is nowhere else: their repositories are
    removed with it. That is ignored files, and commits that are neither pushed nor known to the same submodule of
    `original`. (Their changed files are changes of the worktree.) Raises `GitFailed`."""
    found = []
    for name, is_repository in submodules(path):
        inner, same = Path(path, name), original / name
        if not is_repository:
            continue
        tips = git(inner, "for-each-ref", "--format=%(objectname)", "refs/heads", "refs/stash").split()
        tips += git(inner, "rev-parse", "--verify", "--quiet", "HEAD", ok=(0, 1)).split()
        alone = [
            tip for tip in dict.fromkeys(tips) if git(inner, "rev-list", "--max-count=1", tip, "--not", "--remotes")
        ]
        is_known = (same / ".git").exists() and all(_has_ref(same, tip) or _is_head(same, tip) for tip in alone)
        if (alone and not is_known) or only_here(str(inner), files_of(str(inner)).ignored, same):
            found.append(name)
        found += [f"{name}/{deeper}" for deeper in lost_in_submodules(str(inner), same)]
    return found


def _is_head(place: Path, commit: str) -> bool:
    return git(place, "rev-parse", "--verify", "--quiet", "HEAD", ok=(0, 1)) == commit
