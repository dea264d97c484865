"""`tools/list` and every tool, over real stdio, in both eras of the protocol
(docs/protocol.md, Answers, Tools)."""

from __future__ import annotations

import json
from typing import Any

import mcp_types as types
import pytest

from multi_agent_mcp.server.tools import TOOLS
from tests.end_to_end.support import NO_NOTICE, Agent, Team

pytestmark = pytest.mark.anyio

ALL, LEADERS, REPORTERS, OWNER = (
    {"owner", "admin", "worker"},
    {"owner", "admin"},
    {"worker", "admin"},
    {"owner"},
)
BOTH, TASK, CHAT = {"task", "chat"}, {"task"}, {"chat"}

MAY_CALL: dict[str, tuple[set[str], set[str]]] = {
    "authenticate": (set(), set()),
    "logout": (ALL, BOTH),
    "send_message": (ALL, BOTH),
    "read_messages": (ALL, BOTH),
    "get_unread_count": (ALL, BOTH),
    "get_message_status": (ALL, BOTH),
    "unlock_owner_wait": (OWNER, BOTH),
    "register_agent_to_ipc": (LEADERS, BOTH),
    "list_agents": (ALL, BOTH),
    "send_task": (LEADERS, BOTH),
    "report_task_progress": (REPORTERS, BOTH),
    "report_task_completion": (REPORTERS, BOTH),
    "get_dashboard": (LEADERS, BOTH),
    "get_notifications": (ALL, BOTH),
    "get_next_action": (ALL, BOTH),
    "report_completed": (ALL, TASK),
    "create_tasks_batch": (LEADERS, TASK),
    "assign_task": (LEADERS, BOTH),
    "update_task_status": (ALL, TASK),
    "request_task": (ALL, BOTH),
    "ask": (ALL, BOTH),
    "answer_question": (ALL, BOTH),
    "approve_task_request": (LEADERS, BOTH),
    "delegate_to_chat_session": (ALL, TASK),
    "get_task_conversations": (ALL, TASK),
    "get_conversation_messages": (ALL, TASK),
    "get_pending_delegations": (ALL, CHAT),
    "start_conversation": (ALL, CHAT),
    "end_conversation": (ALL, CHAT),
    "start_task_from_chat": (ALL, CHAT),
    "update_task_from_chat": (ALL, CHAT),
    "notify_task_session": (ALL, CHAT),
    "reserve_files": (ALL, BOTH),
    "release_files": (ALL, BOTH),
    "get_my_tasks": (ALL, BOTH),
    "get_my_execution_history": (ALL, BOTH),
    "get_execution_log": (ALL, BOTH),
    "hand_off": (ALL, BOTH),
}
BUDGET_BYTES = 12_288
AGENTS = {"owner": "owner", "admin": "admin", "worker": "worker-a"}
CHAT_ONLY = {"conversation_id": "cnv_000000000000", "target_agent_id": "worker-b", "initial_message": "hello"}


def allowed(role: str, purpose: str) -> set[str]:
    """The documented tools for this role and purpose, as far as they are built."""
    return {
        name for name, (roles, purposes) in MAY_CALL.items() if role in roles and purpose in purposes and name in TOOLS
    }


def size(tools: dict[str, types.Tool]) -> int:
    """Bytes of the list as compact UTF-8 JSON."""
    listed = {"tools": [tool.model_dump(by_alias=True, exclude_none=True, mode="json") for tool in tools.values()]}
    return len(json.dumps(listed, ensure_ascii=False, separators=(",", ":")).encode())


def test_no_tool_is_built_that_the_documentation_does_not_name() -> None:
    assert set(TOOLS) <= set(MAY_CALL)


@pytest.mark.parametrize("purpose", ["task", "chat"])
@pytest.mark.parametrize("role", ["owner", "admin", "worker"])
async def test_a_role_and_purpose_sees_exactly_its_tools_within_the_budget(team: Team, role: str, purpose: str) -> None:
    mode = "legacy" if purpose == "chat" else "auto"
    async with team.server(AGENTS[role], "--purpose", purpose, mode=mode) as agent:
        tools = await agent.tools()
        assert set(tools) == allowed(role, purpose)
        assert size(tools) <= BUDGET_BYTES
        for name, tool in tools.items():
            assert tool.output_schema is None, f"{name} advertises an output schema"
            assert tool.title, f"{name} has no title"
            assert tool.annotations is not None
            assert tool.annotations.read_only_hint or tool.annotations.destructive_hint is False, name
            assert tool.description
            assert len(tool.description.splitlines()) <= 5
            assert "session_token" not in tool.input_schema.get("properties", {})
        forbidden = sorted(set(TOOLS) - set(tools) - {"authenticate"})
        for name in forbidden:
            roles, _ = MAY_CALL[name]
            expected = "unauthorized" if role not in roles else "wrong_session_purpose"
            assert await agent.refused(name, **CHAT_ONLY) == expected, name


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_team_of_three_works_through_every_ipc_tool(team: Team, mode: str) -> None:
    async with (
        team.server("owner", mode=mode) as owner,
        team.server("admin", mode=mode) as admin,
        team.server("worker-a", mode=mode) as worker,
    ):
        task_id = await _hand_work_down(owner, admin, worker)
        await _report_back(admin, worker, task_id)
        await _answer_the_owner(owner, admin)
        for agent in (owner, admin, worker):
            told = await agent.call("get_notifications")
            assert told["notifications"] == []
            assert (await agent.call("logout"))["message"]
            assert "send_message" in await agent.tools()


async def _hand_work_down(owner: Agent, admin: Agent, worker: Agent) -> str:
    """Registers, assigns, and reads; returns the worker's task."""
    registered = await admin.call("register_agent_to_ipc", agent_id="worker-c")
    assert registered == {"success": True, "agent_id": "worker-c", "created": True, "notification": NO_NOTICE}
    assert (await admin.call("register_agent_to_ipc", agent_id="worker-c"))["created"] is False
    listed = {item["id"]: item for item in (await worker.call("list_agents"))["agents"]}
    assert set(listed) == {"owner", "admin", "worker-a", "worker-b", "worker-c"}
    assert listed["worker-c"]["parent_id"] == "admin"
    assert (listed["admin"]["alive"], listed["worker-c"]["alive"]) == (True, False)
    waiting = await owner.call("send_task", agent_id="admin", title="全体", content="build it")
    assert waiting["waiting"] is True
    assert await owner.refused("list_agents") == "owner_waiting"
    assert (await admin.call("get_unread_count"))["unread_count"] == 1
    (assignment,) = (await admin.call("read_messages"))["messages"]
    assert (assignment["message_type"], assignment["content"]) == ("task_assign", "build it")
    given = await admin.call("send_task", agent_id="worker-a", title="part", content="do it", priority="high")
    assert given["waiting"] is False
    (mine,) = (await worker.call("read_messages", agent_id="worker-a"))["messages"]
    assert (mine["sender_id"], mine["receiver_id"], mine["priority"]) == ("admin", "worker-a", "high")
    assert mine["metadata"]["task_id"] == given["task_id"]
    return str(given["task_id"])


async def _report_back(admin: Agent, worker: Agent, task_id: str) -> None:
    checklist = [{"text": "one", "completed": True}, {"text": "two", "completed": False}]
    progress = await worker.call("report_task_progress", task_id=task_id, progress=50, checklist=checklist)
    assert progress["progress"] == 50
    read = await admin.call("read_messages")
    assert read["dashboard_updated"] is True
    (half,) = [task for task in (await admin.call("get_dashboard"))["dashboard"]["tasks"] if task["task_id"] == task_id]
    assert (half["status"], half["progress"]) == ("in_progress", 50)
    done = await worker.call("report_task_completion", task_id=task_id, status="completed", message="done")
    assert (await worker.call("get_message_status", message_id=done["message_id"]))["state"] == "stored"
    assert (await admin.call("read_messages"))["dashboard_updated"] is True
    assert (await worker.call("get_message_status", message_id=done["message_id"]))["state"] == "read"
    assert await worker.refused("report_task_progress", task_id=task_id, progress=60) == "invalid_status_transition"


async def _answer_the_owner(owner: Agent, admin: Agent) -> None:
    assert (await owner.call("get_unread_count"))["unread_count"] == 0
    assert await owner.refused("get_unread_count") == "polling_blocked"
    await admin.call("send_message", receiver_id="owner", content="finished", message_type="response", subject="終")
    (answer,) = (await owner.call("read_messages"))["messages"]
    assert (answer["content"], answer["subject"]) == ("finished", "終")
    unlocked = await owner.call("unlock_owner_wait", reason="to see what it says")
    assert (unlocked["waiting_before"], unlocked["waiting_after"]) == (False, False)
    broadcast = await owner.call("send_message", content="thanks", message_type="broadcast")
    assert sorted(broadcast["receiver_ids"]) == ["admin", "worker-a", "worker-b", "worker-c"]
    status = await owner.call("get_message_status", message_id=broadcast["message_id"])
    assert {receiver["state"] for receiver in status["receivers"].values()} == {"stored"}


@pytest.mark.parametrize("purpose", ["task", "chat"])
async def test_every_tool_answers_calls_without_and_with_unknown_arguments_in_the_same_envelope(
    team: Team, purpose: str
) -> None:
    async with team.server("admin", "--purpose", purpose) as agent:
        for name in sorted(set(await agent.tools()) - {"logout"}):
            await agent.answer(name)
            assert await agent.refused(name, no_such_argument=1) == "invalid_arguments", name


INVALID: list[tuple[str, dict[str, Any], str]] = [
    ("send_message", {"receiver_id": "nobody", "content": "x"}, "agent_not_found"),
    ("send_message", {"receiver_id": "../x", "content": "x"}, "invalid_id"),
    ("send_message", {"receiver_id": "a/b", "content": "x"}, "invalid_id"),
    ("send_message", {"receiver_id": ".", "content": "x"}, "invalid_id"),
    ("send_message", {"receiver_id": "..", "content": "x"}, "invalid_id"),
    ("send_message", {"receiver_id": "", "content": "x"}, "invalid_id"),
    ("send_message", {"receiver_id": "a" * 65, "content": "x"}, "invalid_id"),
    ("send_message", {"receiver_id": "worker-a\n", "content": "x"}, "invalid_id"),
    ("send_message", {"receiver_id": "worker-a", "content": "x" * ((1 << 20) + 1)}, "content_too_large"),
    ("send_message", {"receiver_id": "worker-a", "content": "x", "priority": "loud"}, "invalid_arguments"),
    ("send_message", {"receiver_id": "worker-a", "content": "x", "message_type": "poem"}, "invalid_arguments"),
    ("send_message", {"receiver_id": "worker-a", "content": "x", "sender_id": "owner"}, "invalid_arguments"),
    ("send_message", {"receiver_id": "worker-a"}, "invalid_arguments"),
    ("send_message", {"receiver_id": "worker-a", "content": 5}, "invalid_arguments"),
    ("send_message", {"receiver_id": "admin", "content": "to myself"}, "invalid_arguments"),
    ("read_messages", {"agent_id": "worker-a"}, "unauthorized"),
    ("read_messages", {"agent_id": "../worker-a"}, "invalid_id"),
    ("read_messages", {"limit": 0}, "invalid_arguments"),
    ("read_messages", {"message_id": "../../agents"}, "message_not_found"),
    ("get_unread_count", {"agent_id": "owner"}, "unauthorized"),
    ("get_message_status", {"message_id": "no-such-message"}, "message_not_found"),
    ("send_task", {"agent_id": "owner", "title": "t", "content": "c"}, "unauthorized"),
    ("send_task", {"agent_id": "worker-a/..", "title": "t", "content": "c"}, "invalid_id"),
    ("send_task", {"agent_id": "worker-a", "title": " ", "content": "c"}, "invalid_arguments"),
    ("report_task_progress", {"task_id": "tsk_0123456789ab"}, "task_not_found"),
    ("report_task_progress", {"task_id": "../tsk_0123456789ab"}, "invalid_id"),
    ("register_agent_to_ipc", {"agent_id": "a/b"}, "invalid_id"),
    ("register_agent_to_ipc", {"agent_id": "boss", "role": "owner"}, "unauthorized"),
    ("register_agent_to_ipc", {"agent_id": "new", "role": "king"}, "invalid_arguments"),
]


async def test_what_cannot_be_meant_is_refused_by_its_code_and_writes_nothing(team: Team) -> None:
    async with team.server("admin") as admin:
        before = _files(team)
        for tool, arguments, code in INVALID:
            assert await admin.refused(tool, **arguments) == code, (tool, str(arguments)[:80])
        assert _files(team) == before


def _files(team: Team) -> set[str]:
    """Every file but locks and scratch files, and every mailbox; a server makes other directories to watch them."""
    return {
        str(path.relative_to(team.base))
        for path in team.base.rglob("*")
        if not {".locks", ".tmp", "home"} & set(path.parts) and (path.is_file() or path.parent.name == "ipc")
    }
