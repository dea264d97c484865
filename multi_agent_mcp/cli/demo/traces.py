"""What the main job leaves in the files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from multi_agent_mcp.bootstrap import Services


def missing_steps(services: Services) -> list[str]:
    """What the main job should have left in the files and did not."""
    problems = [
        f"{arrow.message_type} to {arrow.receiver_id} was not read"
        for arrow in services.timeline.of().arrows
        if arrow.read_at is None
    ]
    for agent_id, agent in services.agents.all().items():
        heard = any(entry.get("state") == "submitted" for entry in services.workspace.delivery_log(agent_id).rings())
        if agent.command is not None and not heard:
            problems.append(f"no doorbell was submitted in the pane of {agent_id}")
    tasks = services.workspace.tasks.all()
    problems += [f"task {task.id} is {task.status}, not done" for task in tasks if task.status != "done"]
    if not tasks:
        problems.append("no task was made")
    if services.owner_waits.of(services.agents.owner().id) is not None:
        problems.append("the Owner's wait-lock still stands")
    if not services.workspace.dashboard_path.exists():
        problems.append("the dashboard was not written")
    return problems


def tree(path: Path) -> Iterator[str]:
    """The session directory as a user would `find` it, without the machinery in dot-directories."""
    yield f"{path}/"
    for item in sorted(path.rglob("*")):
        relative = item.relative_to(path)
        if not any(part.startswith(".") for part in relative.parts) and item.is_file():
            yield f"  {relative}"
