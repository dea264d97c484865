"""The statistics of the last days (docs/protocol.md, Statistics)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from multi_agent_mcp.web.request import ApiRequest

DAYS = 7
DAYS_MAX = 366


def show(call: ApiRequest) -> dict[str, Any]:
    """The statistics of the last `?days=` (default: 7, at most 366), today included; days begin at midnight in `?zone=`
    (default: UTC)."""
    days = max(call.number("days", DAYS, most=DAYS_MAX), 1)
    return call.services.statistics.last_days(days, call.zone).as_answer()
