"""Lists of tasks: an agent's, the columns of a board, subtasks. Changes nothing."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from multi_agent_mcp.domain.entity import age
from multi_agent_mcp.domain.task import FINAL, TASK_STATUSES, Task, status_order, work_order
from multi_agent_mcp.domain.times import format_time
from multi_agent_mcp.services.answer_budget import clipped
from multi_agent_mcp.services.validation import require_choice
from multi_agent_mcp.store import workspace
from multi_agent_mcp.store.derived_databases import folded

if TYPE_CHECKING:
    from multi_agent_mcp.store.workspace import Workspace


UNASSIGNED = workspace.UNASSIGNED
"""What names nobody among the assignees of a filter."""
ID_LETTERS = 4
"""How many letters of an id a filter's word must have to be taken for its beginning."""
FINISHED_LOOKED_AT = 300
"""How many finished tasks of a status are read for those that a filter wants, as only reading tells."""


@dataclass(frozen=True)
class Column:
    """A page of the tasks of one status; `total` counts all of them, or all that were looked at (`more`: there are
    others)."""

    status: str
    tasks: Sequence[Task]
    total: int
    more: bool = False


@dataclass(frozen=True, kw_only=True)
class Filter:
    """Which tasks a board shows: those of these `assignees` (None: everybody's), of this priority, with all these words
    in title, reason or result, or as the beginning of the id. Case and width do not matter."""

    assignees: Sequence[str] | None = None
    priority: str | None = None
    words: str = ""

    @property
    def reads(self) -> bool:
        """Whether only a task's content tells if it is wanted, not its place."""
        return self.priority is not None or bool(self.words.strip())

    def wants(self, task: Task) -> bool:
        """Whether a task of one of the assignees is shown."""
        if self.priority not in (None, task.priority):
            return False
        said = " ".join(filter(None, (task.title, task.blocked_reason, task.completion_summary)))
        text = folded(said)
        ids = (task.id, task.id.removeprefix("tsk_"))
        return all(
            word in text or (len(word) >= ID_LETTERS and any(each.startswith(word) for each in ids))
            for word in folded(self.words).split()
        )


EVERYTHING = Filter()


class Board:
    """The tasks of one team. Finished tasks are counted without parsing them; only those on the page are read."""

    def __init__(self, of: Workspace) -> None:
        self.tasks = of.tasks

    def all(self) -> list[Task]:
        """Every task, oldest first."""
        return sorted(self.tasks.all(), key=age)

    def of(self, agent_id: str, status: str | None, limit: int) -> tuple[list[Task], int]:
        """An agent's tasks, open ones first, and their total number. Raises `InvalidArguments`."""
        if status is not None:
            require_choice("status", status, TASK_STATUSES)
        tasks = [task for task in self.tasks.open(agent_id) if status in (None, task.status)]
        counts = self.tasks.closed_counts(agent_id)
        total = len(tasks) + (counts.total() if status is None else counts[status])
        if len(tasks) < limit and total > len(tasks):
            tasks += self.tasks.closed(agent_id, label=status, limit=limit - len(tasks))
        return tasks[:limit], total

    def listed(
        self, status: str | None, assignee_id: str | None, *, only_open: bool = False, limit: int | None = None
    ) -> tuple[list[Task], int]:
        """Tasks (of this status, of this assignee) and their total number: first those in progress, then the other open
        ones by status, each in the order of work, then the finished ones, newest first."""
        found = (task for task in self.tasks.open(assignee_id) if status in (None, task.status))
        tasks = sorted(found, key=status_order)
        if only_open:
            return tasks[:limit], len(tasks)
        counts = self.tasks.closed_counts(assignee_id)
        total = len(tasks) + (counts.total() if status is None else counts[status])
        if limit is None or len(tasks) < limit:
            room = None if limit is None else limit - len(tasks)
            tasks += self.tasks.closed(assignee_id, label=status, limit=room)
        return tasks[:limit], total

    def columns(
        self, status: str | None = None, wanted: Filter = EVERYTHING, *, offset: int = 0, limit: int = 50
    ) -> list[Column]:
        """A column for each status, or only for `status`, of the wanted tasks: open tasks in the order of work,
        finished ones newest first. Raises `InvalidArguments`."""
        if status is not None:
            require_choice("status", status, TASK_STATUSES)
        tasks = [task for task in self.tasks.open_in_order(wanted.assignees) if wanted.wants(task)]
        closed = self.tasks.closed_counts(wanted.assignees)
        columns = []
        for name in TASK_STATUSES if status is None else (status,):
            mine = [task for task in tasks if task.status == name]
            if wanted.reads and closed[name]:
                read = self.tasks.closed(wanted.assignees, label=name, limit=FINISHED_LOOKED_AT)
                mine += filter(wanted.wants, read)
                columns.append(_page(name, mine, offset, limit, more=closed[name] > len(read)))
                continue
            shown = mine[offset : offset + limit]
            if name in FINAL and len(shown) < limit:
                skipped = max(offset - len(mine), 0)
                shown += self.tasks.closed(wanted.assignees, label=name, offset=skipped, limit=limit - len(shown))
            columns.append(Column(name, shown, len(mine) + closed[name]))
        return columns

    def groups(self, key: Callable[[Task], str | None], wanted: Filter = EVERYTHING) -> dict[str | None, Counter[str]]:
        """The numbers of wanted open tasks by status, for each group that has some."""
        found: dict[str | None, Counter[str]] = {}
        for task in self.tasks.open_in_order(wanted.assignees):
            if wanted.wants(task):
                found.setdefault(key(task), Counter())[task.status] += 1
        return found

    def subtask_counts(self) -> Mapping[str, Counter[str]]:
        """The number of subtasks of each status, by the parent's id."""
        counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for task in self.tasks.open():
            if task.parent_task_id is not None:
                counts[task.parent_task_id][task.status] += 1
        for (parent_id, status), number in self.tasks.group_counts().items():
            counts[parent_id][status] += number
        return counts

    def subtasks(self, task_id: str) -> list[Task]:
        """The direct subtasks of a task in the order of work."""
        still_open = [task for task in self.tasks.open() if task.parent_task_id == task_id]
        return sorted([*still_open, *self.tasks.closed(group=task_id)], key=work_order)

    def existing(self, ids: Iterable[str | None]) -> list[Task]:
        """The tasks with these ids that exist."""
        found = (self.tasks.find(task_id) for task_id in ids if task_id is not None)
        return [task for task in found if task is not None]


def _page(status: str, tasks: Sequence[Task], offset: int, limit: int, *, more: bool) -> Column:
    return Column(status, tasks[offset : offset + limit], len(tasks), more)


def open_subtasks(tasks: Iterable[Task], parent_id: str) -> list[Task]:
    """The descendants of the parent among these tasks that are in `todo` or in progress, deepest first."""
    children: defaultdict[str | None, list[Task]] = defaultdict(list)
    for task in tasks:
        if task.id != parent_id:  # hand-written files may contain a cycle
            children[task.parent_task_id].append(task)
    found: list[Task] = []
    parents = [parent_id]
    while parents:
        level = [task for parent in parents for task in children.pop(parent, ())]
        parents = [task.id for task in level]
        found += reversed(level)
    return [task for task in reversed(found) if task.status in ("todo", "in_progress")]


def summary_of(task: Task) -> dict[str, Any]:
    """The fields of a task in a list."""
    return {
        "task_id": task.id,
        "title": clipped(task.title),
        "status": task.status,
        "priority": task.priority,
        "created_at": format_time(task.created_at),
    }
