"""What concerns the whole session: the data of every page's frame, what waits, the findings of `doctor`, machines,
search, statistics and the timeline."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping
from functools import partial
from hashlib import sha256
from typing import Any

from multi_agent_mcp import __version__
from multi_agent_mcp.domain.agent import in_tree_order
from multi_agent_mcp.domain.entity import fields_of
from multi_agent_mcp.domain.timeline import Timeline
from multi_agent_mcp.domain.times import asked_time
from multi_agent_mcp.errors import InvalidArguments
from multi_agent_mcp.services.search import SearchQuery, parts
from multi_agent_mcp.web.request import ApiRequest
from multi_agent_mcp.web.serializers import moment
from multi_agent_mcp.web.timeline import draw, plot
from multi_agent_mcp.wiring import Services


def show_session(call: ApiRequest) -> dict[str, Any]:
    """The session, the acting agent, its number of unread messages, and its wait-lock."""
    services = call.services
    wait = services.owner_waits.of(call.me.id)
    return {
        "session": services.session.name,
        "language": services.texts.language,
        "version": __version__,
        "me": {"id": call.me.id, "role": call.me.role, "name": call.me.name},
        "unread": services.unread_mail_count(call.me.id),
        "waiting_for": wait.admin_id if wait else None,
        **homes(services),
    }


def team(call: ApiRequest) -> dict[str, Any]:
    """The agents by name, in tree order: cheaper than what they do (`/agents`)."""
    agents = in_tree_order(call.services.agents.all())
    return {
        "agents": [fields_of(agent, "id", "name", "role", "parent_id") | {"depth": depth} for agent, depth in agents]
    }


def homes(services: Services) -> dict[str, Any]:
    """Every agent's home machine and its state; empty unless the session is shared."""
    if services.machine is None:
        return {}
    return {"homes": {name: vars(home) for name, home in services.machines.homes().items()}}


def health(call: ApiRequest) -> dict[str, Any]:
    """The findings of `doctor`, problems first; they include quarantined files with their reason. Nothing is examined
    again while nothing changes; `?again=1` examines anyway, as an edit in place or a mode(7) shows in no directory."""
    findings = (
        call.services.diagnosis.findings() if call.parameter("again") is None else call.services.doctor().examine()
    )
    call.services.recent_attention.found(findings)
    return {
        "findings": [finding.as_answer() for finding in findings],
        "problems": sum(finding.level == "problem" for finding in findings),
    }


def attention(call: ApiRequest) -> dict[str, Any]:
    """All items, most serious first. Requests cause looks at the panes, at most every two seconds. `?seen=` is the
    `state` that the page already has: if nothing has changed, the answer has no more than that."""
    found = call.services.recent_attention.of(call.me)
    states = [state.as_answer() for state in call.services.glances.of(found)]
    answer = {"items": [item.as_answer() for item in found], "states": states}
    state = sha256(json.dumps(answer).encode()).hexdigest()[:16]
    return {"state": state} if state == call.parameter("seen") else {"state": state, **answer}


def machines(call: ApiRequest) -> dict[str, Any]:
    """This machine's exchange with the hub, every machine, and the edits set aside here. Raises `InvalidArguments`
    unless the session is shared."""
    seen = call.services.machines.look()
    if seen is None:
        raise InvalidArguments("not_shared")
    answer = seen.as_answer()
    return {**answer, "machines": [{"name": name, **facts} for name, facts in answer["machines"].items()]}


PATIENCE_SECONDS = 1.0
"""How long a request waits for the index."""


def search(call: ApiRequest) -> dict[str, Any]:
    """The newest results for the query `?q=` (docs/protocol.md, Search), and the words of the query. While the index is
    made, which the first search starts, there are none but `reading`, with how many files were read: ask again."""
    query = SearchQuery.parse(parts(call.parameter("q") or ""))
    query.require_something()
    if (reading := call.services.search.prepared(PATIENCE_SECONDS)) is not None:
        return {"results": [], "more": False, "words": query.words, "reading": reading.as_answer()}
    results = call.services.search.find(query, call.limit)
    return {"results": [found.as_answer() for found in results.found], "more": results.more, "words": query.words}


STATISTICS_DAYS = 7
STATISTICS_DAYS_MAX = 366
NOT_COUNTED: Mapping[str, Any] = {"rows": [], "days": [], "currency": None, "budgets": []}


def statistics(call: ApiRequest) -> dict[str, Any]:
    """The statistics of the last `?days=` (default: 7, at most 366), today included; days begin at midnight in `?zone=`
    (default: this machine's)."""
    days = max(call.number("days", STATISTICS_DAYS, most=STATISTICS_DAYS_MAX), 1)
    zone, services = call.zone, call.services
    figures = services.unchanged.get(
        "statistics", lambda: services.statistics.last_days(days, zone).as_answer(), of=(days, str(zone))
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
