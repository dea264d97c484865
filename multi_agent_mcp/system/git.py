"""Runs git(1), for what its files alone do not tell."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from multi_agent_mcp.config import child_environment
from multi_agent_mcp.errors import Refusal, StorageError
from multi_agent_mcp.system.files import storage_errors
from multi_agent_mcp.system.working_tree import tree_of

GIT_SECONDS = 120.0
_ELSEWHERE = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_PREFIX", "GIT_OBJECT_DIRECTORY")
"""Variables that would lead git away from the directory that it is called for; they are set within a hook of git."""


class GitFailed(Refusal):
    """Raised when git refuses a call. Unlike a `StorageError` of the session's disk it is no reason to try an operation
    again."""

    code = StorageError.code

    def __init__(self, call: str, exit_code: int | None, words: str) -> None:
        super().__init__("git", call=call, said=" ".join(words.split())[:300] or str(exit_code))


def git(place: str | Path, *arguments: str, ok: tuple[int, ...] = (0,)) -> str:
    """Runs git in a directory and returns its output, without the line break at the end. Raises `GitFailed` for an exit
    code that is not `ok`, or without git."""
    environment = {name: value for name, value in child_environment().items() if name not in _ELSEWHERE}
    environment |= {"GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}
    call = ["git", "-c", "core.quotepath=off", "-C", str(place), *arguments]
    try:
        done = subprocess.run(
            call,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            env=environment,
            timeout=GIT_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise GitFailed(arguments[0], None, str(error)) from error
    output = done.stdout.decode(errors="surrogateescape").removesuffix("\n")
    if done.returncode not in ok:
        raise GitFailed(arguments[0], done.returncode, done.stderr.decode(errors="replace") or output)
    return output


def root_commit(tree: str | Path) -> str | None:
    """The first commit of a repository, which all its clones share; None if there is none yet."""
    try:
        return git(tree, "rev-list", "--max-parents=0", "HEAD").split()[-1]
    except (GitFailed, IndexError):
        return None


def described(tree: str | Path) -> str | None:
    """The commit that a repository's working tree is at, with `-changed` if files differ from it; None if git cannot
    say, or `tree` is not the top of a repository."""
    if not Path(tree, ".git").exists():
        return None
    try:
        return git(tree, "describe", "--always", "--exclude=*", "--abbrev=12", "--dirty=-changed")
    except GitFailed:
        return None


def add_worktree(tree: str, path: str, branch: str, base: str, *, again: bool) -> None:
    """Makes a worktree on this branch, a new one at `base` if there is none; does nothing if it is there. With `again`,
    removes first what a killed git has left of it, where nobody has worked yet. Raises `GitFailed`."""
    git(tree, "worktree", "prune")
    if again and not is_worktree(path, branch):
        git(tree, "worktree", "remove", "--force", "--force", path, ok=(0, 128))
        if os.path.isdir(path) and not os.listdir(path):  # noqa: PTH112, PTH208 - only an empty one
            Path(path).rmdir()
    if not is_worktree(path, branch):
        exists = git(tree, "rev-parse", "--verify", "--quiet", f"refs/heads/{branch}", ok=(0, 1))
        git(tree, "worktree", "add", "--quiet", *([path, branch] if exists else ["-b", branch, path, base]))


def is_worktree(path: str, branch: str) -> bool:
    """Whether a worktree is there that git has made completely, on this branch."""
    if not Path(path, ".git").exists() or tree_of(f"{path}/-") != os.path.realpath(path):
        return False
    try:
        own = git(path, "rev-parse", "--absolute-git-dir")
        is_begun = Path(own, "locked").exists()  # git worktree add holds it until the files are there
        return not is_begun and git(path, "symbolic-ref", "--short", "HEAD") == branch
    except GitFailed:
        return False


def copy_untracked(source: Path, target: Path, patterns: str, *, but: Path) -> None:
    """Copies the untracked files of a working tree that match the patterns in its file `patterns` (as in .gitignore) to
    another one, except where something is already, and what is below `but`. Raises `GitFailed`, `StorageError`."""
    if not (source / patterns).is_file():
        return
    listed = git(source, "ls-files", "--others", "--ignored", f"--exclude-from={patterns}", "-z").split("\0")
    for name in filter(None, listed):
        found, copy = source / name, target / name
        if found.is_symlink() or not found.is_file() or copy.exists() or found.is_relative_to(but):
            continue
        with storage_errors(copy):
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(found, copy)
