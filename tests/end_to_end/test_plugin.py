"""What a plugin of a host starts: the same server and hooks wherever its user works, for the agent that the environment
names."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from multi_agent_mcp.server.app import HELP_TOOL
from multi_agent_mcp.texts import catalogue
from tests.end_to_end.support import COMMAND, Team
from tests.end_to_end.test_eras import envelope

HELLO: dict[str, Any] = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "host", "version": "1"},
}


def _started(env: dict[str, str], directory: Path, *, probed: bool = False) -> tuple[dict[str, Any], list[str], Any]:
    """Starts the plugin's server; returns its answer to `initialize`, its tools, and what its first tool answers. A
    host that has `probed` it has asked what it can do, before it shakes hands after all."""
    with subprocess.Popen(
        [*COMMAND, "serve", "--plugin"],
        cwd=directory,
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        encoding="utf-8",
    ) as server:
        assert server.stdin
        assert server.stdout

        def ask(number: int, method: str, **params: Any) -> Any:
            request = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
            print(json.dumps(request), file=server.stdin, flush=True)
            assert server.stdout
            return json.loads(server.stdout.readline())["result"]

        assert not probed or ask(0, "server/discover", _meta=envelope())["supportedVersions"]
        hello = ask(1, "initialize", **HELLO)
        print('{"jsonrpc": "2.0", "method": "notifications/initialized"}', file=server.stdin, flush=True)
        names = [tool["name"] for tool in ask(2, "tools/list")["tools"]]
        answer = ask(3, "tools/call", name=names[0], arguments={}) if names == [HELP_TOOL] else None
        server.stdin.close()
        assert server.wait(60) == 0
        return hello, names, answer


def _of(team: Team, **added: str) -> dict[str, str]:
    identity = {"ROOT": str(team.root), "SESSION": team.session, **added}
    return team.env | {f"MULTI_AGENT_MCP_{name}": value for name, value in identity.items()}


def test_without_an_agent_it_says_how_to_make_a_team_and_with_one_it_is_the_agents_server(
    team: Team, tmp_path: Path
) -> None:
    sentence = catalogue("en")("error.not_of_a_team")
    literal = {f"MULTI_AGENT_MCP_{name}": f"$MULTI_AGENT_MCP_{name}" for name in ("ROOT", "SESSION", "AGENT")}
    for env in (team.env, team.env | literal, _of(team, AGENT="")):
        hello, tools, answer = _started(env | {"LANG": "C.UTF-8"}, tmp_path)
        assert (hello["instructions"], tools) == (sentence, [HELP_TOOL])
        assert json.loads(answer["content"][0]["text"])["message"] == sentence

    assert _started(team.env, tmp_path, probed=True)[1] == [HELP_TOOL]
    assert "get_next_action" in _started(_of(team, AGENT="worker-a"), tmp_path, probed=True)[1]

    hello, tools, _ = _started(_of(team, AGENT="worker-a"), tmp_path)
    assert "get_next_action" in tools
    said = team.services.statements
    assert hello["instructions"] == said.instructions(team.services.agents.get("worker-a"))

    hello, tools, answer = _started(_of(team, AGENT="nobody"), tmp_path)
    assert "nobody" in hello["instructions"], "a host shows only that a server has ended, not why"
    assert tools == [HELP_TOOL]

    hello, tools, _ = _started(_of(team, AGENT="worker-a", CONFIGURED="yes"), tmp_path)
    assert (hello.get("instructions"), tools) == (None, []), "the agent's own configuration has the server already"


@pytest.mark.parametrize(
    ("added", "speaks"),
    [({"AGENT": "worker-a"}, True), ({}, False), ({"AGENT": "worker-a", "CONFIGURED": "yes"}, False)],
    ids=["an agent's host", "somebody's host", "configured by up"],
)
def test_its_hooks_speak_to_an_agents_host_only_and_only_once(
    team: Team, tmp_path: Path, added: dict[str, str], *, speaks: bool
) -> None:
    task = team.ask("task", "add", "Sort the figures", "--assignee", "worker-a")["task_id"]
    team.ask("task", "status", task, "in_progress")
    team.ask("task", "status", task, "blocked", "--reason", "wait")

    def denied(tool: str) -> bool:
        event = json.dumps({"hook_event_name": "PreToolUse", "session_id": "c-1", "tool_name": tool})
        call = [*COMMAND, "hook", "--host", "claude", "--plugin"]
        env = _of(team, **added)
        done = subprocess.run(
            call, input=event, cwd=tmp_path, env=env, capture_output=True, encoding="utf-8", check=True
        )
        assert not done.stderr
        return '"deny"' in done.stdout

    assert denied("Bash") == speaks
    assert not denied("mcp__plugin_multi-agent-mcp_ipc__get_notifications"), "it is how the interrupt is read"
