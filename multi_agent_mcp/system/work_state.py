"""The state of a working directory, so that two states of it can be compared: what a check has proved, and whether
anything has changed since."""

from __future__ import annotations

import hashlib
import os
import stat
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, NamedTuple, cast

from multi_agent_mcp.programs import child_environment
from multi_agent_mcp.system.fresh_index import fresh_index
from multi_agent_mcp.system.git import (
    FIXED,
    GIT_SECONDS,
    LEFT_OUT,
    NO_FETCH,
    NO_HEAD,
    SUBMODULES_DEEP,
    GitFailed,
    files_at,
    git_call,
    is_filled,
    submodules,
    without_filters,
)

HASHED_BYTES = 16 << 20
"""Larger untracked files are known by size and times."""
UNCHANGED = hashlib.sha256().hexdigest()
"""The digest of no difference."""

_KINDS = {"core.fileMode": "true", "core.symlinks": "true", "core.ignoreCase": "false"}
_TRUE_KINDS = {
    "GIT_CONFIG_COUNT": str(len(_KINDS)),
    **{f"GIT_CONFIG_KEY_{number}": key for number, key in enumerate(_KINDS)},
    **{f"GIT_CONFIG_VALUE_{number}": value for number, value in enumerate(_KINDS.values())},
}

Update = Callable[[bytes], object]


class WorkState(NamedTuple):
    """The state of a working directory, so that two states can be compared: of a git repository its commit and what
    differs from it, of another directory the names, sizes and times of its files. `head`: the commit; `dirty`: whether
    anything differs from it; `digest`: a SHA-256 of that, with the untracked files; `tracked`: of that without them."""

    head: str
    dirty: bool
    digest: str
    tracked: str = ""

    def is_clean_at(self, commit: str) -> bool:
        """Whether the files are those of the commit, and no others but ignored ones, as far as can be seen."""
        return self.head == commit and not self.dirty and self.tracked == UNCHANGED


def state_of(directory: Path, excluded: Iterable[Path] = ()) -> WorkState:
    """The state of the repository that the directory is in, else of the directory, without the `excluded` paths. Raises
    `OSError`."""
    outside = [Path(os.path.realpath(path)) for path in excluded]
    with suppress(subprocess.SubprocessError, FileNotFoundError, UnicodeError, GitFailed):
        found = _output(directory, "rev-parse", "--show-toplevel", **files_at(directory))
        top = Path(found.rstrip(b"\n").decode())
        return _of_repository(top, outside)
    digest = hashlib.sha256()
    _add_tree(digest.update, directory, outside)
    return WorkState(NO_HEAD, dirty=True, digest=digest.hexdigest())


def _of_repository(top: Path, outside: Sequence[Path], depth: int = 0) -> WorkState:
    """Compares the files with the commit, whatever git's index says of them (`fresh_index`). What git was told not to
    see (`_hidden_rules`), or to show in place of something else (git-replace(1)), is looked at here, and so are
    submodules. Raises as `_output`, and `GitFailed`."""
    with fresh_index(top) as where:
        return _compared(top, outside, depth, {**where, **true_kinds(top)})


def true_kinds(top: Path) -> dict[str, str]:
    """The variables for calls of git that see which files are programs or links, and the case of names, although the
    repository's configuration says that the file system does not keep that; none where it may be right. A file without
    a name (open(2), `O_TMPFILE`) tells, so only on Linux."""
    try:
        probe = os.open(top, os.O_TMPFILE | os.O_RDWR, 0o600)
    except (OSError, AttributeError):
        return {}
    try:
        os.fchmod(probe, 0o700)
        keeps_modes = os.fstat(probe).st_mode & 0o777 == 0o700
    except OSError:
        keeps_modes = False
    finally:
        os.close(probe)
    return _TRUE_KINDS if keeps_modes else {}


def _compared(top: Path, outside: Sequence[Path], depth: int, where: Mapping[str, str]) -> WorkState:
    digest = hashlib.sha256()
    head = _output(top, "rev-parse", "--verify", "--quiet", "HEAD^{commit}").decode().strip()
    within = [path.relative_to(top).as_posix() for path in outside if path.is_relative_to(top) and path != top]
    paths = ["--", ".", *(f":(exclude,literal){path}" for path in within)]
    plain = ("--no-ext-diff", "--no-textconv", "--no-color", "--no-renames", "--binary", "--full-index")
    commits = ("--submodule=short", "--ignore-submodules=dirty")
    dirty = _stream(digest.update, top, *without_filters(top), "diff", *plain, *commits, head, *paths, **where)
    for line in _names(top, "ls-files", "-z", "-v", *paths, **where):
        if line[:1] == b"S":
            _add_file(digest.update, top / os.fsdecode(line[2:]), os.fsdecode(line[2:]))
    digest.update(_output(top, "for-each-ref", "--format=%(refname) %(objectname)", "refs/replace/"))
    inside = [*_of_submodules(top, outside, depth)]
    for name, state in inside:
        if state.tracked != UNCHANGED:
            digest.update(f"\0{name}\0{state.tracked}\0".encode(errors="surrogateescape"))
    tracked = digest.hexdigest()
    for name, state in inside:
        dirty |= state.dirty
        if state.digest != UNCHANGED:
            digest.update(f"\0{name}\0{state.digest}\0".encode(errors="surrogateescape"))
    for path in _names(top, "ls-files", "-z", "--others", "--exclude-standard", *paths, **where):
        dirty = True
        _add_file(digest.update, top / os.fsdecode(path), os.fsdecode(path))
    for rules in _hidden_rules(top, paths, where):
        if any(line.strip() and not line.startswith(b"#") for line in _lines(rules)):
            _add_file(digest.update, rules, rules.name)
    return WorkState(head, dirty, digest.hexdigest(), tracked)


def _of_submodules(top: Path, outside: Sequence[Path], depth: int) -> Iterator[tuple[str, WorkState]]:
    """The states of the submodules. One that is no repository, or a broken one, is compared as a directory; one that
    is not there, or empty, is no change."""
    for name, is_repository in submodules(top):
        inner = top / name
        if inner in outside:
            continue
        with suppress(subprocess.SubprocessError, GitFailed):
            if is_repository and depth < SUBMODULES_DEEP:
                yield name, _of_repository(inner, outside, depth + 1)
                continue
        if is_filled(inner):
            digest = hashlib.sha256()
            _add_file(digest.update, inner, name)
            yield name, WorkState(NO_HEAD, dirty=True, digest=digest.hexdigest(), tracked=UNCHANGED)


def _hidden_rules(top: Path, paths: Sequence[str], where: Mapping[str, str]) -> Iterator[Path]:
    """The files with rules of what git ignores that are in no commit (gitignore(5)): of the repository, of the user,
    and each `.gitignore` that is ignored itself, but for those of directories that are hidden or marked as caches."""
    yield top / os.fsdecode(_output(top, "rev-parse", "--git-path", "info/exclude").rstrip(b"\n"))
    with suppress(subprocess.CalledProcessError):  # there is none
        yield Path(os.fsdecode(_output(top, "config", "--path", "--get", "core.excludesFile").rstrip(b"\n")))
    environment = _plain_environment()
    home = environment.get("XDG_CONFIG_HOME") or f"{environment.get('HOME', '')}/.config"
    yield Path(home, "git", "ignore")
    hidden = ("--others", "--ignored", "--exclude-standard", "--directory")
    for name in _names(top, "ls-files", "-z", *hidden, *paths, **where):
        found = top / os.fsdecode(name)
        place = found.parent if found.name == ".gitignore" else found
        parts = place.relative_to(top).parts
        if not any(part.startswith(".") for part in parts) and not (place / "CACHEDIR.TAG").exists():
            yield place / ".gitignore"


def _lines(path: Path) -> Sequence[bytes]:
    with suppress(OSError):
        return path.read_bytes().splitlines()
    return ()


def _plain_environment(**variables: str) -> dict[str, str]:
    """Ours, with these variables, without what would make git look elsewhere, and without locks: others may be at work
    there."""
    plain = {name: value for name, value in child_environment().items() if not name.startswith("GIT_")}
    return {**plain, **FIXED, **NO_FETCH, **variables}


def _output(top: Path, *arguments: str, **variables: str) -> bytes:
    """The output of git. Raises `SubprocessError`, and `FileNotFoundError` without git."""
    call = git_call(top, arguments)
    environment = _plain_environment(**variables)
    return subprocess.run(
        call, stdin=subprocess.DEVNULL, capture_output=True, env=environment, timeout=GIT_SECONDS, check=True
    ).stdout


def _stream(update: Update, top: Path, *arguments: str, **variables: str) -> bool:
    """Adds the output of git, of any length; returns whether there was any. Raises as `_output`."""
    some = False
    quiet, environment = subprocess.DEVNULL, _plain_environment(**variables)
    with subprocess.Popen(
        git_call(top, arguments), stdin=quiet, stdout=subprocess.PIPE, stderr=quiet, env=environment
    ) as running:
        output = cast("IO[bytes]", running.stdout)
        while data := output.read(1 << 20):
            some = True
            update(data)
    if running.returncode:
        raise subprocess.CalledProcessError(running.returncode, "git")
    return some


def _names(top: Path, *arguments: str, **variables: str) -> Iterator[bytes]:
    yield from filter(None, _output(top, *arguments, **variables).split(b"\0"))


def _add_file(update: Update, path: Path, name: str) -> None:
    """Adds a file: its name, kind and content; of a large one, or of a directory, what its status says."""
    try:
        status = path.lstat()
    except OSError:
        update(f"\0{name}\0gone\0".encode(errors="surrogateescape"))
        return
    update(f"\0{name}\0{status.st_mode:o}\0{status.st_size}\0".encode(errors="surrogateescape"))
    if stat.S_ISLNK(status.st_mode):
        update(os.fsencode(path.readlink()))
    elif stat.S_ISDIR(status.st_mode):
        _add_tree(update, path, ())
    elif stat.S_ISREG(status.st_mode) and status.st_size <= HASHED_BYTES:
        with suppress(OSError):
            update(path.read_bytes())
    else:
        update(f"{status.st_mtime_ns} {status.st_ctime_ns}".encode())


def _add_tree(update: Update, directory: Path, outside: Sequence[Path]) -> None:
    """Adds the names, kinds, sizes and times of all files below a directory."""
    for place, names, files in os.walk(directory):
        here = Path(place)
        names[:] = sorted(name for name in names if not (name.startswith(".") or name in LEFT_OUT))
        names[:] = [name for name in names if Path(os.path.realpath(here / name)) not in outside]
        for name in sorted([*files, *(name for name in names if (here / name).is_symlink())]):
            with suppress(OSError):
                status = (here / name).lstat()
                facts = f"{status.st_mode:o} {status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}"
                update(f"\0{(here / name).relative_to(directory)}\0{facts}".encode(errors="surrogateescape"))
