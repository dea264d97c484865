"""Both eras of MCP on one server, line by line: the handshake of the revisions up to 2025-11-25, and the requests of
2026-07-28, which carry all that a server has to know (docs/protocol.md, Answers; MCP 2026-07-28, Versioning)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from tests.end_to_end.support import Team
from tests.soak.lives import Served

HANDSHAKES = ("2025-06-18", "2025-11-25")
MODERN = "2026-07-28"
METHOD_NOT_FOUND, UNSUPPORTED_PROTOCOL_VERSION = -32601, -32022


def envelope(version: str = MODERN) -> dict[str, Any]:
    """What every request of a modern client carries in `_meta`."""
    return {
        "io.modelcontextprotocol/protocolVersion": version,
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "eras", "version": "1"},
    }


class Opening(Served):
    """A host that has not said anything yet."""

    def _greet(self) -> None:
        pass

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        return self._request(method, **params)

    def asked(self, method: str, **params: Any) -> dict[str, Any]:
        """The result of a modern request."""
        result = self.ask(method, _meta=envelope(), **params)["result"]
        assert result["resultType"] == "complete"
        return dict(result)


@contextmanager
def opening(team: Team, agent_id: str = "admin") -> Iterator[Opening]:
    team.started += 1
    where = ["--root", str(team.root), "--session", team.session, "--agent", agent_id]
    host = Opening(team.env, team.base / f"era-{team.started}.stderr", where)
    try:
        yield host
    finally:
        host.end()


@pytest.fixture
def opened(team: Team) -> Iterator[Opening]:
    with opening(team) as host:
        yield host


@pytest.mark.parametrize("version", HANDSHAKES)
def test_a_client_with_the_handshake_gets_the_version_it_asks_for(opened: Opening, version: str) -> None:
    welcome = opened.initialize(version)["result"]
    assert welcome["protocolVersion"] == version
    assert welcome["serverInfo"]["name"] == "multi-agent-mcp"
    assert welcome["capabilities"] == {"tools": {"listChanged": True}}
    assert "[IPC]" in welcome["instructions"]
    count = opened.ask("tools/call", name="get_unread_count", arguments={})["result"]
    assert (count["structuredContent"]["unread_count"], "resultType" in count) == (0, False)


def test_a_modern_client_discovers_lists_and_calls_without_a_handshake(opened: Opening) -> None:
    found = opened.asked("server/discover")
    assert found["supportedVersions"] == [MODERN]
    assert found["capabilities"] == {"tools": {"listChanged": True}}
    assert "[IPC]" in found["instructions"]
    assert opened.asked("tools/list")["cacheScope"] == "private"
    answer = opened.asked("tools/call", name="get_unread_count", arguments={})["structuredContent"]
    assert (answer["success"], answer["unread_count"]) == (True, 0)


def test_a_modern_client_may_call_a_tool_with_its_first_request(opened: Opening) -> None:
    assert opened.asked("tools/call", name="get_unread_count", arguments={})["structuredContent"]["success"] is True


def test_a_version_nobody_knows_is_refused_with_those_that_are_served(opened: Opening) -> None:
    error = opened.ask("server/discover", _meta=envelope("2199-01-01"))["error"]
    assert error["code"] == UNSUPPORTED_PROTOCOL_VERSION
    assert error["data"] == {"supported": [MODERN], "requested": "2199-01-01"}
    assert opened.asked("server/discover")["supportedVersions"] == [MODERN]


def test_a_client_that_stays_modern_cannot_shake_hands_afterwards(opened: Opening) -> None:
    opened.asked("server/discover")
    opened.asked("tools/list")
    error = opened.initialize(HANDSHAKES[0])["error"]
    assert (error["code"], error["data"]["supported"]) == (UNSUPPORTED_PROTOCOL_VERSION, [MODERN])
    assert opened.asked("tools/list")["tools"]


@pytest.mark.parametrize("probes", [1, 2])
def test_a_client_that_only_probed_may_shake_hands_after_all(opened: Opening, probes: int) -> None:
    for _ in range(probes):
        opened.asked("server/discover")
    assert opened.initialize(HANDSHAKES[1])["result"]["protocolVersion"] == HANDSHAKES[1]
    assert opened.ask("tools/list")["result"]["tools"]
    answer = opened.ask("tools/call", name="get_unread_count", arguments={})["result"]["structuredContent"]
    assert answer["success"] is True


def test_a_probe_and_a_handshake_at_once_are_both_answered(opened: Opening) -> None:
    probe = {"jsonrpc": "2.0", "id": "probe", "method": "server/discover", "params": {"_meta": envelope()}}
    opened._write(json.dumps(probe).encode() + b"\n")
    assert opened.initialize(HANDSHAKES[1])["result"]["protocolVersion"] == HANDSHAKES[1]


def test_a_client_that_discovers_without_saying_its_version_falls_back_to_the_handshake(opened: Opening) -> None:
    assert opened.ask("server/discover")["error"]["code"] == METHOD_NOT_FOUND
    assert opened.initialize(HANDSHAKES[1])["result"]["protocolVersion"] == HANDSHAKES[1]
    assert opened.ask("tools/list")["result"]["tools"]


def test_every_client_gets_the_same_tools_in_the_same_order_however_often_it_asks(team: Team) -> None:
    with ExitStack() as hosts:
        old, new = (hosts.enter_context(opening(team)) for _ in range(2))
        old.initialize(HANDSHAKES[0])
        lists = [old.ask("tools/list")["result"]["tools"] for _ in range(2)]
        lists += [new.asked("tools/list")["tools"] for _ in range(2)]
    names = [[tool["name"] for tool in tools] for tools in lists]
    assert names[0] == names[1] == names[2] == names[3]
    assert len({json.dumps(tools, sort_keys=True) for tools in lists}) == 1
