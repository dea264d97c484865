"""What differs between two states of a repository, as git-diff(1) says it, whatever the person's configuration makes of
its output. No program of the repository's choice is run: no text conversion, no external diff, no filter. It is asked
in an empty repository that borrows the objects: no configuration and no attribute of anybody hides a change."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, cast

from multi_agent_mcp.system.git import REPOSITORY, GitFailed, fixed_environment, git, git_call, without_filters

_SETTINGS = (
    *("-c", "core.attributesFile=/dev/null", "-c", "core.bigFileThreshold=8m"),
    "--literal-pathspecs",
)
_DIFF = (
    *("diff", "--no-ext-diff", "--no-textconv", "--no-color", "--no-relative", "--find-renames", "--unified=3"),
    *("--inter-hunk-context=0", "--src-prefix=a/", "--dst-prefix=b/", "--submodule=short", "--ignore-submodules=dirty"),
)
_NO_SETTINGS = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "GIT_ATTR_NOSYSTEM": "1"}
_PART = b"diff --git "
_BLOCK = 1 << 16
_NOTHING = "000000"
_LINK = "120000"
SUBMODULE, LINK = "submodule", "link"
TYPE_CHANGED = "T"
"""The status of a file that became a link, a submodule, or the other way round: its text has two parts."""


@dataclass(frozen=True, kw_only=True)
class ChangedFile:
    """A file that differs: its path from the top of the repository, the letter of git-diff(1) for what happened (`A`
    added, `D` deleted, `M` changed, `R` renamed from `old_path`, `T` another type), the lines `added` and `removed`,
    None for what is not text, whether it is a submodule, and git's modes of it before and now, None where it is not
    there."""

    path: str
    status: str
    added: int | None = None
    removed: int | None = None
    old_path: str | None = None
    submodule: bool = False
    old_mode: str | None = None
    mode: str | None = None

    @property
    def paths(self) -> tuple[str, ...]:
        return (self.path,) if self.old_path is None else (self.old_path, self.path)

    @property
    def leads_to(self) -> str | None:
        """A `SUBMODULE` or a symbolic `LINK`, by which there are, or were, other files below its path; else None."""
        modes = (self.old_mode, self.mode)
        return SUBMODULE if REPOSITORY in modes else LINK if _LINK in modes else None


@dataclass(frozen=True)
class Comparison:
    """Two states to compare: commits, or trees, of the repository at `tree`, with further `objects` in a directory."""

    tree: Path
    first: str
    second: str
    objects: str | None = None

    def files(self, paths: Sequence[str] = ()) -> list[ChangedFile]:
        """The files that differ, in git's order. Raises `GitFailed`."""
        with self._running("--raw", "--numstat", "-z", paths=paths) as stream:
            output = stream.read()
        return list(_parsed(output.decode(errors="surrogateescape").split("\0")))

    def text(self, paths: Sequence[str] = (), most: int | None = None) -> tuple[bytes, bool]:
        """The unified text, of these files or all, as git wrote it; cut off behind the last whole line after so many
        bytes, and whether it was. Raises `GitFailed`."""
        with self._running(paths=paths) as stream:
            return _up_to(stream, most)

    def shared_out(self, paths: Sequence[str], most: int) -> tuple[list[bytes], list[int]]:
        """The texts of the files, in git's order, in so many bytes altogether, and how long each of them is: short ones
        whole, the others cut off at a line, each at the same length. Raises `GitFailed`."""
        sizes = [size for _, size in self._parts(paths, 0)]
        room, share = most, most
        for left, size in zip(range(len(sizes), 0, -1), sorted(sizes), strict=True):
            share = room // left
            if size > share:
                break
            room -= size
        kept = self._parts(paths, share)
        return [text if len(text) == size or b"\n@@ " in text else b"" for text, size in kept], sizes

    def _parts(self, paths: Sequence[str], share: int) -> list[tuple[bytes, int]]:
        files, parts = self.files(paths), list[tuple[bytearray, int]]()
        with self._running(paths=paths) as stream:
            for line in stream:
                if line.startswith(_PART):
                    parts.append((bytearray(), 0))
                text, size = parts.pop()
                if size + len(line) <= share:
                    text += line
                parts.append((text, size + len(line)))
        each, found = iter(parts), list[tuple[bytes, int]]()
        for file in files:
            text, size = next(each, (bytearray(), 0))
            if file.status == TYPE_CHANGED:
                more, further = next(each, (bytearray(), 0))
                text, size = text + more[: max(0, share - len(text))], size + further
            found.append((bytes(text), size))
        return found

    @contextmanager
    def _running(self, *how: str, paths: Sequence[str]) -> Iterator[IO[bytes]]:
        """The output of git-diff(1), of which no more is read than wanted."""
        with TemporaryDirectory(prefix="multi-agent-mcp-") as place:
            names, *known = _objects_of(self.tree)
            _make_empty(Path(place), names, *known, *([self.objects] if self.objects else []))
            call = git_call(place, (*_SETTINGS, *_DIFF, *how, self.first, self.second, "--", *paths))
            environment = fixed_environment(GIT_DIR=place, **_NO_SETTINGS)
            try:
                running = subprocess.Popen(
                    call, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
                )
            except OSError as error:
                raise GitFailed("diff", None, str(error)) from error
            with running:
                stream = cast("IO[bytes]", running.stdout)
                yield stream
                is_cut = stream.read(1) != b""
                if is_cut:
                    running.kill()
        if running.returncode and not is_cut:
            raise GitFailed("diff", running.returncode, "")


def _objects_of(tree: Path) -> tuple[str, str]:
    """The hash by which a repository's objects are named, and their directory. Raises `GitFailed`."""
    names, place = git(tree, "rev-parse", "--show-object-format", "--git-path", "objects").split("\n", 1)
    return names, str(Path(tree, place).resolve())


def _make_empty(place: Path, names: str, *objects: str) -> None:
    """Makes a bare repository without anything of its own, with the objects of others, named by this hash."""
    for name in ("objects/info", "refs"):
        (place / name).mkdir(parents=True)
    (place / "objects/info/alternates").write_text("".join(f"{one}\n" for one in objects))
    extension = "" if names == "sha1" else f"[extensions]\n\tobjectFormat = {names}\n"
    version = 1 if extension else 0
    (place / "config").write_text(f"[core]\n\trepositoryformatversion = {version}\n\tbare = true\n{extension}")
    (place / "HEAD").write_text("ref: refs/heads/none\n")


@contextmanager
def with_files(tree: Path, commit: str, paths: Sequence[str]) -> Iterator[Comparison]:
    """The comparison of a commit with these files as they are, also those that git does not know. Raises `GitFailed`,
    `OSError`."""
    with TemporaryDirectory(prefix="multi-agent-mcp-") as place:
        own = Path(place, "own")
        _make_empty(own, *_objects_of(tree))
        objects = str(own / "objects")
        here = partial(git, tree, GIT_INDEX_FILE=f"{place}/index", GIT_OBJECT_DIRECTORY=objects)
        here("read-tree", commit)
        known = set(here("ls-files", "-z").split("\0"))
        named = "".join(f"{path}\0" for path in paths if path in known or os.path.lexists(tree / path))
        if named:
            options = ("-c", "core.safecrlf=false", *without_filters(tree), "--literal-pathspecs")
            here(*options, "add", "--force", "--pathspec-from-file=-", "--pathspec-file-nul", text=named)
        yield Comparison(tree, commit, here("write-tree"), objects)


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
    found: list[tuple[str, str | None, str, list[str]]] = []
    each = iter(fields)
    counts = ""
    for facts in each:
        if not facts.startswith(":"):
            counts = facts
            break
        modes, status = facts[1:].split()[:2], facts.rpartition(" ")[2][:1]
        path = next(each)
        old, path = (path, next(each)) if status in ("R", "C") else (None, path)
        found.append((path, old, status, modes))
    for path, old, status, modes in found:
        added, removed, _ = (*counts.split("\t", 2), "", "")[:3]
        if old is not None:
            next(each), next(each)
        was, now = (None if mode == _NOTHING else mode for mode in modes)
        yield ChangedFile(
            path=path,
            status=status,
            added=_number(added),
            removed=_number(removed),
            old_path=old,
            submodule=REPOSITORY in modes,
            old_mode=was,
            mode=now,
        )
        counts = next(each, "")


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() else None
