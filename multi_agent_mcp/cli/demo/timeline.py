"""What happened in a session, told from its files."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from multi_agent_mcp.bootstrap import Services
from multi_agent_mcp.cli.door import table
from multi_agent_mcp.domain.message import Message
from multi_agent_mcp.domain.times import parse_time


def all_messages(services: Services) -> list[Message]:
    """Every message of the session, oldest first."""
    messages = [
        message
        for agent_id in services.agents.registry.all()
        for message in services.workspace.mailbox(agent_id).history()
    ]
    return sorted(messages, key=lambda message: (message.created_at, message.id))


def timeline(services: Services) -> Iterator[str]:
    """Who told whom what, and the milliseconds from stored to rung, submitted and read."""
    messages = all_messages(services)
    rows = []
    for message in messages:
        since = (message.created_at - messages[0].created_at).total_seconds()
        steps = {str(step["state"]): parse_time(step["at"]) for step in services.doorbell.steps(message)}
        rows.append(
            (
                f"{since:8.3f} s",
                f"{message.sender_id} → {message.receiver_id}",
                message.message_type,
                message.subject,
                milliseconds(message, steps.get("rung")),
                milliseconds(message, steps.get("submitted")),
                milliseconds(message, message.read_at),
            )
        )
    return table(("stored", "who", "what", "subject", "rung", "submitted", "read"), rows)


def missing_steps(services: Services) -> list[str]:
    """What the main job should have left in the files and did not."""
    problems = [
        f"{message.message_type} to {message.receiver_id} was not read"
        for message in all_messages(services)
        if message.read_at is None
    ]
    for agent_id, agent in services.agents.all().items():
        heard = any(
            entry.get("state") == "submitted" for entry in services.workspace.doorbells(agent_id).newest_first()
        )
        if agent.command is not None and not heard:
            problems.append(f"no doorbell was submitted in the pane of {agent_id}")
    tasks = services.workspace.tasks.all()
    problems += [f"task {task.id} is {task.status}, not done" for task in tasks if task.status != "done"]
    if not tasks:
        problems.append("no task was made")
    if services.waiting.of(services.agents.owner().id) is not None:
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


def milliseconds(message: Message, at: datetime | None) -> str:
    """How long after it was stored."""
    return "-" if at is None else f"{(at - message.created_at).total_seconds() * 1000:.0f} ms"
