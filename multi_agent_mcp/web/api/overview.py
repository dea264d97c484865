"""What concerns the whole session: the data of every page's frame, what waits, the findings of `doctor`, machines
and search."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

from multi_agent_mcp import __version__
from multi_agent_mcp.domain.agent import in_tree_order
from multi_agent_mcp.domain.entity import fields_of
from multi_agent_mcp.errors import InvalidArguments
from multi_agent_mcp.services.search import SearchQuery, parts
from multi_agent_mcp.web.request import ApiRequest
from multi_agent_mcp.web.serializers import moment
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


EXAMINATION_SECONDS = 0.2
"""How long a request waits for the examination unless it says so."""
WAIT_SECONDS_MAX = 10


def health(call: ApiRequest) -> dict[str, Any]:
    """The findings of `doctor`, problems first; they include quarantined files with their reason. Nothing is examined
    again while nothing changes; `?again=1` examines anyway. While that takes longer than `?wait=` seconds, the findings
    are the last ones, and `examining` says how many checks have been made: ask again."""
    recent = call.services.recent_attention
    seconds = call.number("wait", 0, most=WAIT_SECONDS_MAX) or EXAMINATION_SECONDS
    running = recent.examined(seconds, anyway=call.parameter("again") is not None)
    answer = {
        "findings": [finding.as_answer() for finding in recent.findings],
        "problems": sum(finding.level == "problem" for finding in recent.findings),
        "examined_at": moment(recent.examined_at),
    }
    return answer if running is None else {**answer, "examining": running.as_answer()}


def attention(call: ApiRequest) -> dict[str, Any]:
    """All items, most serious first. Requests cause looks at the panes, at most every two seconds. `?seen=` is the
    `state` that the page already has: if nothing has changed, the answer has no more than that."""
    services, found = call.services, call.services.recent_attention.of(call.me)

    def made() -> tuple[str, dict[str, Any]]:
        states = [state.as_answer() for state in services.glances.of(found)]
        answer = {"items": [item.as_answer() for item in found], "states": states}
        return sha256(json.dumps(answer).encode()).hexdigest()[:16], answer

    state, answer = services.unchanged.get(f"attention answer {call.me.id}", made, of=tuple(found))
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
    made, which the first search starts, they are those of what was read so far, and `reading` says how many files that
    is: ask again."""
    query = SearchQuery.parse(parts(call.parameter("q") or ""))
    query.require_something()
    searched = call.services.search
    reading = searched.prepared(PATIENCE_SECONDS)
    results = searched.find(query, call.limit) if reading is None else searched.so_far(query, call.limit)
    answer = {"results": [found.as_answer() for found in results.found], "more": results.more, "words": query.words}
    return answer if reading is None else {**answer, "reading": reading.as_answer()}
