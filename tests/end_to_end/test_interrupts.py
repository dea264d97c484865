"""Interrupts as the middleware sends them to an agent, over real stdio (docs/protocol.md, Interrupts)."""

from __future__ import annotations

import contextlib
import signal
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp.shared.exceptions import MCPError

from tests.end_to_end.support import INTERRUPTED, NO_NOTICE, NOTICE, Agent, Team, envelope

pytestmark = pytest.mark.anyio

BLOCKED: dict[str, str] = {
    "type": "interrupt",
    "action": "blocked",
    "message": "タスクのステータスがblockedに変更されました",
    "instruction": "作業を中断し、report_completedをresult='blocked'で呼び出してください",
}


def _drop_interrupt(team: Team, agent_id: str, name: str = "stop.md", **header: str) -> None:
    team.notify(agent_id, name, **{**BLOCKED, **header})


async def _interrupted(agent: Agent, tool: str, **arguments: Any) -> None:
    """The call must have been replaced, before it ran."""
    _is_interrupt(await agent.raw(tool, **arguments), executed=False)


def _is_interrupt(result: types.CallToolResult, *, executed: bool) -> None:
    (content,) = result.content
    assert isinstance(content, types.TextContent)
    assert content.text == INTERRUPTED
    assert result.structured_content is None
    assert not result.is_error
    assert (result.meta or {})["multi-agent-mcp/executed"] is executed


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_an_interrupt_replaces_every_answer_before_the_call_until_it_is_read(team: Team, mode: str) -> None:
    team.post("worker-a", "for you")
    async with team.server("worker-a", mode=mode) as worker:
        await worker.call("list_agents")
        _drop_interrupt(team, "worker-a")
        await _interrupted(worker, "send_message", receiver_id="admin", content="never sent")
        await _interrupted(worker, "read_messages")
        await _interrupted(worker, "send_message", receiver_id="nobody", content="not even refused")
        await _interrupted(worker, "get_unread_count", session_token="wrong")
        assert team.mailbox("admin") == []
        assert len(team.unread("worker-a")) == 1
        peeked = await worker.call("get_notifications", mark_as_read=False)
        await _interrupted(worker, "list_agents")
        told = await worker.call("get_notifications")
        assert told["notifications"] == peeked["notifications"]
        (notice,) = told["notifications"]
        assert {key: notice[key] for key in BLOCKED} == BLOCKED
        assert told["notification"] == NO_NOTICE
        assert (await worker.call("get_notifications"))["notifications"] == []
        assert [message["content"] for message in (await worker.call("read_messages"))["messages"]] == ["for you"]


async def test_an_interrupt_survives_the_server_and_is_told_to_the_next_one(team: Team) -> None:
    async with team.server("worker-a") as worker:
        _drop_interrupt(team, "worker-a")
        await _interrupted(worker, "list_agents")
        worker.kill()
        await worker.gone()
    async with team.server("worker-a") as worker:
        await _interrupted(worker, "list_agents")
        assert len((await worker.call("get_notifications"))["notifications"]) == 1
        await worker.call("list_agents")


async def test_an_interrupt_ends_a_wait_at_once_and_says_that_the_call_had_begun(team: Team) -> None:
    results: list[types.CallToolResult] = []

    async def wait(agent: Agent) -> None:
        results.append(await agent.raw("get_next_action", timeout_seconds=600))

    async with team.server("worker-a") as worker:
        async with anyio.create_task_group() as group:
            group.start_soon(wait, worker)
            await worker.call("list_agents")  # answered while the other call waits
            _drop_interrupt(team, "worker-a")
        _is_interrupt(results[0], executed=True)
        await _interrupted(worker, "get_next_action", timeout_seconds=600)
        await worker.call("get_notifications")
        async with anyio.create_task_group() as group:
            group.start_soon(wait, worker)
            await worker.call("list_agents")
            team.post("worker-a", "mail ends a wait, too")
        assert envelope(results[1])["action"] == "read_messages"


@pytest.mark.parametrize("number", [None, signal.SIGTERM])
async def test_a_server_ends_at_once_while_a_call_waits(team: Team, number: signal.Signals | None) -> None:
    async with team.server("worker-a") as worker, anyio.create_task_group() as group:
        group.start_soon(_wait_in_vain, worker)
        await worker.call("list_agents")
        if number is not None:
            worker.kill(number)
            await worker.gone()
        group.cancel_scope.cancel()
    assert team.services.sessions.live("worker-a") == []
    (session,) = team.services.workspace.sessions.all("worker-a")
    assert session.state == "ended"


async def _wait_in_vain(agent: Agent) -> None:
    with contextlib.suppress(MCPError):
        await agent.raw("get_next_action", timeout_seconds=600)


async def test_logout_is_not_interrupted(team: Team) -> None:
    async with team.server("worker-a") as worker:
        _drop_interrupt(team, "worker-a")
        await _interrupted(worker, "list_agents")
        await worker.call("logout")
        await worker.call("authenticate", agent_id="worker-a", passkey=team.key("worker-a"))
        await _interrupted(worker, "list_agents")


async def test_an_interrupt_for_another_agent_or_purpose_is_not_told(team: Team) -> None:
    async with team.server("worker-a", "--purpose", "chat") as chat:
        _drop_interrupt(team, "worker-b")
        _drop_interrupt(team, "worker-a", target_purpose="task")
        assert (await chat.call("list_agents"))["notification"] == NO_NOTICE
        _drop_interrupt(team, "worker-a", "both.md", target_purpose="both")
        await _interrupted(chat, "list_agents")
        (notice,) = (await chat.call("get_notifications"))["notifications"]
        assert notice["id"] == "both"


async def test_an_unread_notification_is_announced_in_every_answer_also_in_errors(team: Team) -> None:
    async with team.server("worker-a") as worker:
        assert (await worker.call("list_agents"))["notification"] == NO_NOTICE
        team.notify("worker-a", "one.md", type="status_change", message="first", created_at="2026-01-01T00:00:00Z")
        team.notify("worker-a", "two.md", type="message", message="second", created_at="2026-01-02T00:00:00Z")
        assert (await worker.call("list_agents"))["notification"] == NOTICE
        assert (await worker.answer("send_message", receiver_id="nobody", content="x"))["notification"] == NOTICE
        assert (await worker.answer("send_message", nonsense=True))["notification"] == NOTICE
        assert "_chat_notification" not in await worker.call("list_agents")
        told = await worker.call("get_notifications")
        assert [notice["message"] for notice in told["notifications"]] == ["second", "first"]
        assert (await worker.call("list_agents"))["notification"] == NO_NOTICE


async def test_a_task_session_sees_what_its_chat_session_says_beside_every_answer(team: Team) -> None:
    told = {
        "type": "chat_session_notification",
        "conversation_id": "cnv_0123456789ab",
        "task_id": "tsk_0123456789ab",
        "message": "the user answered",
        "instruction": "look at the conversation",
    }
    async with (
        team.server("worker-a", "--purpose", "task") as task,
        team.server("worker-a", "--purpose", "chat") as chat,
    ):
        team.notify("worker-a", "chat.md", target_purpose="task", **told)
        answer = await task.call("list_agents")
        assert answer["notification"] == NOTICE
        assert answer["_chat_notification"] == {
            "conversation_id": told["conversation_id"],
            "message": told["message"],
            "instruction": told["instruction"],
            "from": "self_chat_session",
            "related_task_id": told["task_id"],
        }
        beside_it = await chat.call("list_agents")
        assert beside_it["notification"] == NO_NOTICE
        assert "_chat_notification" not in beside_it
        assert (await chat.call("get_notifications"))["notifications"] == []
        assert len((await task.call("get_notifications"))["notifications"]) == 1
        assert "_chat_notification" not in await task.call("list_agents")


async def test_unread_mail_is_counted_beside_an_answer_but_is_no_notification(team: Team) -> None:
    async with team.server("worker-a") as worker:
        assert "unread_messages" not in await worker.call("list_agents")
        team.post("worker-a")
        team.post("worker-a")
        answer = await worker.call("list_agents")
        assert (answer["notification"], answer["unread_messages"]) == (NO_NOTICE, 2)
        await worker.call("read_messages", limit=1)
        assert (await worker.call("list_agents"))["unread_messages"] == 1


async def test_a_notification_nobody_can_read_is_set_aside_and_hides_no_other(team: Team) -> None:
    async with team.server("worker-a") as worker:
        team.drop(team.path / "notifications" / "worker-a" / "broken.md", "no front matter at all\n")
        _drop_interrupt(team, "worker-a")
        await _interrupted(worker, "list_agents")
        (notice,) = (await worker.call("get_notifications"))["notifications"]
        assert notice["action"] == "blocked"
        assert (team.path / "notifications" / "worker-a" / "quarantine" / "broken.md").is_file()
