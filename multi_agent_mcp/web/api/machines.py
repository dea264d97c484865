"""The machines of the team; there are none to be seen while the session is on one alone."""

from __future__ import annotations

from typing import Any

from multi_agent_mcp.errors import InvalidArguments
from multi_agent_mcp.web.request import ApiRequest


def show(call: ApiRequest) -> dict[str, Any]:
    """How this one stands with the hub, every machine, and the edits that are set aside here."""
    seen = call.services.machines.look()
    if seen is None:
        raise InvalidArguments("not_shared")
    answer = seen.as_answer()
    return {**answer, "machines": [{"name": name, **facts} for name, facts in answer["machines"].items()]}
