"""The identity of a server process and its proof (docs/protocol.md, Identity)."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import mcp_types as types
import pytest
from mcp.client.session import IncomingMessage
from mcp.server.subscriptions import ToolsListChanged

from tests.end_to_end.chat_support import new_task
from tests.end_to_end.support import Agent, Team, eventually
from tests.end_to_end.wire import Wire, call, wire, wire_to_later
from tests.soak.lives import Died

pytestmark = pytest.mark.anyio


async def test_an_unbound_server_offers_only_authenticate_and_tells_when_that_changes(team: Team) -> None:
    told: list[str] = []

    async def listen(message: IncomingMessage) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            told.append(message.method)

    async with team.server(None, mode="legacy", on_message=listen) as agent:
        await _only_authenticate(agent)
        answer = await agent.call("authenticate", agent_id="worker-a", passkey=team.key("worker-a"))
        assert (answer["agent_id"], answer["role"], answer["purpose"]) == ("worker-a", "worker", "task")
        assert answer["task_id"] is None
        assert answer["expires_at"].endswith("Z")
        await eventually(lambda: len(told) == 1, "list_changed after authenticate")
        assert "send_message" in await agent.tools()
        assert "authenticate" not in await agent.tools()
        assert await agent.refused("authenticate", agent_id="admin", passkey=team.key("admin")) == "invalid_session"
        await agent.call("logout")
        await eventually(lambda: len(told) == 2, "list_changed after logout")
        await _only_authenticate(agent)
        again = await agent.call("authenticate", agent_id="admin", passkey=team.key("admin"))
        assert again["role"] == "admin"
        assert again["session_token"] != answer["session_token"]
        assert "send_task" in await agent.tools()


async def test_a_client_of_the_new_era_hears_of_the_change_on_its_subscription(team: Team) -> None:
    async with (
        team.server(None) as agent,
        agent.client.listen(tools_list_changed=True) as subscription,
    ):
        await agent.call("authenticate", agent_id="worker-a", passkey=team.key("worker-a"))
        assert isinstance(await anext(aiter(subscription)), ToolsListChanged)
        assert "send_message" in await agent.tools()


async def _only_authenticate(agent: Agent) -> None:
    assert set(await agent.tools()) == {"authenticate"}
    for tool in ("send_message", "read_messages", "logout", "get_notifications"):
        assert await agent.refused(tool) == "invalid_session"


async def test_an_unbound_server_takes_no_wrong_key_and_no_strange_id(team: Team) -> None:
    key = team.key("worker-a")
    async with team.server(None) as agent:
        for agent_id, passkey, code in (
            ("worker-a", "wrong", "invalid_session"),
            ("worker-a", "", "invalid_session"),
            ("worker-b", key, "invalid_session"),
            ("nobody", key, "agent_not_found"),
            ("../worker-a", key, "invalid_id"),
            ("", key, "invalid_id"),
        ):
            assert await agent.refused("authenticate", agent_id=agent_id, passkey=passkey) == code
        assert await agent.refused("authenticate") == "invalid_arguments"
        await _only_authenticate(agent)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_bound_server_opens_a_new_session_with_the_call_after_a_logout(team: Team, mode: str) -> None:
    task = new_task(team)
    async with team.server("worker-a", mode=mode) as agent:
        await agent.call("get_next_action")
        assert "get_next_action" in (await agent.call("logout"))["message"]  # its task goes on
        (ended,) = team.services.workspace.sessions.all("worker-a")
        assert (ended.state, team.services.sessions.live("worker-a")) == ("ended", [])
        assert team.services.sessions.alive("worker-a")
        assert "get_next_action" in await agent.tools()
        action = await agent.call("get_next_action")
        (begun,) = team.services.sessions.live("worker-a")
        assert (begun.id != ended.id, begun.task_id, action["action"]) == (True, task.id, "work")
        (execution,) = team.services.workspace.executions.open("worker-a")
        assert execution.session_id == begun.id
    assert not team.services.sessions.alive("worker-a")


async def test_a_bound_server_takes_no_other_agents_key_even_after_logout(team: Team) -> None:
    async with team.server("worker-a") as agent:
        await agent.call("logout")
        assert await agent.refused("authenticate", agent_id="admin", passkey=team.key("admin")) == "invalid_session"
        await agent.call("authenticate", agent_id="worker-a", passkey=team.key("worker-a"))
        assert (await agent.call("get_unread_count"))["agent_id"] == "worker-a"


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_session_token_is_optional_but_must_be_the_live_one(team: Team, mode: str) -> None:
    async with team.server(None, mode=mode) as agent:
        bound = await agent.call("authenticate", agent_id="worker-a", passkey=team.key("worker-a"))
        token = bound["session_token"]
        for tool in ("get_unread_count", "read_messages", "list_agents", "get_notifications"):
            await agent.call(tool)
            await agent.call(tool, session_token=token)
            for wrong in ("", "wrong", token + "x", None, 5):
                assert await agent.refused(tool, session_token=wrong) == "invalid_session"
        await agent.call("logout", session_token=token)
        again = await agent.call("authenticate", agent_id="worker-a", passkey=team.key("worker-a"))
        assert await agent.refused("get_unread_count", session_token=token) == "invalid_session"
        await agent.call("get_unread_count", session_token=again["session_token"])


async def test_a_server_is_bound_by_its_environment_alone(team: Team) -> None:
    env = {
        "MULTI_AGENT_MCP_AGENT": "worker-a",
        "MULTI_AGENT_MCP_PURPOSE": "chat",
        "MULTI_AGENT_MCP_PASSKEY": team.key("worker-a"),
    }
    (team.path / "secrets" / "worker-a.key").unlink()
    async with team.server(None, env=env) as agent:
        assert (await agent.call("get_unread_count"))["agent_id"] == "worker-a"
        (session,) = team.services.sessions.live("worker-a")
        assert session.purpose == "chat"


def _refused_to_start(team: Team, *options: str, **env: str) -> str:
    given = {f"MULTI_AGENT_MCP_{name.upper()}": value for name, value in env.items()}
    ran = team.run("serve", *options, env={"MULTI_AGENT_MCP_SESSION": team.session, **given})
    assert ran.code == 2
    assert ran.stdout == ""
    sentence = ran.stderr.strip()
    assert "\n" not in sentence
    return sentence


def test_serve_refuses_to_start_in_one_sentence(team: Team) -> None:
    assert "invalid_session" in _refused_to_start(team, "--agent", "worker-a", passkey="wrong")
    assert "invalid_session" in _refused_to_start(team, "--agent", "worker-a", passkey="")
    assert "agent_not_found" in _refused_to_start(team, "--agent", "nobody")
    assert "invalid_id" in _refused_to_start(team, "--agent", "../worker-a")
    assert "invalid_id" in _refused_to_start(team, agent="a/b")
    assert "invalid_arguments" in _refused_to_start(team, "--agent", "worker-a", "--purpose", "fun")
    assert "invalid_session" in _refused_to_start(team, "--session", "no-such", "--agent", "worker-a")
    assert "invalid_id" in _refused_to_start(team, "--session", "../demo", "--agent", "worker-a")
    (team.path / "secrets" / "worker-a.key").unlink()
    assert "MULTI_AGENT_MCP_PASSKEY" in _refused_to_start(team, "--agent", "worker-a")
    (team.path / "secrets" / "worker-a.key").write_bytes(b"\xff\xfe not a key\n")
    assert "invalid_session" in _refused_to_start(team, "--agent", "worker-a")


async def test_a_removed_agent_can_no_longer_be_served(team: Team) -> None:
    team.ask("agent", "remove", "worker-b")
    assert "agent_not_found" in _refused_to_start(team, "--agent", "worker-b")
    async with team.server("admin") as admin:
        assert await admin.refused("send_message", receiver_id="worker-b", content="x") == "agent_not_found"


def test_an_expired_session_ends_when_its_process_authenticates_again_and_its_mail_is_not_handed_out_twice(
    team: Team, tmp_path: Path
) -> None:
    clock = tmp_path / "clock"
    clock.write_text("0", encoding="ascii")
    team.post("worker-a", "once")
    with wire_to_later(team, clock) as host:
        assert host.call("authenticate", agent_id="worker-a", passkey=team.key("worker-a")).done
        assert _contents(host) == ["once"]
        clock.write_text("3601", encoding="ascii")
        assert host.call("read_messages").error == "invalid_session"
        assert host.call("authenticate", agent_id="worker-a", passkey=team.key("worker-a")).done
        assert _contents(host) == []
        host.end()
    ended = team.services.workspace.sessions.all("worker-a")
    assert sorted(session.state for session in ended) == ["ended", "expired"]
    assert all(session.ended_at is not None for session in ended)
    with wire(team) as host:
        assert _contents(host) == []


def _contents(host: Wire) -> list[str]:
    answer = host.call("read_messages").answer
    assert answer is not None
    return [message["content"] for message in answer["messages"]]


def _replace_key(team: Team, agent_id: str) -> None:
    """As docs/security.md says."""
    (team.path / "secrets" / f"{agent_id}.key").unlink()
    team.decide("agent", "remove", agent_id)
    team.decide("agent", "add", agent_id, "--role", "worker", "--parent", "admin")


def test_a_running_server_whose_agents_key_was_replaced_says_so_and_ends_and_has_signed_nothing(team: Team) -> None:
    why = team.services.texts("error.key_replaced", agent_id="worker-a")
    with wire(team, "worker-a") as host:
        host.say(call(1, "send_message", receiver_id="admin", content="before"))
        host.heard_until(1)
        _replace_key(team, "worker-a")
        host.say(call(2, "send_message", receiver_id="admin", content="after"))
        with suppress(Died):  # it may have noticed before it was called
            answer = host.hear()["result"]["structuredContent"]
            assert (answer["error"], answer["message"]) == ("invalid_session", why)
        host.gone()
    assert why in (team.base / "wire-1.stderr").read_text(encoding="utf-8")
    assert [message.content for message in team.mailbox("admin")] == ["before"]
    with wire(team, "worker-a") as host:
        host.say(call(1, "send_message", receiver_id="admin", content="by the new one"))
        host.heard_until(1)
    assert [
        message["content"] for message in team.ask("read", "admin")["messages"] if message.get("verified", True)
    ] == ["by the new one"]


def test_an_idle_server_whose_agents_key_was_replaced_ends_with_the_next_event(team: Team) -> None:
    with wire(team, "worker-a") as host:
        host.say(call(1, "get_unread_count"))
        host.heard_until(1)
        _replace_key(team, "worker-a")
        team.post("worker-a", "for the new one")
        host.gone()
    assert not team.services.sessions.alive("worker-a")


async def test_an_unbound_server_whose_agents_key_was_replaced_must_authenticate_again(team: Team) -> None:
    async with team.server(None) as agent:
        await agent.call("authenticate", agent_id="worker-a", passkey=team.key("worker-a"))
        _replace_key(team, "worker-a")
        assert await agent.refused("send_message", receiver_id="admin", content="x") == "invalid_session"
        await _only_authenticate(agent)
        await agent.call("authenticate", agent_id="worker-a", passkey=team.key("worker-a"))
        await agent.call("send_message", receiver_id="admin", content="again")
    assert [message.content for message in team.mailbox("admin")] == ["again"]
