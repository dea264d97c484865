"""Runs git(1), for what its files alone do not tell, such as the state of a working directory."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import stat
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, NamedTuple, cast

from multi_agent_mcp.errors import Refusal, StorageError
from multi_agent_mcp.programs import child_environment
from multi_agent_mcp.system.file_status import tree_of

GIT_SECONDS = 120.0
SAID_MAX = 600
_ELSEWHERE = frozenset(
    f"GIT_{name}"
    for name in (
        *("DIR", "WORK_TREE", "INDEX_FILE", "COMMON_DIR", "PREFIX", "NAMESPACE", "OBJECT_DIRECTORY", "SHALLOW_FILE"),
        *("ALTERNATE_OBJECT_DIRECTORIES", "QUARANTINE_PATH", "GRAFT_FILE", "REPLACE_REF_BASE", "CEILING_DIRECTORIES"),
        *("LITERAL_PATHSPECS", "GLOB_PATHSPECS", "NOGLOB_PATHSPECS", "ICASE_PATHSPECS"),
    )
)
"""Variables that would lead git away from the directory that it is called for, or give paths another meaning; some are
set within a hook of git."""


def plain_environment(**added: str) -> dict[str, str]:
    """Ours, without what would make git look elsewhere."""
    return {name: value for name, value in child_environment().items() if name not in _ELSEWHERE} | added


TRUE_OBJECTS = {"GIT_NO_REPLACE_OBJECTS": "1"}
"""Commits are what they were when they were made (git-replace(1))."""
_NO_FETCH = {"GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": "none"}
"""What is missing in a repository (partial clones) is not fetched: its configuration names the program that would."""
_EMPTY = "MULTI_AGENT_MCP_EMPTY"
"""A variable without a value, for `--config-env`: unlike `-c`, it takes names with an equals sign."""
_FIXED = {"GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C", _EMPTY: "", **TRUE_OBJECTS}


NO_HOOKS = ("-c", "core.hooksPath=/dev/null")
"""Options for a call of git that is to run no hook (githooks(5)), not even `reference-transaction`."""


def fixed_environment(**variables: str) -> dict[str, str]:
    """The environment of every call of git."""
    return plain_environment(**_FIXED, **variables)


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
    *("-c", "core.quotePath=false", "-c", "diff.orderFile=/dev/null"),
)
"""Whatever reads the index asks no program of the repository's choice what has changed, and is not content with a size
and a time that anybody can set back; names come as they are, in the order of the index."""


def git_call(place: str | Path, arguments: Sequence[str]) -> list[str]:
    """A call of git that sees every change of a file, and starts nothing to see it."""
    return ["git", "-C", str(place), *_SEEN, *arguments]


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
    fixed = (_FIXED if fetches else _FIXED | _NO_FETCH) | (files_at(place) if in_place else {})
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
HASHED_BYTES = 16 << 20
"""Larger untracked files are known by size and times."""
LEFT_OUT = frozenset({"__pycache__", "node_modules"})
"""Directories that are left out without git, beside hidden ones: what programs put there is no work of anybody."""

UNCHANGED = hashlib.sha256().hexdigest()
"""The digest of no difference."""

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
    """Compares the files with the commit. What git was told not to look at (`update-index --assume-unchanged`), not to
    see (`_hidden_rules`), or to show in place of something else (git-replace(1)), is looked at here, and so are
    submodules. Raises as `_output`, and `GitFailed`."""
    digest, where = hashlib.sha256(), files_at(top)
    head = _output(top, "rev-parse", "--verify", "--quiet", "HEAD^{commit}").decode().strip()
    within = [path.relative_to(top).as_posix() for path in outside if path.is_relative_to(top) and path != top]
    paths = ["--", ".", *(f":(exclude,literal){path}" for path in within)]
    plain = ("--no-ext-diff", "--no-textconv", "--no-color", "--no-renames", "--binary", "--full-index")
    commits = ("--submodule=short", "--ignore-submodules=dirty")
    dirty = _stream(digest.update, top, *without_filters(top), "diff", *plain, *commits, head, *paths, **where)
    for line in _names(top, "ls-files", "-z", "-v", *paths, **where):
        if line[:1].islower() or line[:1] == b"S":
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


def is_filled(place: Path) -> bool:
    """Whether something is there that is no empty directory."""
    try:
        return any(place.iterdir())
    except OSError:
        return os.path.lexists(place)


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
    return {**plain, **_FIXED, **_NO_FETCH, **variables}


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
