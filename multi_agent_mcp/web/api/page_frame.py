"""The session: what every page shows in its frame, and the findings of `doctor`."""

from __future__ import annotations

from typing import Any

from multi_agent_mcp import __version__
from multi_agent_mcp.bootstrap import Services
from multi_agent_mcp.web.request import ApiRequest


def show(call: ApiRequest) -> dict[str, Any]:
    """Session, the acting agent, its unread mail, and its wait-lock."""
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


def homes(services: Services) -> dict[str, Any]:
    """Where every agent is at home and how its machine is; nothing while there is one alone."""
    if services.machine is None:
        return {}
    return {"homes": {name: vars(home) for name, home in services.machines.homes().items()}}


def health(call: ApiRequest) -> dict[str, Any]:
    """The findings, problems first; quarantined files are among them with their reason."""
    findings = call.services.doctor().examine()
    call.services.recent_attention.found(findings)
    return {
        "findings": [finding.as_answer() for finding in findings],
        "problems": sum(finding.level == "problem" for finding in findings),
    }
