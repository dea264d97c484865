"""The timeline of a period as a drawing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from multi_agent_mcp.domain.times import asked_time
from multi_agent_mcp.web.serializers import moment
from multi_agent_mcp.web.timeline import draw, plot

if TYPE_CHECKING:
    from collections.abc import Collection

    from multi_agent_mcp.domain.overview.timeline import Timeline
    from multi_agent_mcp.web.request import ApiRequest

LANES_MAX = 24
WIDTH = 1_200
WIDTH_MAX = 8_000


def show(call: ApiRequest) -> dict[str, Any]:
    """The period `?from=` to `?to=` (default: the whole session) as an SVG, `?width=` pixels wide, with times in
    `?zone=` (default: UTC) and the colours of `?theme=light|dark` (default: as the reader's system). `?lanes=` names
    the agents to be drawn, with commas between them (default: all, or the `LANES_MAX` that occur most)."""
    start, end = (asked_time(name, call.parameter(name)) for name in ("from", "to"))
    whole = call.services.timeline.of(start, end)
    timeline = whole.on_lanes(_chosen(call.parameter("lanes"), whole))
    width = call.number("width", WIDTH, most=WIDTH_MAX)
    theme = call.parameter("theme")
    dark = None if theme not in ("light", "dark") else theme == "dark"
    left, right = plot(width)
    return {
        "svg": draw(timeline, texts=call.services.texts, width=width, dark=dark, zone=call.zone),
        "from": moment(timeline.start),
        "to": moment(timeline.end),
        "empty": not whole.occurrences(),
        "plot": {"left": left, "right": right},
        "lanes": [lane.agent_id for lane in timeline.lanes],
        "all_lanes": [lane.agent_id for lane in whole.lanes],
    }


def _chosen(names: str | None, whole: Timeline) -> Collection[str]:
    lanes = [lane.agent_id for lane in whole.lanes]
    if names is not None:
        return names.split(",")
    if len(lanes) <= LANES_MAX:
        return lanes
    return [agent_id for agent_id, _ in whole.occurrences().most_common(LANES_MAX)]
