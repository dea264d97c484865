"""Leases as people see them beside the commands: among what waits for them, and in the console."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from multi_agent_mcp.domain.text import quoted
from multi_agent_mcp.pool.leases import COMMAND_SHOWN, as_answer
from multi_agent_mcp.services.attention import Item

if TYPE_CHECKING:
    from multi_agent_mcp.domain.agent import Agent
    from multi_agent_mcp.pool.leases import Leases
    from multi_agent_mcp.services.attention import Attention
    from multi_agent_mcp.web.request import ApiRequest
    from multi_agent_mcp.wiring import Services


def items(attention: Attention, _person: Agent) -> Iterator[Item]:
    """An item for each lease for which commands wait, of those that have it the first; and one for each circle."""
    leases: Leases = attention.contributions.service("leases")
    known = leases.all()
    for name in dict.fromkeys(one.name for one in known if one.held_at is None):
        holder = next((one for one in known if one.name == name and one.held_at), None)
        waiting = sum(one.name == name and one.held_at is None for one in known)
        if holder is not None:
            facts = {"name": name, "runs": quoted(holder.command, COMMAND_SHOWN), "count": waiting}
            yield Item(
                kind="lease",
                agent_id=holder.agent_id,
                id=str(holder.pid),
                since=holder.began,
                text=attention.session.people("attention.lease", **facts),
                command=f"multi-agent-mcp leases --end {holder.pid}",
            )
    for circle in attention.contributions.service("circles").found():
        text = attention.session.people("attention.circle", circle=circle.words(attention.session.people))
        yield Item(kind="circle", agent_id=circle.agent_ids[0], since=circle.since, text=text, command=circle.way_out)


def of_console(call: ApiRequest) -> dict[str, Any]:
    """The leases of this machine, in their order."""
    return {"leases": list(map(as_answer, _leases(call.services).all()))}


def end(call: ApiRequest) -> dict[str, Any]:
    """Ends the command with this process, which has a lease or waits for one. Raises `InvalidArguments`."""
    return {"ended": as_answer(_leases(call.services).stop(call.path["pid"]))}


def _leases(services: Services) -> Leases:
    found: Leases = services.leases
    return found
