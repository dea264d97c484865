"""The command that helps next: it ends `multi-agent-mcp` without a command, `up`, and what would lead nowhere else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from multi_agent_mcp.config import session_names
from multi_agent_mcp.errors import Refusal

if TYPE_CHECKING:
    from multi_agent_mcp.cli.context import SessionContext
    from multi_agent_mcp.domain.agent import Agent
    from multi_agent_mcp.services.attention import Item
    from multi_agent_mcp.services.overview.snapshot import AgentRow
    from multi_agent_mcp.wiring import Services

MAY_WAIT = frozenset({"blocked", "paused", "limited", "undelivered", "kept", "uncommitted", "wait", "lease"})
"""The kinds of items that are not the next thing to do while there is mail."""
AT_WORK = ("todo", "in_progress")


def next_line(context: SessionContext) -> Iterator[str]:
    """Yields the line that names the next command, for the Owner; nothing for anybody else."""
    try:
        if context.agent(None).id != context.services.agents.owner().id:
            return
    except Refusal:
        return
    seen = context.services.snapshots.take(messages=0)
    command = next_command(seen.agents, seen.counts, waiting(context))
    yield context.texts("status.next", command=here(context.services, command))


def waiting(context: SessionContext) -> list[Item]:
    """Returns what waits for the Owner, without an examination of every file; nothing in a team without one."""
    try:
        owner = context.services.agents.owner()
    except Refusal:
        return []
    return context.services.attention.of(owner)


def next_command(agents: Sequence[AgentRow], counts: Mapping[str, int], items: Sequence[Item]) -> str:
    """Returns the command for what is most urgent; if nothing waits, one that shows a team at work, or gives work to an
    agent that can take it."""
    first = next((item for item in items if item.kind not in MAY_WAIT and item.machine is None), None)
    if first is not None:
        return first.command
    helpers = [row for row in agents if row.agent.type == "ai"]
    if not helpers:
        return "multi-agent-mcp agent add ID"
    alive = [row for row in helpers if row.alive]
    if any(row.agent.command for row in helpers) and not alive:
        return "multi-agent-mcp up"
    if alive and (any(counts.get(status) for status in AT_WORK) or any(row.unread for row in alive)):
        return "multi-agent-mcp watch"
    free = [row for row in alive if not (row.pause or row.interrupts or row.limit)]
    return first_command((free or helpers)[0].agent)


def first_command(agent: Agent) -> str:
    """Returns the command that gives an agent something to do. The scripted ones of `init --demo` answer tasks only."""
    is_scripted = "{examples}" in (agent.command or "")
    return f'multi-agent-mcp send-task {agent.id} "…" "…"' if is_scripted else f'multi-agent-mcp send {agent.id} "…"'


def here(services: Services, command: str) -> str:
    """The command, with the session's name where there are several."""
    return command if len(session_names(services.root)) == 1 else f"{command} --session {services.session.name}"
