"""Tasks for tests of the public door: those that have their team from the fixture `agent_team`."""

from __future__ import annotations

from typing import Any

from multi_agent_mcp import Team


def planned(
    team: Team, *titles: str, assignee_id: str | None = "worker-a", by: str = "admin", **fields: Any
) -> list[str]:
    """The ids of new tasks, one for each title."""
    tasks = [{"title": title, "assignee_id": assignee_id, **fields} for title in titles]
    return [item["task_id"] for item in team[by].create_tasks_batch(tasks)["tasks"]]
