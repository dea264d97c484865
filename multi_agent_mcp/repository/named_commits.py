"""Commits, and what their trailers say of task and agent (docs/protocol.md, Who did this)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from multi_agent_mcp.domain.times import format_time
from multi_agent_mcp.system.git import git

if TYPE_CHECKING:
    from multi_agent_mcp.domain.task import Task

COMMITS_SHOWN = 30
_TRAILERS = "%(trailers:key={},valueonly,separator=%x2C)"
_FORMAT = "%x00".join(("%H", "%an", "%ct", "%s", _TRAILERS.format("Task"), _TRAILERS.format("Agent")))
_MARGIN = timedelta(days=1)
"""By so much clocks may differ from those that dated the commits."""


def of_task(project: Path, task: Task) -> list[dict[str, Any]]:
    """The commits that name this task, on any branch, the newest first. Raises `GitFailed`."""
    since = f"--since={format_time(task.created_at - _MARGIN)}"
    most, words = f"--max-count={COMMITS_SHOWN}", f"--grep=Task: {task.id}"
    found = named_commits(project, "--all", since, most, "--fixed-strings", words)
    return [one for one in found if one["task_id"] == task.id]


def named_commits(place: Path, *which: str) -> list[dict[str, Any]]:
    """These commits, with what their trailers say. Raises `GitFailed`."""
    rows = (row.split("\0") for row in git(place, "log", f"--format={_FORMAT}", *which).splitlines())
    return [
        {
            "commit": commit,
            "author": author,
            "at": format_time(datetime.fromtimestamp(int(at), UTC)),
            "subject": subject,
            "task_id": next((one for one in tasks.split(",") if one.startswith("tsk_")), None),
            "agent_id": agents.split(",")[0] or None,
        }
        for commit, author, at, subject, tasks, agents in rows
    ]
