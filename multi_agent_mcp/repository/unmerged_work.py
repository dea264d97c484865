"""Whose the commits are that a worktree has and the project's branch does not: each kind is merged, or given up, in
another way."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from multi_agent_mcp.system.git import git, is_ancestor

if TYPE_CHECKING:
    from multi_agent_mcp.domain.task import Task


class UnmergedWork(NamedTuple):
    """The `done` tasks that delivered some of it, the `open` tasks that have commits among it, and the `others`: names
    of branches with commits of neither."""

    done: list[str]
    open: list[str]
    others: list[str]


def unmerged_work(
    project: Path,
    tips: Mapping[str, str],
    delivered: Sequence[tuple[Task, str]],
    begun_below: Callable[[str], Iterable[Task]],
) -> UnmergedWork:
    """Whose the unmerged commits below these `tips` (by name) are. `delivered` are tasks with the unmerged commits that
    they delivered; `begun_below` gives the tasks of which a commit contains some. Raises `GitFailed`."""
    done = {task.id: commit for task, commit in delivered if task.status == "done"}
    unfinished: dict[str, None] = {}
    others = []
    for name, tip in tips.items():
        inside = [task for task in begun_below(tip) if not task.final]
        inside += [task for task, commit in delivered if not task.final and is_ancestor(project, commit, tip)]
        if inside:
            unfinished |= dict.fromkeys(task.id for task in inside)
        elif git(project, "rev-list", "--max-count=1", tip, "--not", "HEAD", *done.values()):
            others.append(name)
    return UnmergedWork(list(done), list(unfinished), others)


def commit_named(place: str | Path, name: str) -> str:
    """The commit of this name; "" if there is none."""
    return git(place, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}", ok=(0, 1, 128))
