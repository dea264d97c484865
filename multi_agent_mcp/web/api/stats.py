"""The statistics of the last days (docs/protocol.md, Statistics)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from multi_agent_mcp.domain.hosts.usage import grouped
from multi_agent_mcp.errors import InvalidArguments

if TYPE_CHECKING:
    from multi_agent_mcp.domain.hosts.usage import UsageRow
    from multi_agent_mcp.web.request import ApiRequest

DAYS = 7
DAYS_MAX = 366


def show(call: ApiRequest) -> dict[str, Any]:
    """The statistics of the last `?days=` (default: 7, at most 366), today included; days begin at midnight in `?zone=`
    (default: UTC)."""
    days = max(call.number("days", DAYS, most=DAYS_MAX), 1)
    return call.services.statistics.last_days(days, call.zone).as_answer() | {"usage": _usage(call, days)}


def _usage(call: ApiRequest, days: int) -> dict[str, Any]:
    """The tokens of these days: by agent, task and model, and of each day by agent."""
    usage = call.services.usage
    rows = usage.rows(days, call.zone)
    try:
        prices = usage.prices()
    except InvalidArguments:
        prices = None  # `usage` says why
    by_day = [
        {"day": f"{start.astimezone(call.zone):%Y-%m-%d}", "tokens": _by_agent(found)}
        for start, found in usage.by_day(days, call.zone)
    ]
    currency = None if prices is None else prices.currency
    return {"rows": [row.as_answer(prices) for row in rows], "days": by_day, "currency": currency}


def _by_agent(rows: list[UsageRow]) -> dict[str, int]:
    return {str(row.agent_id): row.tokens.total for row in grouped(rows, "agent_id") if row.tokens is not None}
