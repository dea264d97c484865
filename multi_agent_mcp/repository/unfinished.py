"""Whose commits a delivery contains: an agent works on one task after another in one worktree, so the commits of one
that was parked, rejected or cancelled lie beneath what the next one delivers.

Each time that work on a task begins, its history keeps the commit that the worktree was at. From there until it ends,
commits are that task's; while an agent works on two tasks at once, nobody knows whose they are."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from multi_agent_mcp.domain.entity import EPOCH
from multi_agent_mcp.domain.task import HEAD, Task, new_value, old_value
from multi_agent_mcp.domain.times import parse_time
from multi_agent_mcp.system.git import git, is_ancestor


class Stint(NamedTuple):
    """A time in which an agent worked on a task, and the commit with which it began; `ended` is None while it goes
    on."""

    task: Task
    agent_id: str
    head: str
    began: datetime
    ended: datetime | None


@dataclass(frozen=True)
class Line:
    """The commits of an agent's line of work that the project does not have, the oldest first."""

    project: Path
    commits: list[str]

    @classmethod
    def to(cls, project: Path, tip: str) -> Line:
        """The line that leads to this commit. Raises `GitFailed`."""
        return cls(project, git(project, "rev-list", "--first-parent", "--reverse", tip, "--not", "HEAD").split())

    def place(self, commit: str) -> int | None:
        """How many commits of the line there were at this one; None if it is on another line."""
        if commit in self.commits:
            return self.commits.index(commit) + 1
        return 0 if is_ancestor(self.project, commit, "HEAD") else None

    def during(self, stint: Stint, others: Iterable[Stint]) -> list[str]:
        """The commits from the beginning of a time of work to that of the next one after it; none where the line has
        another base since."""
        start, end = self.place(stint.head), len(self.commits)
        if start is None:
            return []
        if stint.ended is not None:
            places = (self.place(other.head) for other in others if other.began >= stint.ended and other is not stint)
            end = next((start if place is None else place for place in places if place is None or place >= start), end)
        return self.commits[start:end]


def unfinished(
    project: Path, delivered: str, tips: Mapping[str, str], made: Mapping[str, set[str]], tasks: Iterable[Task]
) -> list[Task]:
    """The tasks that are not done of which the delivered commit contains commits that the project does not have.
    `tips` are the last commits of the agents' lines of work, `made` the commits that each is known to have made: of one
    that lies on several lines, as by a fast-forward, they tell whose it is. Raises `GitFailed`."""
    contained = set(git(project, "rev-list", delivered, "--not", "HEAD").split())
    stints = sorted((one for task in tasks for one in stints_of(task)), key=lambda one: one.began)
    owners: defaultdict[str, list[Stint]] = defaultdict(list)
    for agent_id, tip in tips.items():
        line, own = Line.to(project, tip), [one for one in stints if one.agent_id == agent_id]
        for stint in own:
            for commit in contained.intersection(line.during(stint, own)):
                owners[commit].append(stint)
    found: list[Task] = []
    for commit, owned in owners.items():
        certain = [one.task for one in owned if commit in made.get(one.agent_id, ())]
        during = certain or [one.task for one in owned]
        found += during if all(task.status != "done" for task in during) else ()
    return found


def stints_of(task: Task) -> Iterator[Stint]:
    """The times of work on a task, as far as its history says with which commit they began."""
    lines = [line for line in task.history if "status" in line or "assignee_id" in line]
    holder = None
    for number, line in enumerate(lines, start=1):
        holder = new_value(line, "assignee_id", holder)
        if HEAD not in line or new_value(line, "status") != "in_progress":
            continue
        end = next((after for after in lines[number:] if old_value(after, "status") == "in_progress"), None)
        ended = None if end is None else parse_time(end.get("at")) or EPOCH
        yield Stint(task, str(holder), str(line[HEAD]), parse_time(line.get("at")) or EPOCH, ended)
