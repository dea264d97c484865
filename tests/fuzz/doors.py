"""Targets at the doors: calls of every tool, valid and invalid by its schema; requests to valid and invalid paths of
the console's API."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

from hypothesis import given
from hypothesis import strategies as st

from multi_agent_mcp.features.ours import ALL
from multi_agent_mcp.server.tools import TOOLS
from multi_agent_mcp.web.api import endpoints_of
from tests.fuzz.ground import AGENT, ask, context, fresh, seat
from tests.fuzz.guest import guest
from tests.fuzz.strategies import IDS, JSON, SURROGATES, TEXT, by_schema

SEATS = [("owner", "task"), ("admin", "task"), ("admin", "chat"), (AGENT, "task"), (AGENT, "chat")]
CALLED = sorted(set(TOOLS) - {"authenticate", "logout"})


@st.composite
def calls(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """A tool and arguments: as its schema says, some left out, some replaced by anything."""
    name = draw(st.sampled_from(CALLED))
    arguments = draw(by_schema(TOOLS[name].arguments.model_json_schema()))
    if draw(st.integers(0, 3)) == 0:
        arguments |= draw(
            st.dictionaries(st.sampled_from([*arguments, "session_token", "more"]), JSON | SURROGATES, max_size=2)
        )
    return name, {key: value for key, value in arguments.items() if key != "timeout_seconds"}


@given(where=st.sampled_from(SEATS), told=st.lists(calls(), min_size=1, max_size=6))
def tools(where: tuple[str, str], told: list[tuple[str, dict[str, Any]]]) -> None:
    """Several calls in one session, on what the calls before have made: each is answered as docs/protocol.md says."""
    root = fresh()
    taken = seat(root, *where)
    known: list[str] = []
    for name, arguments in told:
        for key in ("task_id", "conversation_id", "message_id", "delegation_id"):
            fitting = [item for item in known if key[:1] == item[:1] or key == "message_id"]
            if fitting and isinstance(arguments.get(key), str):
                arguments[key] = fitting[-1]
        answer = ask(taken, name, arguments)
        known += [value for key, value in answer.items() if key.endswith("_id") and isinstance(value, str)]
    assert not list((root / "demo").rglob("quarantine/*"))
    assert not list((root / "demo" / ".intents").glob("*"))
    assert [item for item in context(root).doctor(lambda _: None).examine() if item.level == "problem"] == []


FIELDS = (
    "title description priority assignee_id status reason approve content receiver_id action task_id subject more "
    "target_agent_id purpose final_message idempotency_key"
)
BODIES = st.dictionaries(
    st.sampled_from(FIELDS.split()),
    st.one_of(TEXT, IDS, SURROGATES, JSON, st.sampled_from(["todo", "blocked", "pause", "high", "urgent", "request"])),
    max_size=5,
)
QUERIES = st.dictionaries(
    st.sampled_from(
        ["status", "assignee", "offset", "limit", "agent", "from", "to", "width", "zone", "theme", "before", "q"]
    ),
    st.one_of(
        TEXT,
        IDS,
        st.sampled_from(
            ["0", "9" * 30, "-1", "todo", "2026-11-21", "0001-01-01", "9999-12-31T23:59:59Z", "Asia/Tokyo", "../x", "٣"]
        ),
    ),
    max_size=3,
)


@given(
    endpoint=st.sampled_from([*endpoints_of(ALL)]),
    ids=IDS | TEXT,
    query=QUERIES,
    body=st.one_of(BODIES, BODIES, JSON),
    raw=st.one_of(st.none(), st.none(), st.binary(max_size=40)),
)
def web(endpoint: tuple[str, str, Any], ids: str, query: dict[str, str], body: Any, raw: bytes | None) -> None:
    """Every request of an authenticated page is answered in JSON, and never with 500."""
    method, path, _ = endpoint
    root = fresh()
    visitor = guest(root)
    for name in ("task_id", "agent_id", "message_id", "conversation_id", "execution_id"):
        path = path.replace(f"{{{name}}}", quote(ids, safe="") or "x")
    asked = "&".join(f"{quote(key)}={quote(value)}" for key, value in query.items())
    where = f"/api{path}?{asked}"
    reply = visitor.get(where) if method == "GET" else visitor.post(where, body if raw is None else raw)
    assert reply.status < 500, reply
    if "json" in reply.headers.get("content-type", ""):
        answer = reply.json
        json.dumps(answer, allow_nan=False).encode()
        assert answer["success"] is (reply.status == 200)
    else:
        assert reply.status in (404, 405), reply
    assert not list((root / "demo").rglob("quarantine/*"))
