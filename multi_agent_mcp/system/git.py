"""Runs git(1), for what its files alone do not tell, such as the state of a working directory."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from multi_agent_mcp.errors import Refusal, StorageError
from multi_agent_mcp.programs import called, child_environment
from multi_agent_mcp.system.file_status import tree_of

GIT_SECONDS = 120.0
SAID_MAX = 600
_ELSEWHERE = frozenset(
    f"GIT_{name}"
    for name in (
        *("DIR", "WORK_TREE", "INDEX_FILE", "COMMON_DIR", "PREFIX", "NAMESPACE", "OBJECT_DIRECTORY", "SHALLOW_FILE"),
        *("ALTERNATE_OBJECT_DIRECTORIES", "QUARANTINE_PATH", "GRAFT_FILE", "REPLACE_REF_BASE", "CEILING_DIRECTORIES"),
        *("LITERAL_PATHSPECS", "GLOB_PATHSPECS", "NOGLOB_PATHSPECS", "ICASE_PATHSPECS", "CONFIG"),
    )
)
"""Variables that would lead git away from the directory that it is called for, or give paths another meaning; some are
set within a hook of git."""


def plain_environment(**added: str) -> dict[str, str]:
    """Ours, without what would make git look elsewhere."""
    return {name: value for name, value in child_environment().items() if name not in _ELSEWHERE} | added


TRUE_OBJECTS = {"GIT_NO_REPLACE_OBJECTS": "1"}
"""Commits are what they were when they were made (git-replace(1))."""
NO_FETCH = {"GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": "none"}
"""What is missing in a repository (partial clones) is not fetched: its configuration names the program that would."""
_EMPTY = "MULTI_AGENT_MCP_EMPTY"
"""A variable without a value, for `--config-env`: unlike `-c`, it takes names with an equals sign."""
FIXED = {"GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C", _EMPTY: "", **TRUE_OBJECTS}


NO_HOOKS = ("-c", "core.hooksPath=/dev/null")
"""Options for a call of git that is to run no hook (githooks(5)), not even `reference-transaction`."""


NO_FILTER = ("unspecified", "unset")
"""What check-attr says of files that no filter is for."""
Git = Callable[..., str]
"""Runs git as `git` does, with a place and options of its own."""


def fixed_environment(**variables: str) -> dict[str, str]:
    """The environment of every call of git."""
    return plain_environment(**FIXED, **variables)


_NOT_TRUSTED = re.compile(r"detected dubious ownership in repository at '(.*)'")
"""What git says of a repository of another user (git-config(1), safe.directory), in every version."""

MISSING = "git was not found; install it"
"""What is said in place of the words of a git that is not there."""


class GitFailed(Refusal):
    """Raised when git refuses a call. Unlike a `StorageError` of the session's disk it is no reason to try an operation
    again."""

    code = StorageError.code

    def __init__(self, call: str, exit_code: int | None, words: str) -> None:
        if (found := _NOT_TRUSTED.search(words)) is not None:
            super().__init__("not_trusted", path=found[1], place=shlex.quote(found[1]))
        else:
            super().__init__("git", call=call, said=" ".join(words.split())[:SAID_MAX] or str(exit_code))

    @property
    def is_of_owner(self) -> bool:
        """Whether git refuses the whole repository, as it belongs to another user."""
        return self.key == "error.not_trusted"


_SEEN = (
    *("-c", "core.fsmonitor=false", "-c", "core.checkStat=default", "-c", "core.trustctime=true"),
    *("-c", "core.ignoreStat=false", "-c", "core.quotePath=false", "-c", "diff.orderFile=/dev/null"),
)
"""Whatever reads the index asks no program of the repository's choice what has changed, is not content with a size and
a time that anybody can set back, and marks no file as one not to look at; names come as they are, in the order of the
index."""


def git_call(place: str | Path, arguments: Sequence[str]) -> list[str]:
    """A call of git that sees every change of a file, and starts nothing to see it."""
    return [called("git"), "-C", str(place), *_SEEN, *arguments]


def files_at(place: str | Path) -> dict[str, str]:
    """The variables for a call of git that is to look at the files where `.git` is, whichever others the repository's
    configuration names in their place (`core.worktree`). Raises `GitFailed`."""
    if not git(place, "config", "--get", "core.worktree", ok=(0, 1)):
        return {}
    tree = tree_of(f"{place}/-")
    return {} if tree is None else {"GIT_WORK_TREE": tree}


def git(
    place: str | Path,
    *arguments: str,
    ok: tuple[int, ...] = (0,),
    text: str = "",
    fetches: bool = True,
    in_place: bool = False,
    **variables: str,
) -> str:
    """Runs git in a directory, with this text as input and these variables, and returns its output, without the line
    break at the end. With `fetches=False` it does not fetch what is missing, with `in_place` it looks at `files_at` the
    directory. Raises `GitFailed` for an exit code that is not `ok`, or without git."""
    fixed = (FIXED if fetches else FIXED | NO_FETCH) | (files_at(place) if in_place else {})
    call = git_call(place, arguments)
    try:
        done = subprocess.run(
            call,
            stdin=None if text else subprocess.DEVNULL,
            input=text.encode(errors="surrogateescape") or None,
            capture_output=True,
            check=False,
            env=plain_environment(**fixed, **variables),
            timeout=GIT_SECONDS,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        is_missing = isinstance(error, FileNotFoundError) and error.filename == call[0]
        raise GitFailed(arguments[0], None, MISSING if is_missing else str(error)) from error
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
    removes first what a killed git has left of it, where nobody has worked yet. What git has made completely counts,
    whatever a hook (`post-checkout`) says of it. Raises `GitFailed`; then the branch is as before."""
    git(tree, "worktree", "prune")
    if again and not is_worktree(path, branch):
        clear_worktree(tree, path)
    if is_worktree(path, branch):
        return
    ref = f"refs/heads/{branch}"
    exists = git(tree, "rev-parse", "--verify", "--quiet", ref, ok=(0, 1))
    try:
        git(tree, "worktree", "add", "--quiet", *([path, branch] if exists else ["-b", branch, path, base]))
    except GitFailed:
        if is_worktree(path, branch) and not git(path, "status", "--porcelain"):
            return
        if not exists and git(tree, "rev-parse", "--verify", "--quiet", ref, ok=(0, 1)) == base:
            git(tree, "worktree", "remove", "--force", path, ok=(0, 128))
            git(tree, *NO_HOOKS, "update-ref", "-d", ref, base)
        raise


def forget_worktree(tree: str, path: str, branch: str, head: str) -> None:
    """Has git forget a worktree whose directory is gone, and its branch if that is still at `head`. Raises `GitFailed`,
    also if git still has it afterwards."""
    git(tree, "worktree", "prune")
    if f"worktree {path}" in git(tree, "worktree", "list", "--porcelain").splitlines():
        raise GitFailed("worktree prune", 0, path)
    ref = f"refs/heads/{branch}"
    if head and git(tree, "rev-parse", "--verify", "--quiet", ref, ok=(0, 1)) == head:
        git(tree, *NO_HOOKS, "update-ref", "-d", ref, head)


def branch_in_the_way(tree: str | Path, branch: str) -> str | None:
    """The branch because of which git can make none of this name: `a` or `a/b/c` for `a/b`; None if there is none."""
    parts = branch.split("/")
    above = [f"refs/heads/{'/'.join(parts[:length])}" for length in range(1, len(parts))]
    listed = git(tree, "for-each-ref", "--format=%(refname)", *above, f"refs/heads/{branch}/").splitlines()
    others = (ref for ref in listed if ref in above or ref.startswith(f"refs/heads/{branch}/"))
    return next((ref.removeprefix("refs/heads/") for ref in others), None)


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


def way_to_ignore(path: Path) -> str | None:
    """Returns the line for sh(1) that keeps this file out of the commits of this clone alone; None if it needs none, as
    it is in no repository, is ignored or committed."""
    with suppress(GitFailed):
        if git(path.parent, "ls-files", "--others", "--exclude-standard", "--", f":(literal){path.name}"):
            pattern = re.sub(r"([\\*?\[])", r"\\\1", f"/{git(path.parent, 'rev-parse', '--show-prefix')}{path.name}")
            exclude = path.parent / git(path.parent, "rev-parse", "--git-path", "info/exclude")
            return f"printf '%s\\n' {shlex.quote(pattern)} >> {shlex.quote(os.path.normpath(exclude))}"
    return None


def head_of(place: str | Path) -> str:
    """The commit that is checked out in a directory, or `NO_HEAD`."""
    try:
        return git(place, "rev-parse", "--verify", "--quiet", "HEAD^{commit}", ok=(0, 1, 128)) or NO_HEAD
    except GitFailed:  # there is no git
        return NO_HEAD


def is_ancestor(place: str | Path, first: str, second: str) -> bool:
    """Whether the second commit contains the first one; False for commits that are not known."""
    try:
        git(place, "merge-base", "--is-ancestor", first, second)
    except GitFailed:
        return False
    return True


def without_filters(tree: str | Path) -> list[str]:
    """Options for a call of git that is to start no filter (gitattributes(5)): whoever asks what has changed, such as a
    reviewer, runs no program of the repository's choice. The files are compared as they are."""
    found = git(tree, "config", "--null", "--name-only", "--get-regexp", r"^filter\..*", ok=(0, 1)).split("\0")
    names = dict.fromkeys(name.removeprefix("filter.").rpartition(".")[0] for name in filter(None, found))
    keys = [f"filter.{name}.{key}" for name in names for key in ("clean", "process", "required")]
    return [f"--config-env={key}={_EMPTY}" for key in keys]


def submodules(tree: str | Path) -> Iterator[tuple[str, bool]]:
    """The names of the submodules in a working tree's index, and whether each is a repository of its own now, which has
    to be looked into by a call of its own: git's child in a submodule would start what that one's configuration names.
    Raises `GitFailed`."""
    top = os.path.realpath(tree)
    for entry in git(tree, "ls-files", "--stage", "-z").split("\0"):
        facts, _, name = entry.partition("\t")
        if facts.startswith(REPOSITORY):
            inner = f"{top}/{name}"
            yield name, os.path.realpath(inner) == inner and _is_top(inner)


def _is_top(place: str) -> bool:
    """Whether git takes this directory for the top of a repository; a broken one would lead it to the one around."""
    with suppress(GitFailed):
        return os.path.lexists(f"{place}/.git") and git(place, "rev-parse", "--show-toplevel") == place
    return False


def clear_worktree(tree: str | Path, path: str) -> None:
    """Removes a worktree that nobody has worked in, whole or half made."""
    git(tree, "worktree", "prune")
    git(tree, "worktree", "remove", "--force", "--force", path, ok=(0, 128))
    if os.path.isdir(path) and not os.listdir(path):  # noqa: PTH112, PTH208 - only an empty one
        Path(path).rmdir()


PLAIN_FILE, REPOSITORY = "100644", "160000"
"""The modes, in a commit or an index, of a file that is no program, and of another repository, such as a submodule."""
SUBMODULES_DEEP = 8
"""So far inside of one another submodules are looked into; deeper ones count as changed."""
NO_HEAD = "none"
"""The head of a directory that is not in a git repository, or in one without a commit."""
LEFT_OUT = frozenset({"__pycache__", "node_modules"})
"""Directories that are left out without git, beside hidden ones: what programs put there is no work of anybody."""


def is_filled(place: Path) -> bool:
    """Whether something is there that is no empty directory."""
    try:
        return any(place.iterdir())
    except OSError:
        return os.path.lexists(place)
