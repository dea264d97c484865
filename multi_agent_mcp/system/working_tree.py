"""Git's working trees, by their files alone: `hook` imports this module, so it starts no program and imports nothing
slow (gitrepository-layout(5))."""

from __future__ import annotations

import os


def tree_of(path: str) -> str | None:
    """The working tree that contains this absolute path, whether it exists or not; None outside of any."""
    place = os.path.realpath(os.path.dirname(path))  # noqa: PTH120 - see above
    while not os.path.lexists(f"{place}/.git"):
        place, before = os.path.dirname(place), place  # noqa: PTH120 - see above
        if place == before:
            return None
    return place


def within(tree: str, path: str) -> str | None:
    """The path relative to the tree, as git spells it; None for one outside of it."""
    place = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))  # noqa: PTH118, PTH119, PTH120
    return place.removeprefix(f"{tree.rstrip('/')}/") if place.startswith(f"{tree.rstrip('/')}/") else None


def common_directory(tree: str) -> str:
    """The directory that all worktrees of a repository share (git-worktree(1), DETAILS): the repository's own."""
    try:
        with open(f"{tree}/.git", encoding="utf-8", errors="surrogateescape") as file:
            link = file.read().removeprefix("gitdir:").strip()
    except OSError:  # a directory: the main working tree
        return f"{tree}/.git"
    own = os.path.join(tree, link)  # noqa: PTH118 - see above
    try:
        with open(f"{own}/commondir", encoding="utf-8", errors="surrogateescape") as file:
            return os.path.normpath(os.path.join(own, file.read().strip()))  # noqa: PTH118 - see above
    except OSError:
        return os.path.normpath(own)
