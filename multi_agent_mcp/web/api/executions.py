"""Executions and their logs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from multi_agent_mcp.web.serializers import execution_row

if TYPE_CHECKING:
    from multi_agent_mcp.domain.agent import Execution
    from multi_agent_mcp.web.request import ApiRequest

LOG_LINES = 500


def page(call: ApiRequest) -> dict[str, Any]:
    """The executions, running ones first, then newest first; `?agent=` selects one agent's."""
    found, total = call.services.executions.page(
        call.agent_id("agent"), offset=call.number("offset", 0), limit=call.limit
    )
    return {"executions": [_row(call, item) for item in found], "total": total}


def log(call: ApiRequest) -> dict[str, Any]:
    """At most 500 lines of a log, from line `?offset=` on, else the last ones; `next_offset` continues."""
    services = call.services
    execution = services.executions.get(None, call.path["execution_id"])
    follows = call.parameter("offset") is not None
    where = {"offset": call.number("offset", 0)} if follows else {"tail": LOG_LINES}
    found = services.executions.read_log(execution, **where)
    lines = found.lines[:LOG_LINES]
    first = where["offset"] if follows else found.total - len(lines)
    return {
        "execution": _row(call, execution),
        "lines": lines,
        "offset": first,
        "next_offset": first + len(lines),
        "total": found.total,
    }


def _row(call: ApiRequest, execution: Execution) -> dict[str, Any]:
    """An execution with its task's title, null if the task is gone."""
    tasks = call.services.board.existing([execution.task_id])
    return execution_row(execution) | {"task_title": tasks[0].title if tasks else None}
