"""Giant values for every argument of every tool: whatever comes of a call, its answer stays under 9 000 characters
(docs/protocol.md, Answers)."""

from __future__ import annotations

from typing import Any

import mcp_types as types
import pytest

from multi_agent_mcp.server.tools import TOOLS
from multi_agent_mcp.services.tasks.creation import NewTask
from multi_agent_mcp.wiring import Services
from tests.server.seat import Seat
from tests.services.support import send

LIMIT = 9_000
CHARACTERS = 20_000
LETTERS = "x" * CHARACTERS
GIANTS: dict[str, Any] = {
    "letters": LETTERS,
    "what JSON escapes": "\x01" * CHARACTERS,
    "lines": "あ\n" * CHARACTERS,
    "an id and more": "tsk_0123456789ab" + LETTERS,
    "JSON": '{"a": "' + LETTERS + '"}',
    "a number": 10**4_000,
    "a list": [LETTERS] * 3,
    "a long list": ["x"] * CHARACTERS,
    "a key": {LETTERS: "x"},
    "a deep value": {"a": [{"b": LETTERS}]},
    "a list of keys": [{LETTERS: "x"}, {"title": LETTERS}, {"text": "\x01" * CHARACTERS, LETTERS: 1}],
}
LOOKING = ("get_next_action", "get_my_tasks", "get_dashboard", "list_agents", "read_messages", "get_notifications")


class Stage:
    """Somebody who may call the tool, with things around that its ids name, so that it gets as far as it can."""

    def __init__(self, services: Services, tool: str) -> None:
        role = next(name for name in ("admin", "worker", "owner", "") if not name or name in TOOLS[tool].roles)
        self.purpose = min(TOOLS[tool].purposes, key=("task", "chat").index)
        self.me = {"worker": "worker-a", "": None}.get(role, role)
        self.other = "worker-b" if role == "admin" else "admin"
        self.services = services
        agents = services.agents
        mine = None if self.me == "owner" else self.me
        task = services.task_creation.create(agents.get("admin"), [NewTask(title="x", assignee_id=mine)])[0].id
        begun, _ = services.conversations.begin(agents.get(self.me or "admin"), agents.get("worker-b"), "hello")
        self.usual: dict[str, Any] = {
            "agent_id": self.other, "receiver_id": self.other, "target_agent_id": self.other, "requester_id": "owner",
            "assignee_id": self.other, "passkey": "x", "content": "x", "title": "x", "message": "x", "purpose": "x",
            "initial_message": "x", "result": "success", "approve": True, "tasks": [{"title": "x"}], "task_id": task,
            "message_id": send(services, "worker-b", "admin").message_id, "conversation_id": begun.id,
            "execution_id": "exec_0123456789ab", "status": "completed" if "report" in tool else "todo",
        }  # fmt: skip
        self.seat = Seat(services, self.me, purpose=self.purpose)

    def call(self, tool: str, **given: Any) -> types.CallToolResult:
        fields = TOOLS[tool].arguments.model_fields
        usual = {name: value for name, value in self.usual.items() if name in fields and fields[name].is_required()}
        if "timeout_seconds" in fields:
            usual["timeout_seconds"] = 0
        result = self.seat.result(tool, **{**usual, **given})
        if result.structured_content is not None:
            return result
        self.seat.call("get_notifications")  # an interrupt has replaced the answer
        return self.seat.result(tool, **{**usual, **given})


def size(result: types.CallToolResult) -> int:
    (content,) = result.content
    assert isinstance(content, types.TextContent)
    return len(content.text)


@pytest.mark.parametrize("tool", TOOLS)
def test_no_giant_argument_makes_a_giant_answer(services: Services, tool: str) -> None:
    stage = Stage(services, tool)
    arguments: list[dict[str, Any]] = [
        {name: giant} for name in (*TOOLS[tool].arguments.model_fields, "session_token") for giant in GIANTS
    ]
    arguments += [{LETTERS: "x"}, {"\x01" * CHARACTERS: "x"}, {f"{number}{LETTERS}": "x" for number in range(9)}]
    wrong: dict[str, int] = {}
    for given in arguments:
        values = {name: GIANTS.get(str(value), value) for name, value in given.items()}
        if (length := size(stage.call(tool, **values))) >= LIMIT:
            wrong[str(given)[:60]] = length
    assert wrong == {}
    looked = {looking: size(stage.call(looking)) for looking in LOOKING if stage.me is not None}
    assert {looking: length for looking, length in looked.items() if length >= LIMIT} == {}
