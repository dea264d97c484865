"""The picture of the session: one period of it, drawn."""

from __future__ import annotations

from datetime import UTC, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

from multi_agent_mcp.domain.times import asked_time
from multi_agent_mcp.web.request import ApiRequest
from multi_agent_mcp.web.serializers import moment
from multi_agent_mcp.web.timeline import draw, plot

WIDTH = 1_200
WIDTH_MAX = 8_000


def show(ask: ApiRequest) -> dict[str, Any]:
    """The period `?from=` to `?to=` (default: the whole session) as an SVG `?width=` pixels wide, its clock in `?zone=`
    (default: UTC), in the colours of `?theme=light|dark` (default: the reader's system)."""
    start, end = (asked_time(name, ask.asked(name)) for name in ("from", "to"))
    timeline = ask.services.timeline.of(start, end)
    width = ask.number("width", WIDTH, most=WIDTH_MAX)
    theme = ask.asked("theme")
    dark = None if theme not in ("light", "dark") else theme == "dark"
    left, right = plot(width)
    return {
        "svg": draw(timeline, texts=ask.services.texts, width=width, dark=dark, zone=_zone(ask)),
        "from": moment(timeline.start),
        "to": moment(timeline.end),
        "plot": {"left": left, "right": right},
    }


def _zone(ask: ApiRequest) -> tzinfo:
    """The time zone by its IANA name; an unknown one counts as UTC."""
    try:
        return ZoneInfo(ask.asked("zone") or "UTC")
    except (ValueError, OSError, KeyError):
        return UTC
