"""An index of git that is made again, for looks at files that nothing can be hidden from.

Git compares a file with its commit only if the index does not say that the file is as it was: by its size and times, by
a mark (`update-index --assume-unchanged`, `--skip-worktree`), or by a cache of what is new. Anybody who can write the
index can have it say so of any file. The files of a fresh one are read."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from multi_agent_mcp.system.file_status import tree_of
from multi_agent_mcp.system.git import NO_FILTER, NO_HOOKS, Git, files_at, git, without_filters

_OWN = (*NO_HOOKS, "-c", "core.splitIndex=false", "-c", "core.untrackedCache=false")
"""Writing an index runs a hook (`post-index-change`), and can leave a part of it in the repository."""
_LFS = re.compile(rb"version https://git-lfs\.github\.com/spec/v1\n(?:ext-.*\n)*oid sha256:([0-9a-f]{64})\nsize \d+\n")
_LFS_BYTES = 1024


@contextmanager
def fresh_index(tree: str | Path, *, believed: bool = False) -> Iterator[dict[str, str]]:
    """The variables for calls of git that find every difference of the files in a working tree, although no filter is
    run (`without_filters`). A file that a sparse checkout leaves out is none; nor is one that Git LFS has put in the
    place of its pointer. What another filter has made of a file is one, unless git's own index is to be `believed` that
    it is as it was. Starts no program of the repository's choice. Raises `GitFailed`."""
    tree, where = tree_of(f"{tree}/-") or tree, files_at(tree)
    with TemporaryDirectory(prefix="multi-agent-mcp-") as scratch:
        fresh = where | {"GIT_INDEX_FILE": f"{scratch}/index"}
        own: Git = partial(git, tree, *_OWN, *without_filters(tree), fetches=False)
        own = partial(own, **where)
        call: Git = partial(own, **fresh)
        listed = own("ls-files", "--stage", "-v", "-z").split("\0")
        entries = [entry.partition(" ") for entry in listed if entry]
        call("update-index", "-z", "--index-info", text=_lines(facts for _, _, facts in entries))
        names = (facts.partition("\t")[2] for mark, _, facts in entries if mark in "Ss")
        if (left_out := [name for name in names if not os.path.lexists(Path(tree, name))]) and _is_sparse(own):
            call("update-index", "--skip-worktree", "-z", "--stdin", text=_lines(left_out))
        call("update-index", "-q", "--refresh", ok=(0, 1))
        if same := _filtered(own, call, tree, believed=believed):
            call("update-index", "--assume-unchanged", "-z", "--stdin", text=_lines(same))
        yield fresh


def has_marks(tree: str | Path) -> bool:
    """Whether git's own index marks a file as one not to look at. Raises `GitFailed`."""
    return any(entry[:1].islower() or entry[:1] == "S" for entry in git(tree, "ls-files", "-z", "-v").split("\0"))


def _is_sparse(own: Git) -> bool:
    return own("config", "--type=bool", "--get", "core.sparseCheckout", ok=(0, 1)) == "true"


def _filtered(own: Git, call: Git, tree: str | Path, *, believed: bool) -> list[str]:
    """The files that are what a filter has made of the commit's."""
    changed = _differing(call)
    listed = own("check-attr", "-z", "--stdin", "filter", text=_lines(changed)).split("\0") if changed else []
    filtered = [name for name, how in zip(listed[::3], listed[2::3], strict=False) if how not in NO_FILTER]
    changed_too = set(_differing(own)) if believed and filtered else set(filtered)
    return [name for name in filtered if name not in changed_too or _is_large(call, tree, name)]


def _differing(call: Git) -> list[str]:
    return list(filter(None, call("diff-files", "--name-only", "--ignore-submodules=dirty", "-z").split("\0")))


def _is_large(call: Git, tree: str | Path, name: str) -> bool:
    """Whether a file is the one of which the index has the pointer of Git LFS."""
    if int(call("cat-file", "-s", f":0:{name}")) > _LFS_BYTES or Path(tree, name).is_symlink():
        return False
    pointer = _LFS.fullmatch(call("cat-file", "blob", f":0:{name}").encode(errors="surrogateescape") + b"\n")
    try:
        with Path(tree, name).open("rb") as file:
            return pointer is not None and hashlib.file_digest(file, "sha256").hexdigest() == pointer[1].decode()
    except OSError:
        return False


def _lines(names: Iterator[str] | Sequence[str]) -> str:
    return "".join(f"{name}\0" for name in names)
