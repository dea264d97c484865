"""What others show of usage: findings of `doctor`, and items of `attention`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from multi_agent_mcp.hosts import host_named
from multi_agent_mcp.services.attention import Item
from multi_agent_mcp.services.doctor.tree import NOTE

if TYPE_CHECKING:
    from multi_agent_mcp.domain.agent import Agent
    from multi_agent_mcp.services.attention import Attention
    from multi_agent_mcp.services.doctor.tree import CheckContext, Finding


def check(context: CheckContext) -> Iterator[Finding]:
    """Agents in hosts whose own files do not tell what their models took: the host may have changed their form."""
    hosted = {agent.id: agent.host for agent in context.agents.at_home().values() if host_named(agent.host)}
    for agent_id in context.contributions.service("usage").unread_agents():
        if agent_id in hosted:
            yield context.found("usage", NOTE, agent_id, "usage_unknown", host=hosted[agent_id])


def limited(attention: Attention, _person: Agent) -> Iterator[Item]:
    """Yields an item for each agent whose host has met a usage limit: nothing need be done, but to know it."""
    for agent_id, limit in attention.limited.all().items():
        command = attention.attach(agent_id)
        yield Item(kind="limited", agent_id=agent_id, since=limit.since, text=limit.words, command=command)
