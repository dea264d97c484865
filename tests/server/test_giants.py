"""Giant values for every argument of every tool: whatever comes of a call, its answer stays under 9 000 characters
(docs/protocol.md, Answers)."""

from __future__ import annotations

from typing import Any

import mcp_types as types
import pytest

from multi_agent_mcp.server.tools import TOOLS
from multi_agent_mcp.services.tasks.board import NewTask
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


ESCAPED = {"quotation marks": '"', "control characters": "\x01", "a mixture": 'あ"\\\x01'}


@pytest.mark.parametrize("letters", ESCAPED.values(), ids=ESCAPED)
def test_what_is_stored_may_consist_of_what_json_escapes(services: Services, letters: str) -> None:
    def of(count: int) -> str:
        return (letters * count)[:count]

    task, chat, other = (
        Seat(services, name, purpose=purpose)
        for name, purpose in (("worker-a", "task"), ("worker-a", "chat"), ("worker-b", "chat"))
    )
    checklist = [{"text": of(900), "completed": False}] * 20
    new = [NewTask(title="T" + of(499), description=of(9_000), assignee_id="worker-a") for _ in range(20)]
    services.task_creation.create(services.agents.get("admin"), new)
    answers = {"work": task.result("get_next_action")}
    mine = (answers["work"].structured_content or {})["task"]["task_id"]
    task.call("report_task_progress", task_id=mine, progress=5, message=of(900), checklist=checklist)
    answers |= {name: task.result(name) for name in LOOKING}
    for context in (of(4_000), of(4_000), "short"):
        task.call("delegate_to_chat_session", target_agent_id="worker-b", purpose=of(1_000), context=context)
    answers["delegation"] = chat.result("get_next_action")
    answers["delegations"] = chat.result("get_pending_delegations")
    answers["waiting conversations"] = task.result("get_task_conversations")
    begun = chat.call("start_conversation", target_agent_id="worker-b", initial_message="x" + of(5_999))
    conversation = begun["conversation_id"]
    answers["request"] = other.result("get_next_action")
    answers["messages"] = task.result("get_conversation_messages", conversation_id=conversation)
    answers["conversations"] = task.result("get_task_conversations")
    sizes = {name: size(answer) for name, answer in answers.items()}
    assert {name: length for name, length in sizes.items() if length >= LIMIT} == {}

    def shown(name: str) -> Any:
        return answers[name].structured_content or {}

    assert shown("delegation")["action"] == "process_delegation"
    contexts = [item["context"] for item in shown("delegations")["delegations"]]
    assert sorted(context.rpartition("… ")[2] for context in contexts) == ["(4000)", "(4000)", "short"]
    assert shown("request")["action"] == "conversation_request"
    (message,) = shown("messages")["messages"]
    assert (message["content_truncated"], message["content_length"]) == (True, 6_000)
    assert shown("conversations")["conversations"]
