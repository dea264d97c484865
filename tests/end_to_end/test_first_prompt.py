"""The prompt that `up` and the supervisor start a host with, as its program gets it in a real tmux window."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.end_to_end.chat_support import new_task
from tests.end_to_end.support import UP, Team, Terminal, wait_until
from tests.programs import stand_in

pytestmark = [pytest.mark.tmux]

PROGRAM = """\
import json, os, pathlib, sys
agent, purpose = (os.environ[f"MULTI_AGENT_MCP_{name}"] for name in ("AGENT", "PURPOSE"))
seen = pathlib.Path(sys.argv[0]).parent / f"{agent}.{purpose}.part"
seen.write_text(json.dumps(sys.argv[1:]))
seen.rename(seen.with_suffix(".argv"))
sys.stdin.read()
"""
MAIL = "[IPC] New message: request from owner"
HOSTILE = 'it\'s "so": $HOME `id` $(id) \\ ; ~ #{pane_id} {agent} 日本語\n\n  - second line\n'


def host(team: Team, name: str) -> Path:
    """A program of this name that writes down what it was given and stays."""
    program = team.base / name
    program.write_text(f"#!{sys.executable}\n{PROGRAM}", encoding="utf-8")
    program.chmod(0o755)
    return program


def given(team: Team, agent_id: str, purpose: str) -> str:
    """The last argument of the host that was started for this session."""
    file = team.base / f"{agent_id}.{purpose}.argv"
    wait_until(file.exists, f"{agent_id} was started for a {purpose} session")
    return str(json.loads(file.read_text(encoding="utf-8"))[-1])


def test_windows_of_up_and_of_the_supervisor_begin_with_their_prompt(bare: Team, terminal: Terminal) -> None:
    claude, codex = host(bare, "claude"), host(bare, "codex")
    agents = [
        {"id": "owner", "role": "owner", "type": "human"},
        {"id": "admin", "role": "admin", "parent": "owner", "command": f"{claude} --mcp-config {{mcp_config}}"},
        {"id": "worker-a", "parent": "admin", "command": f"{codex} {{mcp_config}}", "spawn": "on_demand"},
        {"id": "worker-b", "parent": "admin", "command": f"{codex} {{mcp_config}}", "prompt": HOSTILE},
    ]
    team = bare.make(json.dumps({"language": "ja", "agents": agents}))
    services = team.services
    new_task(team, assignee_id="worker-a")
    # The admin's chat work does not make a chat session of the window that `up` opens for it.
    for other in ("admin", "worker-a"):
        services.conversations.begin(services.agents.get("worker-b"), services.agents.get(other), "are you there?")
    team.ask(*UP, "--socket", terminal.socket)
    try:
        admin = given(team, "admin", "task")
        assert all(word in admin for word in ("admin", "上位者: owner", "send_task", "get_next_action"))
        assert given(team, "worker-b", "task") == HOSTILE
        task, chat = given(team, "worker-a", "task"), given(team, "worker-a", "chat")
        assert all("worker-a" in prompt and "上位者: admin" in prompt for prompt in (task, chat))
        assert "チャットセッション" in chat
        assert "チャットセッション" not in task
    finally:
        team.ask("down")


def test_a_host_that_ended_its_first_turn_without_a_call_is_told_once_more(bare: Team, terminal: Terminal) -> None:
    mute = f"{{python}} {stand_in(bare.base, 'claude')} tests.end_to_end.mute"
    agents = [
        {"id": "owner", "role": "owner", "type": "human"},
        {"id": "admin", "role": "admin", "parent": "owner", "command": f"{mute} {bare.base}/admin calls {{prompt}}"},
        {"id": "worker-a", "parent": "admin", "command": f"{mute} {bare.base}/worker-a {{prompt}}"},
    ]
    team = bare.make(json.dumps({"language": "en", "agents": agents}))
    team.ask(*UP, "--no-supervisor", "--socket", terminal.socket)
    try:
        told = "[IPC] Call get_next_action now and follow its instruction"
        wait_until(lambda: said_to(bare.base / "worker-a") == [told], "it is told once more")
        for agent_id in ("admin", "worker-a"):
            team.send(agent_id, sender="owner")
            wait_until(lambda log=bare.base / agent_id: MAIL in said_to(log), "a later line comes")  # type: ignore[misc]
        assert said_to(bare.base / "admin") == [MAIL], "its model had called our server"
        assert said_to(bare.base / "worker-a") == [told, MAIL]
    finally:
        team.ask("down")


def said_to(log: Path) -> list[str]:
    """What was submitted to the host, without the doorbell's mark."""
    lines = log.read_text(encoding="utf-8").splitlines() if log.exists() else []
    return [str(item["text"]).partition(" #")[0] for item in map(json.loads, lines) if item["event"] == "line"]
