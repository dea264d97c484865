"""What differs between two states of a repository, as git-diff(1) says it, whatever the person's configuration makes of
its output. No program of the repository's choice is run: no text conversion, no external diff, no filter."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, cast

from multi_agent_mcp.system.git import REPOSITORY, GitFailed, fixed_environment, git, git_call, without_filters

_SETTINGS = (
    *("-c", "diff.suppressBlankEmpty=false", "-c", "diff.orderFile=/dev/null", "-c", "core.bigFileThreshold=8m"),
    "--literal-pathspecs",
)
_DIFF = (
    *("diff", "--no-ext-diff", "--no-textconv", "--no-color", "--no-relative", "--find-renames", "--unified=3"),
    *("--inter-hunk-context=0", "--src-prefix=a/", "--dst-prefix=b/", "--submodule=short", "--ignore-submodules=dirty"),
)
_BLOCK = 1 << 16
TYPE_CHANGED = "T"
"""The status of a file that became a link, a submodule, or the other way round: its text has two parts."""


@dataclass(frozen=True)
class ChangedFile:
    """A file that differs: its path from the top of the repository, the letter of git-diff(1) for what happened (`A`
    added, `D` deleted, `M` changed, `R` renamed from `old_path`, `T` another type), the lines `added` and `removed`,
    None for what is not text, and whether it is a submodule."""

    path: str
    status: str
    added: int | None = None
    removed: int | None = None
    old_path: str | None = None
    submodule: bool = False

    @property
    def paths(self) -> tuple[str, ...]:
        return (self.path,) if self.old_path is None else (self.old_path, self.path)


@dataclass(frozen=True)
class Comparison:
    """Two states to compare: two commits of the repository at `tree`, or without `second` a commit and the files there,
    as an `index` knows them."""

    tree: Path
    first: str
    second: str | None = None
    index: str | None = None
    options: tuple[str, ...] = ()

    def files(self, paths: Sequence[str] = ()) -> list[ChangedFile]:
        """The files that differ, in git's order. Raises `GitFailed`."""
        output, _ = self._read(self._call("--raw", "--numstat", "-z", paths=paths), None)
        return list(_parsed(output.decode(errors="surrogateescape").split("\0")))

    def text(self, paths: Sequence[str] = (), most: int | None = None) -> tuple[bytes, bool]:
        """The unified text, of these files or all, as git wrote it; cut off behind the last whole line after so many
        bytes, and whether it was. Raises `GitFailed`."""
        return self._read(self._call(paths=paths), most)

    def _read(self, call: Sequence[str], most: int | None) -> tuple[bytes, bool]:
        variables = {} if self.index is None else {"GIT_INDEX_FILE": self.index}
        try:
            with subprocess.Popen(
                git_call(self.tree, call),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=fixed_environment(**variables),
            ) as running:
                output, is_cut = _up_to(cast("IO[bytes]", running.stdout), most)
                if is_cut:
                    running.kill()
        except OSError as error:
            raise GitFailed("diff", None, str(error)) from error
        if running.returncode and not is_cut:
            raise GitFailed("diff", running.returncode, "")
        return output, is_cut

    def _call(self, *how: str, paths: Sequence[str]) -> tuple[str, ...]:
        commits = (self.first,) if self.second is None else (self.first, self.second)
        return (*self.options, *_SETTINGS, *_DIFF, *how, *commits, "--", *paths)


@contextmanager
def with_files(tree: Path, commit: str, paths: Sequence[str]) -> Iterator[Comparison]:
    """The comparison of a commit with these files as they are, also those that git does not know. Raises `GitFailed`,
    `OSError`."""
    with TemporaryDirectory(prefix="multi-agent-mcp-") as place:
        index = f"{place}/index"
        git(tree, "read-tree", commit, GIT_INDEX_FILE=index)
        known = set(git(tree, "ls-files", "-z", GIT_INDEX_FILE=index).split("\0"))
        options = tuple(without_filters(tree))
        fresh = [path for path in paths if path not in known and os.path.lexists(tree / path)]
        if fresh:
            named = "".join(f"{path}\0" for path in fresh)
            add = ("add", "--intent-to-add", "--force", "--pathspec-from-file=-", "--pathspec-file-nul")
            git(tree, *options, "--literal-pathspecs", *add, text=named, GIT_INDEX_FILE=index)
        yield Comparison(tree, commit, index=index, options=options)


def sections(text: bytes, files: Sequence[ChangedFile]) -> list[bytes]:
    """The parts of a unified text that are about these files, all those that it is about, in its order; empty where it
    ends before. A file's lines begin with a blank, a sign or a backslash: none looks like the head of a part."""
    parts = iter(re.split(rb"(?m)^(?=diff --git )", text)[1:])
    found = []
    for file in files:
        part = next(parts, b"")
        found.append(part + next(parts, b"") if file.status == TYPE_CHANGED else part)
    return found


def commit_at(tree: Path, moment: str) -> str | None:
    """The newest commit of what is checked out that was made before this moment (RFC 3339); None if there is none."""
    with suppress(GitFailed):
        return git(tree, "rev-list", "--first-parent", "--max-count=1", f"--before={moment}", "HEAD") or None
    return None


def has_commit(tree: Path, commit: str) -> bool:
    """Whether the repository has this commit. Raises `GitFailed` without git."""
    return git(tree, "rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}", ok=(0, 1, 128)) != ""


def _up_to(output: IO[bytes], most: int | None) -> tuple[bytes, bool]:
    if most is None:
        return output.read(), False
    data = bytearray()
    while len(data) <= most and (block := output.read(_BLOCK)):
        data += block
    if len(data) <= most:
        return bytes(data), False
    return bytes(data[: data.rfind(b"\n", 0, most) + 1]), True


def _parsed(fields: list[str]) -> Iterator[ChangedFile]:
    """The files in the output of `--raw --numstat -z`: first a line for each of them with its modes and status, then
    one with its numbers, in the same order."""
    found: list[tuple[str, str | None, str, bool]] = []
    each = iter(fields)
    counts = ""
    for facts in each:
        if not facts.startswith(":"):
            counts = facts
            break
        modes, status = facts[1:].split()[:2], facts.rpartition(" ")[2][:1]
        path = next(each)
        old, path = (path, next(each)) if status in ("R", "C") else (None, path)
        found.append((path, old, status, REPOSITORY in modes))
    for path, old, status, is_repository in found:
        added, removed, _ = (*counts.split("\t", 2), "", "")[:3]
        if old is not None:
            next(each), next(each)
        yield ChangedFile(path, status, _number(added), _number(removed), old, is_repository)
        counts = next(each, "")


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() else None
