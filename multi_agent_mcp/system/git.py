"""Runs git(1), for what its files alone do not tell."""

from __future__ import annotations

import subprocess
from pathlib import Path

from multi_agent_mcp.config import child_environment
from multi_agent_mcp.errors import StorageError

GIT_SECONDS = 120.0
_ELSEWHERE = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_PREFIX", "GIT_OBJECT_DIRECTORY")
"""Variables that would lead git away from the directory that it is called for; they are set within a hook of git."""


class GitFailed(StorageError):
    """Raised when git refuses a call; `code` is its exit code, `words` what it said."""

    def __init__(self, call: str, exit_code: int | None, words: str) -> None:
        super().__init__("git", call=call, said=" ".join(words.split())[:300] or str(exit_code))
        self.exit_code = exit_code


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
