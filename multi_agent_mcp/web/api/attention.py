"""The items that wait for the acting agent (docs/protocol.md, Attention)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from multi_agent_mcp.web.request import ApiRequest


def show(call: ApiRequest) -> dict[str, Any]:
    """All items, most serious first. Requests cause looks at the panes, at most every two seconds."""
    return {"items": [item.as_answer() for item in call.services.recent_attention.of(call.me)]}
