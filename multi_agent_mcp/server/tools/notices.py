"""Notifications and interrupts (seed 000)."""

from __future__ import annotations

from multi_agent_mcp.server.middleware import Call
from multi_agent_mcp.server.toolbox import Answer, Tool


def get_notifications(call: Call, mark_as_read: bool = True) -> Answer:
    """Read your notifications, newest first, and do what their instructions say."""
    notices = call.services.notifications.read(call.me.id, call.purpose, mark_as_read=mark_as_read)
    return call.fitting({}, "notifications", notices)


TOOLS = (Tool(get_notifications, always_load=True),)
