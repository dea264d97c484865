"""The data of every page's frame, and the findings of `doctor`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from multi_agent_mcp import __version__
from multi_agent_mcp.domain.agent import in_tree_order
from multi_agent_mcp.domain.entity import fields_of

if TYPE_CHECKING:
    from multi_agent_mcp.web.request import ApiRequest
    from multi_agent_mcp.wiring import Services


def show(call: ApiRequest) -> dict[str, Any]:
    """The session, the acting agent, its number of unread messages, and its wait-lock."""
    services = call.services
    wait = services.owner_waits.of(call.me.id)
    return {
        "session": services.session,
        "language": services.texts.language,
        "version": __version__,
        "me": {"id": call.me.id, "role": call.me.role, "name": call.me.name},
        "unread": services.unread_mail_count(call.me.id),
        "waiting_for": wait.admin_id if wait else None,
        **homes(services),
    }


def team(call: ApiRequest) -> dict[str, Any]:
    """The agents by name, in tree order: cheaper than what they do (`/agents`)."""
    agents = in_tree_order(call.services.agents.all())
    return {
        "agents": [fields_of(agent, "id", "name", "role", "parent_id") | {"depth": depth} for agent, depth in agents]
    }


def homes(services: Services) -> dict[str, Any]:
    """Every agent's home machine and its state; empty unless the session is shared."""
    if services.machine is None:
        return {}
    return {"homes": {name: vars(home) for name, home in services.machines.homes().items()}}


def health(call: ApiRequest) -> dict[str, Any]:
    """The findings of `doctor`, problems first; they include quarantined files with their reason. Nothing is examined
    again while nothing changes; `?again=1` examines anyway, as an edit in place or a mode(7) shows in no directory."""
    findings = call.services.examined() if call.parameter("again") is None else call.services.doctor().examine()
    call.services.recent_attention.found(findings)
    return {
        "findings": [finding.as_answer() for finding in findings],
        "problems": sum(finding.level == "problem" for finding in findings),
    }
