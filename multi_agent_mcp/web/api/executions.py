"""Executions and their logs."""

from __future__ import annotations

from typing import Any

from multi_agent_mcp.domain.execution import Execution
from multi_agent_mcp.web.request import ApiRequest
from multi_agent_mcp.web.serializers import execution_row

LOG_LINES = 500


def page(ask: ApiRequest) -> dict[str, Any]:
    """The executions, running ones first, then the newest; `?agent=` asks for one agent's."""
    found, total = ask.services.executions.page(ask.asked("agent"), offset=ask.number("offset", 0), limit=ask.limit)
    return {"executions": [_row(ask, item) for item in found], "total": total}


def log(ask: ApiRequest) -> dict[str, Any]:
    """Lines of a log from line `?offset=` on; without it the last ones. At most 500; `next_offset` follows the log."""
    services = ask.services
    execution = services.executions.get(None, ask.path["execution_id"])
    follows = ask.asked("offset") is not None
    where = {"offset": ask.number("offset", 0)} if follows else {"tail": LOG_LINES}
    found = services.executions.read_log(execution, **where)
    lines = found.lines[:LOG_LINES]
    first = where["offset"] if follows else found.total - len(lines)
    return {
        "execution": _row(ask, execution),
        "lines": lines,
        "offset": first,
        "next_offset": first + len(lines),
        "total": found.total,
    }


def _row(ask: ApiRequest, execution: Execution) -> dict[str, Any]:
    """An execution with its task's title; null when the task is gone."""
    tasks = ask.services.board.existing([execution.task_id])
    return execution_row(execution) | {"task_title": tasks[0].title if tasks else None}
