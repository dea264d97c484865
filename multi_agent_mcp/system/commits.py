"""Commits what an agent has left in its worktree, in its place: its host's sandbox may not let it write there.

The agent may have written every file of the worktree, `.gitattributes` and `.git` too, and this process is outside of
its sandbox. So nothing starts that the agent could choose: no hook, no filter, nothing in repositories inside of it."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

from multi_agent_mcp.domain.text import one_line
from multi_agent_mcp.errors import NotCommitted
from multi_agent_mcp.system.file_status import common_directory
from multi_agent_mcp.system.files import storage_errors
from multi_agent_mcp.system.git import NO_FILTER, NO_HOOKS, REPOSITORY, Git, GitFailed, git, without_filters
from multi_agent_mcp.system.working_tree import in_progress

LEFT_AS_THEY_ARE = ("--modified", "--deleted", "--others", "--exclude-standard")


class CommitPlace(NamedTuple):
    """A worktree in which our server commits: its path, the agent that works there, and the git directory of the
    repository to which it belongs."""

    tree: str
    agent_id: str
    common: str


def commit_all(place: CommitPlace, message: str) -> str | None:
    """Commits everything in the worktree that is not committed and not ignored, in the name of git's user; returns the
    commit, or None if there was nothing. Raises `NotCommitted` with the reason where that is not possible without
    running something or taking sides, `GitFailed` and `StorageError`; then everything is as it was.

    The files are read into a copy of the index, so that a refusal leaves no trace; then the index follows, at last the
    branch: killed in between, the files are staged, as after `git add`, and the next call commits them."""
    own = own_directory(place.tree, place.common, "commit_elsewhere")
    if command := in_progress(place.tree):
        raise NotCommitted("commit_in_progress", command=command)
    quiet = (*NO_HOOKS, "-c", "i18n.commitEncoding=UTF-8", *without_filters(place.tree))
    call: Git = partial(git, place.tree, *quiet, GIT_DIR=str(own), GIT_WORK_TREE=place.tree, fetches=False)
    with tempfile.TemporaryDirectory() as scratch:
        index = f"{scratch}/index"
        with storage_errors(own):
            shutil.copy2(own / "index", index)  # with its time, by which git knows what may have changed since
        copy: Git = partial(call, GIT_INDEX_FILE=index)
        names = _taken(copy, Path(place.tree))
        old, tree = call("rev-parse", "--verify", "HEAD"), copy("write-tree")
        if not _differs(call, old, tree):
            _follow(call, copy, names, len(old))
            return None
        commit = _committed(call, place.agent_id, tree, old, message)
        _follow(call, copy, names, len(old))
    call("update-ref", "-m", f"commit: {one_line(message.splitlines()[0])}", "HEAD", commit, old)
    return commit


def own_directory(tree: str, common: str, refusal: str = "worktree_elsewhere") -> Path:
    """A worktree's own git directory. Its `.git` and what that leads to are files that the agent may have replaced: it
    counts only if the repository whose directory is `common` knows this worktree as its own, and never for a
    repository's main checkout. Raises `NotCommitted` with this text otherwise, and `GitFailed`."""
    own = Path(os.path.realpath(git(tree, "rev-parse", "--absolute-git-dir")))
    real = os.path.realpath(common)
    with suppress(OSError, ValueError):
        link = own / (own / "gitdir").read_text().strip()
        is_known = own.parent == Path(real, "worktrees") and os.path.realpath(common_directory(tree)) == real
        if is_known and os.path.realpath(link) == os.path.realpath(f"{tree}/.git"):
            return own
    raise NotCommitted(refusal, path=tree)


def _taken(copy: Git, tree: Path) -> list[str]:
    """Reads what has changed into the copy of the index; returns the names of the files. Raises `NotCommitted`."""
    if unmerged := copy("ls-files", "-z", "--unmerged"):
        raise NotCommitted("commit_unmerged", file=shown_name(unmerged.split("\0")[0].partition("\t")[2]))
    names = list(dict.fromkeys(filter(None, copy("ls-files", "-z", *LEFT_AS_THEY_ARE).split("\0"))))
    if nested := next((name for name in names if name.endswith("/")), None):
        raise NotCommitted("commit_repository", file=shown_name(nested))
    if not names:
        return names
    _require_no_filter(copy, [name for name in names if (tree / name).is_file() and not (tree / name).is_symlink()])
    gone = {name for name in names if (tree / name).is_dir() and not (tree / name).is_symlink()}  # files before
    for how, some in (("--force-remove", sorted(gone)), ("--remove", [name for name in names if name not in gone])):
        if some:
            copy("update-index", "--add", "--replace", how, "-z", "--stdin", text=_lines(some))
    return names


def _require_no_filter(copy: Git, names: list[str]) -> None:
    """Raises `NotCommitted` for a file that git would give to a program first (gitattributes(5), `filter`)."""
    found = copy("check-attr", "-z", "--stdin", "filter", text=_lines(names)).split("\0") if names else []
    for name, value in zip(found[::3], found[2::3], strict=False):
        if value not in NO_FILTER:
            raise NotCommitted("commit_filter", file=shown_name(name), filter=shown_name(value))


def _differs(call: Git, old: str, tree: str) -> bool:
    """Whether there is anything to commit. Raises `NotCommitted` if that is another repository, which git would look
    into from then on, and start what its configuration names."""
    facts = call("diff-tree", "-r", "-z", "--raw", "--no-renames", old, tree).split("\0")
    for modes, name in zip(facts[::2], facts[1::2], strict=False):
        if REPOSITORY in modes.lstrip(":").split()[:2]:
            raise NotCommitted("commit_repository", file=shown_name(name))
    return len(facts) > 1


def _committed(call: Git, agent_id: str, tree: str, old: str, message: str) -> str:
    has_name = call("var", "GIT_COMMITTER_IDENT", ok=(0, 128)) != ""
    named = () if has_name else ("-c", f"user.name={agent_id}", "-c", f"user.email={agent_id}@localhost")
    signs = call("config", "--type=bool", "--default=false", "commit.gpgsign") == "true"
    return call(*named, "commit-tree", tree, *(("-S",) if signs else ()), "-p", old, "-F", "-", text=f"{message}\n")


def _follow(call: Git, copy: Git, names: list[str], length: int) -> None:
    """Makes the worktree's index say of these files what the copy says: what was looked at, whatever is there now."""
    if not names:
        return
    entries = {entry.partition("\t")[2]: entry for entry in copy("ls-files", "-z", "--stage").split("\0") if entry}
    gone = f"0 {'0' * length}\t"
    call("update-index", "--replace", "-z", "--index-info", text=_lines(entries.get(n, gone + n) for n in names))
    with suppress(GitFailed):  # only the times of files, which the next git looks up else
        call("update-index", "-q", "--refresh", ok=(0, 1))


def _lines(names: Iterable[str]) -> str:
    return "".join(f"{name}\0" for name in names)


def shown_name(name: str) -> str:
    """The name of a file, of any bytes, in a sentence."""
    return one_line(name.encode(errors="surrogateescape").decode(errors="replace"))
