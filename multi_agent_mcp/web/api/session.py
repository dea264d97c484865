"""Where we are and who we are: what every page shows in its frame."""

from __future__ import annotations

from typing import Any

from multi_agent_mcp import __version__
from multi_agent_mcp.web.request import ApiRequest


def show(ask: ApiRequest) -> dict[str, Any]:
    """Session, the acting agent, its unread mail, how many requests wait for its word, and its wait-lock."""
    services = ask.services
    wait = services.owner_waits.of(ask.me.id)
    return {
        "session": services.session,
        "language": services.texts.language,
        "version": __version__,
        "me": {"id": ask.me.id, "role": ask.me.role, "name": ask.me.name},
        "unread": services.reading.unread_count(ask.me.id),
        "requests": len(services.approvals.waiting_for(ask.me.id)),
        "waiting_for": wait.admin_id if wait else None,
    }
