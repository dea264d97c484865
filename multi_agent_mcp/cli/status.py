"""`multi-agent-mcp` without a command: the nearest session's state and the next command, or how to create a session."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from multi_agent_mcp.cli.context import open_context, people_texts
from multi_agent_mcp.cli.output import excerpt, print_line
from multi_agent_mcp.config import find_root, read_environment, session_names
from multi_agent_mcp.domain.sanitize import one_line

if TYPE_CHECKING:
    from multi_agent_mcp.domain.agent import Agent
    from multi_agent_mcp.services.overview.snapshot import AgentRow, Snapshot
    from multi_agent_mcp.texts import Texts


def show() -> None:
    """Prints the state. Several sessions, none of them selected, are refused with their names."""
    if not session_names(find_root(read_environment().root, Path.cwd())):
        print_line(people_texts()("status.first_steps").rstrip("\n"))
        return
    with open_context(None, None) as context:
        for line in lines(context.services.snapshots.take(messages=0), context.texts):
            print_line(line)


def lines(seen: Snapshot, texts: Texts) -> Iterator[str]:
    """Yields a few lines: running agents, waiting items, and the next command."""
    running = [row.agent.id for row in seen.agents if row.alive]
    yield texts("status.agents", session=seen.session, count=len(seen.agents), running=_listed(running))
    yield texts("status.unread", agents=_listed(f"{row.agent.id} {row.unread}" for row in seen.agents if row.unread))
    yield texts("status.tasks", tasks=_listed(f"{status} {count}" for status, count in seen.counts.items() if count))
    for row in seen.agents:
        if row.waiting_for:
            yield texts("status.waits", agent_id=row.agent.id, admin_id=row.waiting_for)
    for task in seen.tasks:
        if task.status == "blocked":
            yield one_line(texts("status.blocked", title=task.title, reason=excerpt(task.blocked_reason or "-")))
    yield texts("status.next", command=_next_command(seen.agents))


def _next_command(agents: Iterable[AgentRow]) -> str:
    people = [row for row in agents if row.agent.type == "human"]
    helpers = [row for row in agents if row.agent.type == "ai"]
    if any(row.unread for row in people):
        return "multi-agent-mcp read"
    if not helpers:
        return "multi-agent-mcp agent add ID"
    if any(row.agent.command for row in helpers) and not any(row.alive for row in helpers):
        return "multi-agent-mcp up"
    return first_command(helpers[0].agent)


def first_command(agent: Agent) -> str:
    """Returns the command that gives an agent something to do. The scripted ones of `init --demo` answer tasks only."""
    is_scripted = "{examples}" in (agent.command or "")
    return f'multi-agent-mcp send-task {agent.id} "…" "…"' if is_scripted else f'multi-agent-mcp send {agent.id} "…"'


def _listed(items: Iterable[str]) -> str:
    return ", ".join(items) or "-"
