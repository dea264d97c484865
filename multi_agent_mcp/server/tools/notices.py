"""Notifications and interrupts (docs/protocol.md, Notifications)."""

from __future__ import annotations

from typing import Any

from multi_agent_mcp.server.call import Call
from multi_agent_mcp.server.toolbox import Answer, Tool


def get_notifications(call: Call, mark_as_read: bool = True) -> Answer:
    """Read your notifications, newest first, and do what their instructions say."""
    answer: Answer = {}

    def fits(notices: list[dict[str, Any]]) -> int:
        answer.update(call.fitting({}, "notifications", notices))
        return len(answer["notifications"])

    call.services.notifications.read(
        call.me.id, call.purpose, mark_as_read=mark_as_read, fits=fits, lease=call.receipt.lease
    )
    return answer


TOOLS = (Tool(get_notifications, always_load=True),)
