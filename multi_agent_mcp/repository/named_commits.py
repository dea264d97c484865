"""Commits, and what their trailers say of task and agent (docs/protocol.md, Who did this)."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from multi_agent_mcp.domain.times import format_time
from multi_agent_mcp.system.git import git

if TYPE_CHECKING:
    from multi_agent_mcp.domain.task import Task

COMMITS_SHOWN = 30
_TRAILERS = "%(trailers:key={},valueonly,separator=%x2C)"
_FIELDS = ("%H", "%an", "%ct", "%s", _TRAILERS.format("Task"), _TRAILERS.format("Agent"), "%b")
_TASK = re.compile(r"^[ \t]*Task:[ \t]*(tsk_\w+)[ \t]*$", re.MULTILINE)
_AGENT = re.compile(r"^[ \t]*Agent:[ \t]*(\S+)[ \t]*$", re.MULTILINE)
"""In the words of commits that were made one (`merge --squash`, `rebase -i`) what were trailers stand anywhere."""
_MARGIN = timedelta(days=1)
"""By so much clocks may differ from those that dated the commits."""


def of_task(project: Path, task: Task) -> list[dict[str, Any]]:
    """The commits that name this task, on any branch, the newest first. Raises `GitFailed`."""
    since = f"--since={format_time(task.created_at - _MARGIN)}"
    most, words = f"--max-count={COMMITS_SHOWN}", f"--grep=Task: {task.id}"
    found = named_commits(project, "--all", since, most, "--fixed-strings", words)
    return [one for one in found if task.id in one["task_ids"]]


def named_commits(place: Path, *which: str) -> list[dict[str, Any]]:
    """These commits, with what their trailers say. Raises `GitFailed`."""
    found = git(place, "log", "-z", f"--format={'%x00'.join(_FIELDS)}", *which).split("\0")
    return [_named(*found[start : start + len(_FIELDS)]) for start in range(0, len(found) - 1, len(_FIELDS))]


def _named(commit: str, author: str, at: str, subject: str, tasks: str, agents: str, words: str) -> dict[str, Any]:
    named = [*(one for one in tasks.split(",") if one.startswith("tsk_")), *_TASK.findall(words)]
    by = [*filter(None, agents.split(",")), *_AGENT.findall(words)]
    return {
        "commit": commit,
        "author": author,
        "at": format_time(datetime.fromtimestamp(int(at), UTC)),
        "subject": subject,
        "task_id": named[0] if named else None,
        "agent_id": by[0] if by else None,
        "task_ids": list(dict.fromkeys(named)),
    }
