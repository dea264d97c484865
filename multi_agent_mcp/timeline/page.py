"""The endpoints of the console's pages Timeline and Statistics, and what they are drawn with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from multi_agent_mcp.domain.times import asked_time
from multi_agent_mcp.timeline.drawing import draw, plot, stylesheet
from multi_agent_mcp.timeline.statistics import DAYS_SHOWN
from multi_agent_mcp.web.serializers import moment

if TYPE_CHECKING:
    from multi_agent_mcp.timeline.events import Timeline
    from multi_agent_mcp.web.request import ApiRequest

STATISTICS_DAYS_MAX = 366
NOT_COUNTED: Mapping[str, Any] = {"rows": [], "days": [], "currency": None, "budgets": []}


def statistics(call: ApiRequest) -> dict[str, Any]:
    """The statistics of the last `?days=` (default: 7, at most 366), today included; days begin at midnight in `?zone=`
    (default: this machine's)."""
    days = max(call.number("days", DAYS_SHOWN, most=STATISTICS_DAYS_MAX), 1)
    zone, services = call.zone, call.services
    counted = services.statistics
    figures: dict[str, Any] = services.unchanged.get(
        "statistics", lambda: counted.answer(counted.last_days(days, zone)), of=(days, str(zone))
    )
    return figures | {"usage": services.contributions.ask("usage_figures", days, zone) or NOT_COUNTED}


LANES_MAX = 24
WIDTH = 1_200
WIDTH_MAX = 8_000


def show_timeline(call: ApiRequest) -> dict[str, Any]:
    """The period `?from=` to `?to=` (default: the whole session) as an SVG, `?width=` pixels wide, with times in
    `?zone=` (default: this machine's) and the colours of `?theme=light|dark` (default: as the reader's system).
    `?lanes=` names the agents to be drawn, with commas between them (default: all). Of more than `LANES_MAX` agents
    each team, an agent directly below the top with all below it, is one lane, unless `?unfolded=` names its head or a
    lane is asked for by name; the `LANES_MAX` lanes on which most happens are drawn, and the teams unfolded."""
    wanted = tuple(call.parameter(name) for name in ("from", "to", "lanes", "unfolded", "width", "theme"))
    drawn: dict[str, Any] = call.services.unchanged.get(
        "timeline", lambda: _drawn(call), of=(*wanted, str(call.zone), call.services.texts.language)
    )
    return drawn


def _drawn(call: ApiRequest) -> dict[str, Any]:
    start, end = (asked_time(name, call.parameter(name)) for name in ("from", "to"))
    whole = call.services.timeline.of(start, end)
    chosen = _names(call.parameter("lanes"))
    unfolded = _names(call.parameter("unfolded")) or []
    teams = _teams(whole, chosen or ())
    timeline = whole.on_lanes(_shown(whole, teams, chosen, unfolded))
    width = call.number("width", WIDTH, most=WIDTH_MAX)
    theme = call.parameter("theme")
    dark = None if theme not in ("light", "dark") else theme == "dark"
    left, right = plot(width)
    style = partial(draw, texts=call.services.texts, width=width, dark=dark, zone=call.zone)
    below = {one for head in teams if head not in unfolded for one in teams[head]}
    return {
        "svg": style(timeline, teams=teams, unfolded=unfolded),
        "from": moment(timeline.start),
        "to": moment(timeline.end),
        "empty": not whole.occurrences(),
        "plot": {"left": left, "right": right},
        "lanes": [lane.agent_id for lane in timeline.lanes if lane.agent_id not in below],
        "all_lanes": [lane.agent_id for lane in whole.lanes],
    }


def download(call: ApiRequest) -> dict[str, Any]:
    """The timeline as an SVG file; takes the parameters of `show_timeline`."""
    return {"content": show_timeline(call)["svg"], "type": "image/svg+xml"}


def styles() -> list[str]:
    """The style sheets that a drawing contains: for readers of either theme, and for those whose system chooses."""
    return [stylesheet(dark) for dark in (None, False, True)]


def _names(given: str | None) -> list[str] | None:
    return None if given is None else given.split(",")


def _teams(whole: Timeline, chosen: Collection[str]) -> dict[str, list[str]]:
    """The agents of each team that may be on the lane of its head."""
    if len(whole.lanes) <= LANES_MAX:
        return {}
    teams = {head: [one for one in below if one not in chosen] for head, below in whole.teams().items()}
    return {head: below for head, below in teams.items() if below}


def _shown(
    whole: Timeline, teams: Mapping[str, Collection[str]], chosen: Collection[str] | None, unfolded: Collection[str]
) -> set[str]:
    """The agents of which something is drawn."""
    below = {head: [head, *teams[head]] for head in teams}
    head_of = {one: head for head, members in below.items() for one in members}
    lanes = [lane.agent_id for lane in whole.lanes]
    if chosen is None and len(lanes) > LANES_MAX:
        happens = Counter[str]()
        for agent_id, count in whole.occurrences().items():
            happens[head_of.get(agent_id, agent_id)] += count
        chosen = {*unfolded, *(agent_id for agent_id, _ in happens.most_common(LANES_MAX))}
    elif chosen is None:
        chosen = lanes
    return {one for name in chosen for one in below.get(name, [name])}
