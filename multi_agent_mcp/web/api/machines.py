"""The machines of the team, for shared sessions only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from multi_agent_mcp.errors import InvalidArguments

if TYPE_CHECKING:
    from multi_agent_mcp.web.request import ApiRequest


def show(call: ApiRequest) -> dict[str, Any]:
    """This machine's exchange with the hub, every machine, and the edits set aside here. Raises `InvalidArguments`
    unless the session is shared."""
    seen = call.services.machines.look()
    if seen is None:
        raise InvalidArguments("not_shared")
    answer = seen.as_answer()
    return {**answer, "machines": [{"name": name, **facts} for name, facts in answer["machines"].items()]}
