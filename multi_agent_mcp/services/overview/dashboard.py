"""The dashboard: derived from the files, rewritten, never read as truth (docs/protocol.md, Dashboard)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import datetime
from typing import Any

from multi_agent_mcp.domain.sanitize import one_line
from multi_agent_mcp.domain.task import TASK_STATUSES, Task
from multi_agent_mcp.domain.times import format_time
from multi_agent_mcp.services.sessions.agent_sessions import Sessions
from multi_agent_mcp.services.sessions.owner_waits import OwnerWaits
from multi_agent_mcp.store.workspace import Workspace

FINISHED_SHOWN = 20


class Dashboard:
    """What everybody is doing, as data (`get_dashboard`) and as `dashboard/dashboard.md`."""

    def __init__(
        self, workspace: Workspace, sessions: Sessions, owner_waits: OwnerWaits, clock: Callable[[], datetime]
    ) -> None:
        self.workspace = workspace
        self.sessions = sessions
        self.owner_waits = owner_waits
        self.clock = clock

    def data(self) -> dict[str, Any]:
        """Counts by status, agents with what they work on, open tasks, and the finished ones of late."""
        everything = self.workspace.tasks
        tasks = sorted(everything.open(), key=lambda task: (task.created_at, task.id))
        counts = Counter(task.status for task in tasks) + everything.closed_counts()
        tasks += everything.closed(limit=FINISHED_SHOWN)
        return {
            "updated_at": format_time(self.clock()),
            "counts": {status: counts[status] for status in TASK_STATUSES} | {"total": counts.total()},
            "agents": [self._agent(agent_id, tasks) for agent_id in self.workspace.registry.active()],
            "tasks": [
                {
                    "task_id": task.id,
                    "title": task.title,
                    "status": task.status,
                    "priority": task.priority,
                    "assignee_id": task.assignee_id,
                    "progress": task.progress,
                    "checklist": [dict(item) for item in task.checklist],
                    "summary": task.completion_summary,
                    "blocked_reason": task.blocked_reason,
                }
                for task in tasks
            ],
        }

    def write(self) -> None:
        """Rewrites `dashboard.md`; of two writers at once the later data wins."""
        with self.workspace.locks.held("dashboard"):
            text = as_markdown(self.data())
            self.workspace.files.replace(self.workspace.dashboard_path, text.encode(), durable=False)

    def _agent(self, agent_id: str, tasks: list[Task]) -> dict[str, Any]:
        agent = self.workspace.registry.all()[agent_id]
        current = next((task for task in tasks if task.assignee_id == agent_id and task.status == "in_progress"), None)
        wait = self.owner_waits.of(agent_id)
        return {
            "id": agent_id,
            "role": agent.role,
            "alive": self.sessions.alive(agent_id),
            "unread": len(self.workspace.mailbox(agent_id).unread()),
            "task_id": current.id if current else None,
            "waiting_for": wait.admin_id if wait else None,
        }


def as_markdown(data: dict[str, Any]) -> str:
    """The dashboard for people who `cat` it."""
    counts = " · ".join(f"{status} {number}" for status, number in data["counts"].items())
    lines = ["# Dashboard", "", f"{data['updated_at']} · {counts}", "", "## Tasks", ""]
    lines += ["| task | title | status | assignee | progress |", "|---|---|---|---|---|"]
    for task in data["tasks"]:
        progress = f"{task['progress']}%"
        lines.append(_row(task["task_id"], task["title"], task["status"], task["assignee_id"] or "-", progress))
    lines += [
        "",
        "## Agents",
        "",
        "| agent | role | alive | unread | works on | waits for |",
        "|---|---|---|---|---|---|",
    ]
    for agent in data["agents"]:
        alive = "yes" if agent["alive"] else "no"
        doing = (agent["task_id"] or "-", agent["waiting_for"] or "-")
        lines.append(_row(agent["id"], agent["role"], alive, agent["unread"], *doing))
    return "\n".join(lines) + "\n"


def _row(*cells: object) -> str:
    """A table row; agent-written text stays within its cell."""
    return "| " + " | ".join(one_line(str(cell)).replace("|", "\\|") for cell in cells) + " |"
