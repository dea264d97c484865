"""The dashboard: derived from the files; nothing reads it back (docs/protocol.md, Dashboard)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any

from multi_agent_mcp.domain.entity import age, fields_of
from multi_agent_mcp.domain.sanitize import one_line
from multi_agent_mcp.domain.task import Task
from multi_agent_mcp.domain.times import format_time
from multi_agent_mcp.errors import StorageError
from multi_agent_mcp.services.overview.snapshot import AgentRow, Snapshots
from multi_agent_mcp.store.workspace import Workspace
from multi_agent_mcp.texts import Texts, catalogue

logger = logging.getLogger(__name__)

FINISHED_SHOWN = 20
OPEN_SHOWN = 100
"""The number of open tasks in `dashboard.md`, which is rewritten with every report."""


@dataclass(eq=False)
class Dashboard:
    """The state of agents and tasks, as data (`get_dashboard`) and as `dashboard/dashboard.md`."""

    workspace: Workspace
    snapshots: Snapshots
    texts: Texts
    clock: Callable[[], datetime]

    def data(self, *, open_shown: int | None = None) -> dict[str, Any]:
        """Counts by status, agents with their current task, open tasks, and the tasks finished last. `open_shown`
        limits the open tasks, in the order of work."""
        with self.workspace.tasks.read_once():
            tasks = self.workspace.tasks.open()
            counts = self.snapshots.counts(tasks)
            finished = self.workspace.tasks.closed(limit=FINISHED_SHOWN)
            shown = tasks if open_shown is None else [*islice(self.workspace.tasks.open_in_order(), open_shown)]
        return {
            "updated_at": format_time(self.clock()),
            "counts": counts | {"total": sum(counts.values())},
            "agents": [_agent(row) for row in self.snapshots.agents(tasks)],
            "tasks": [_task(task) for task in (*sorted(shown, key=age), *finished)],
            "tasks_left_out": len(tasks) - len(shown),
        }

    def update(self) -> bool:
        """Rewrites `dashboard.md` after a change; returns whether that succeeded. Failures to write it are only logged:
        the file is derived, and the next change rewrites it."""
        try:
            self.write()
        except StorageError as refusal:
            logger.warning("the dashboard was not rewritten: %s", catalogue("en").sentence(refusal))
            return False
        return True

    def write(self) -> None:
        """Rewrites `dashboard.md`; of two writers at once the later data wins."""
        with self.workspace.locks.held("dashboard"):
            text = as_markdown(self.data(open_shown=OPEN_SHOWN), self.texts)
            self.workspace.files.replace(self.workspace.dashboard_path, text.encode(), durable=False)


def _agent(row: AgentRow) -> dict[str, Any]:
    shown = ("id", "role", "alive", "unread", "task_id", "waiting_for")
    return {name: value for name, value in row.as_answer().items() if name in shown}


def _task(task: Task) -> dict[str, Any]:
    return {
        "task_id": task.id,
        **fields_of(task, "title", "status", "priority", "assignee_id", "progress", "checklist"),
        "summary": task.completion_summary,
        "blocked_reason": task.blocked_reason,
    }


def as_markdown(data: dict[str, Any], texts: Texts) -> str:
    """The dashboard as a Markdown page. Statuses and roles are shown as the tools take them."""
    named = {**data["counts"], texts("dashboard.total"): data["counts"]["total"]}
    counts = " · ".join(f"{name} {number}" for name, number in named.items() if name != "total")
    lines = [f"# {texts('dashboard.title')}", "", f"{data['updated_at']} · {counts}"]
    lines += _table(texts, "task", map(_task_cells, data["tasks"]))
    if data["tasks_left_out"]:
        lines += ["", texts("dashboard.left_out", count=data["tasks_left_out"])]
    lines += _table(texts, "agent", (_agent_cells(agent, texts) for agent in data["agents"]))
    return "\n".join(lines) + "\n"


def _table(texts: Texts, kind: str, rows: Iterable[Sequence[object]]) -> Iterator[str]:
    head = texts(f"dashboard.{kind}_head").split("|")
    yield from ("", f"## {texts(f'dashboard.{kind}s')}", "", _row(*head), "|" + "---|" * len(head))
    yield from (_row(*row) for row in rows)


def _task_cells(task: dict[str, Any]) -> tuple[object, ...]:
    return task["task_id"], task["title"], task["status"], task["assignee_id"] or "-", f"{task['progress']}%"


def _agent_cells(agent: dict[str, Any], texts: Texts) -> tuple[object, ...]:
    alive = texts("dashboard.alive" if agent["alive"] else "dashboard.off")
    doing = (agent["task_id"] or "-", agent["waiting_for"] or "-")
    return agent["id"], agent["role"], alive, agent["unread"], *doing


def _row(*cells: object) -> str:
    """A table row, with text by agents escaped to stay within its cell."""
    return "| " + " | ".join(one_line(str(cell)).replace("|", "\\|") for cell in cells) + " |"
