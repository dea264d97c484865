"""The official inspector's command line and the official TypeScript client against our server, in both eras of the
protocol (docs/protocol.md, Answers)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.clients.conftest import Node
from tests.end_to_end.support import Team
from tests.end_to_end.test_tools import allowed

CONVERSATION = Path(__file__).with_name("conversation.mjs")
INSPECTOR = Path(".bin") / "mcp-inspector"


def inspect(node: Node, team: Team, served: Sequence[str], era: str, *asked: str) -> dict[str, Any]:
    """One run of the inspector's command line; its answer."""
    command, *arguments = served
    ours = {"type": "stdio", "command": command, "args": arguments, "env": team.env, "protocolEra": era}
    config = team.base / f"{era}.json"
    config.write_text(json.dumps({"mcpServers": {"ours": ours}}), encoding="utf-8")
    ran = node.run(team, node.modules / INSPECTOR, "--cli", "--config", config, "--server", "ours", *asked)
    assert ran.code == 0, ran
    return ran.json


@pytest.mark.slow
def test_the_inspector_finds_nothing_to_complain_about_in_the_tools(
    node: Node, team: Team, served: Sequence[str]
) -> None:
    """With --strict it fails for any schema that some host's model could not take."""
    tools = inspect(node, team, served, "legacy", "--method", "tools/list", "--strict")["tools"]
    assert {tool["name"] for tool in tools} == allowed("admin", "task")


@pytest.mark.slow
def test_the_inspector_sends_a_message_in_the_modern_era(node: Node, team: Team, served: Sequence[str]) -> None:
    words = ("--tool-arg", "receiver_id=worker-a", "content=inspected")
    answer = inspect(node, team, served, "modern", "--method", "tools/call", "--tool-name", "send_message", *words)
    assert answer["structuredContent"]["receiver_ids"] == ["worker-a"]
    assert [message.content for message in team.mailbox("worker-a")] == ["inspected"]


@pytest.mark.slow
def test_a_client_in_another_language_does_the_same_however_it_agrees_on_a_version(
    node: Node, team: Team, served: Sequence[str]
) -> None:
    ran = node.run(team, CONVERSATION, node.modules, *served)
    assert ran.code == 0, ran
    seen = ran.json
    assert {way: found["version"] for way, found in seen.items()} == {
        "legacy": "2025-11-25",
        "auto": "2026-07-28",
        "pinned": "2026-07-28",
    }
    for found in seen.values():
        assert found["sent"]["receiver_ids"] == ["worker-a"]
        assert found["refused"] == [True, "agent_not_found"]
        assert "[IPC]" in found["instructions"]
        assert found["tools"] == seen["legacy"]["tools"]
        assert all(title and annotations for _, title, annotations in found["tools"])
    assert [message.content for message in team.mailbox("worker-a")] == ["legacy", "auto", "pinned"]
