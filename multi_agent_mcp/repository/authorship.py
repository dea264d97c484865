"""Run by git's hooks in an agent's worktree (`system/commit_hooks.py`): prints the task that it works on."""

from __future__ import annotations

import sys
from pathlib import Path


def main(root: str, session: str, agent_id: str) -> None:
    """Prints the id of the task on which the agent works, or that it has reported and that is not over."""
    from multi_agent_mcp.bootstrap import open_session

    tasks = open_session(Path(root), session).workspace.tasks
    held = [task for task in tasks.open(agent_id) if task.status in ("in_progress", "review")]
    if found := (tasks.in_progress(agent_id) or sorted(held, key=lambda task: task.updated_at, reverse=True)):
        sys.stdout.write(f"{found[0].id}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
