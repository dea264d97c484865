"""Whose commits a delivery contains: an agent works on one task after another in one worktree, so the commits of one
that was parked, rejected or cancelled are beneath what the next one delivers.

Each time that work on a task begins, its history keeps the commit that the worktree was at. From there until it ends,
commits are that task's; while an agent works on two tasks at once, nobody knows whose they are. Where the worktree has
left one line for another, as for the project's branch, its reflog tells which commits were made in that time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from multi_agent_mcp.domain.entity import EPOCH
from multi_agent_mcp.domain.history import HEAD, new_value, old_value
from multi_agent_mcp.domain.times import parse_time
from multi_agent_mcp.system.git import git, is_ancestor
from multi_agent_mcp.system.working_tree import is_made, is_making

if TYPE_CHECKING:
    from multi_agent_mcp.domain.task import Task


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


class Walk:
    """Where an agent's worktree has been, the oldest first (`been_at`), and the agent's times of work in it. A head
    that was visited twice, or that git has forgotten, leaves open when a time of work began: there are bounds of it."""

    def __init__(self, steps: Sequence[tuple[str, str]], stints: Sequence[Stint]) -> None:
        self.steps, self.stints, self.end = steps, stints, len(steps) - 1
        self.made = {commit for commit, words in steps if is_made(words)}
        self._made_at = {commit: number for number, (commit, words) in enumerate(steps) if is_making(words)}
        commits = [commit for commit, _ in steps]
        self._first, self._last = [0] * len(stints), [self.end] * len(stints)
        at = 0
        for number, stint in enumerate(stints):
            self._first[number] = at = next((i for i in range(at, len(steps)) if commits[i] == stint.head), at)
        at = self.end
        for number in reversed(range(len(stints))):
            self._last[number] = at = next((i for i in range(at, -1, -1) if commits[i] == stints[number].head), at)
        if any(first > last for first, last in zip(self._first, self._last, strict=True)):  # git has forgotten too much
            self._made_at.clear()

    def of(self, number: int, line: Line, asked: set[str]) -> Iterator[str]:
        """The commits, of those `asked` about, that belong to one time of work: the line's, unless they were made in
        another time, and those made in this time after the worktree had moved to a commit of the project's."""
        stint, first, last = self.stints[number], self._first[number], self._last[number]
        ends = (i for i, one in enumerate(self.stints) if stint.ended is not None and one.began >= stint.ended)
        after = next((i for i in ends if i != number), None)
        first_end, last_end = (self.end,) * 2 if after is None else (self._first[after], self._last[after])
        for commit in asked.intersection(line.during(stint, self.stints)):
            made = self._made_at.get(commit)
            if made is None or first < made <= last_end:
                yield commit
        for commit in asked & self._made_at.keys():
            made = self._made_at[commit]
            if last < made <= first_end and (base := self._base(made)) > last and line.place(self.steps[base][0]) == 0:
                yield commit

    def _base(self, made: int) -> int:
        """The step that led to the commit on which this one and those just before it were made."""
        return next((i for i in range(made - 1, -1, -1) if not is_making(self.steps[i][1])), 0)


def unfinished(
    project: Path,
    delivered: str,
    tips: Mapping[str, str],
    steps: Mapping[str, Sequence[tuple[str, str]]],
    tasks: Iterable[Task],
) -> list[Task]:
    """The tasks that are not done of which the delivered commit contains commits that the project does not have.
    `tips` are the last commits of the agents' lines of work, `steps` where their worktrees have been (`been_at`): of a
    commit that is on several lines, as by a fast-forward, they tell whose it is. Raises `GitFailed`."""
    contained = set(git(project, "rev-list", delivered, "--not", "HEAD").split())
    stints = sorted((one for task in tasks for one in stints_of(task)), key=lambda one: one.began)
    owners: defaultdict[str, list[Stint]] = defaultdict(list)
    walks: dict[str, Walk] = {}
    for agent_id, tip in tips.items():
        line, own = Line.to(project, tip), [one for one in stints if one.agent_id == agent_id]
        walks[agent_id] = walk = Walk(steps.get(agent_id, ()), own)
        for number, stint in enumerate(own):
            for commit in set(walk.of(number, line, contained)):
                owners[commit].append(stint)
    found: list[Task] = []
    for commit, owned in owners.items():
        certain = [one.task for one in owned if commit in walks[one.agent_id].made]
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
