"""Has a checkout follow its branch from one commit to another, so that a step that git refuses or a kill cuts off can
be finished or taken back; and runs the hooks of a commit that is made without a checkout."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from multi_agent_mcp.system.git import GitFailed, git


def in_the_way(tree: Path, old: str, new: str) -> list[str]:
    """The files and directories of a checkout at `old` that git does not know, or ignores, and that `new` brings by
    these names: git itself overwrites ignored ones. Raises `GitFailed`."""
    added = _names(git(tree, "diff-tree", "-r", "-z", "--name-only", "--no-renames", "--diff-filter=A", old, new))
    return list(dict.fromkeys(found for name in added if (found := _found_at(tree, old, name)) is not None))


def _found_at(tree: Path, old: str, name: str) -> str | None:
    """What is at a path that the commit `old` does not have, or above it where it has no file either."""
    for above in reversed(Path(name).parents[:-1]):
        found = tree / above
        if os.path.lexists(found) and (found.is_symlink() or not found.is_dir()):
            return None if _is_known(tree, old, above.as_posix()) else above.as_posix()
    found = tree / name
    if not os.path.lexists(found):
        return None
    if found.is_symlink() or not found.is_dir():
        return name
    return f"{name}/" if git(tree, "ls-files", "--others", "-z", "--", f":(literal){name}") else None


def _is_known(tree: Path, commit: str, name: str) -> bool:
    return git(tree, "ls-tree", "-z", commit, "--", f":(literal){name}") != ""


def follow(tree: Path, old: str, new: str) -> None:
    """Brings index and files from `old` to `new`, also if a killed process had begun that. Changes of others are kept;
    where they are in the way, raises `GitFailed` before anything is changed."""
    if has_followed(tree, old, new):
        return
    try:
        git(tree, "read-tree", "-m", "-u", old, new)
    except GitFailed:
        if not _took_back(tree, old, new):
            raise
        git(tree, "read-tree", "-m", "-u", old, new)
    if not has_followed(tree, old, new):
        raise GitFailed("read-tree", 0, f"{tree} is not at {new[:10]}")


def has_followed(tree: Path, old: str, new: str) -> bool:
    """Whether the index has left `old` behind: git writes it last, and whole."""
    changed = _names(git(tree, "diff-tree", "-r", "-z", "--name-only", "--no-renames", old, new))
    return set(changed) <= set(_names(git(tree, "diff-index", "--cached", "-z", "--name-only", "--no-renames", old)))


def is_untouched(tree: Path, old: str, new: str) -> bool:
    """Whether index and files are those of `old`, and nothing of `new` is there yet. Raises `GitFailed`."""
    staged = git(tree, "diff-index", "--cached", "-z", "--name-only", old)
    changed = git(tree, "diff", "-z", "--name-only", "--ignore-submodules")
    return not (staged or changed or in_the_way(tree, old, new))


def _took_back(tree: Path, old: str, new: str) -> bool:
    """Removes the files that a killed git had written, whole or in part; whether there were any. What they held is in
    `new`."""
    begun = list(_begun(tree, old, new))
    for path in begun:
        path.unlink()
    return bool(begun)


def _begun(tree: Path, old: str, new: str) -> Iterator[Path]:
    for name in _names(git(tree, "diff-tree", "-r", "-z", "--name-only", "--no-renames", "--diff-filter=d", old, new)):
        path = tree / name
        if path.is_symlink():
            content, how = str(path.readlink()), "blob"
        elif path.is_file():
            content, how = path.read_bytes().decode(errors="surrogateescape"), "--filters"
        else:
            continue
        if f"{git(tree, 'cat-file', how, f'{new}:{name}')}\n".startswith(content):
            yield path


def hooks_of(tree: Path, names: Sequence[str]) -> list[str]:
    """Those of the named hooks (githooks(5)) that a repository has."""
    place = tree / git(tree, "rev-parse", "--git-path", "hooks")
    return [name for name in names if os.access(place / name, os.X_OK) and (place / name).is_file()]


def seen_by_hook(tree: Path, hook: str, words: str) -> str:
    """The message of a commit as this hook leaves it, if there is one. Raises `GitFailed` if that refuses it."""
    if not hooks_of(tree, [hook]):
        return words
    with tempfile.TemporaryDirectory() as scratch:
        message = Path(scratch, "COMMIT_EDITMSG")
        message.write_text(words, encoding="utf-8")
        git(tree, "hook", "run", hook, "--", str(message))
        return message.read_text(encoding="utf-8", errors="surrogateescape")


def _names(listed: str) -> list[str]:
    return list(filter(None, listed.split("\0")))
