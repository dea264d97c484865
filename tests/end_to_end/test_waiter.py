"""The waiter that a host keeps in the background, and a server's ties to its host
(docs/protocol.md, Waiter, Host life cycle)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

import pytest
from mcp_types import RequestParamsMeta

from multi_agent_mcp.cli.for_hosts.hook import WAKE
from multi_agent_mcp.domain.times import now
from multi_agent_mcp.hooks.waiter import CONNECTED_AFTER
from multi_agent_mcp.system.process import started_at
from tests.end_to_end.support import COMMAND, TEAM, Team, eventually, line, wait_until

HOST = """\
import subprocess, sys, time
child = subprocess.Popen(sys.argv[1:])
time.sleep(600)
"""

CLAUDE_READS = 2048
"""The length at which Claude Code cuts a server's instructions."""


@contextmanager
def waiter(team: Team, *before: str, event: str = "") -> Iterator[subprocess.Popen[str]]:
    """A waiter that is armed, as the test's own child or behind what comes `before` it. `event` is its input."""
    said = team.base / "event.json"
    said.write_text(event, encoding="ascii")
    where = ["--root", str(team.root), "--session", team.session, "--agent", "worker-a"]
    with said.open("rb") as stdin:
        process = subprocess.Popen(
            [*before, *COMMAND, "hook", "--wait", *where],
            env=team.env,
            stdin=stdin,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            encoding="utf-8",
        )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def armed(team: Team) -> int | None:
    """The process id of the waiter that is armed."""
    try:
        return int((team.path / ".hooks" / "worker-a.armed").read_text(encoding="ascii"))
    except FileNotFoundError:
        return None


def test_the_waiter_wakes_on_new_mail_with_the_doorbells_line_and_is_armed_until_then(team: Team) -> None:
    def why_not() -> str | None:
        team.services.workspace.registry.update("worker-a", host="claude")
        (hook,) = (one for one in team.services.channels(team.services.agents.get("worker-a")) if one.name == "hook")
        return hook.reason

    assert why_not() == "no_hook"
    with waiter(team) as process:  # as the files of `host-config claude`, and of `up`, have it started
        assert wait_until(lambda: armed(team), "it is armed") == process.pid
        assert why_not() is None
        team.send("worker-b", "for somebody else")
        team.send("worker-a")
        _, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (2, f"{line()}\n")
    assert armed(team) is None


def test_what_the_waiter_rang_about_is_in_the_delivery_log_once_and_is_not_rung_a_second_time(team: Team) -> None:
    team.services.workspace.registry.update("worker-a", host="claude")
    with waiter(team) as process:
        wait_until(lambda: armed(team), "it is armed")
        sent = team.send("worker-a")["message_id"]
        assert process.wait(timeout=60) == 2
        with waiter(team):
            wait_until(lambda: armed(team), "another is armed")
            (message,) = team.unread("worker-a")
            assert message.id == sent
            steps = team.services.tracking.steps(message)
            assert [(step["state"], step.get("reason")) for step in steps] == [("rung", "hook")]
            assert team.delivery("worker-a") == ("stored", "doorbell_outstanding")


@pytest.mark.anyio
async def test_a_session_that_begins_is_woken_only_when_its_server_has_had_time_to_be_connected(team: Team) -> None:
    team.post("worker-a")
    async with team.server("worker-a"):
        since = team.services.sessions.alive_since("worker-a")
        with waiter(team, event='{"hook_event_name": "SessionStart"}') as process:
            assert await eventually(process.poll, "the waiter wakes the agent") == WAKE
    assert since is not None
    assert now() - since >= CONNECTED_AFTER


def test_one_waiter_of_a_host_is_enough(team: Team) -> None:
    with waiter(team) as first:
        wait_until(lambda: armed(team), "the first is armed")
        with waiter(team) as second:
            assert second.wait(timeout=60) == 0
        assert armed(team) == first.pid
        first.send_signal(signal.SIGTERM)
        assert first.wait(timeout=60) == 0
    assert armed(team) is None


def test_the_waiter_dies_with_its_host_though_a_shell_is_between_and_another_hosts_takes_over(team: Team) -> None:
    host = (sys.executable, "-c", HOST, "sh", "-c", '"$@"; exit $?', "sh")
    with waiter(team, *host) as first_host:
        first = wait_until(lambda: armed(team), "the first is armed") or 0
        assert first not in (0, first_host.pid)
        with waiter(team) as second:
            first_host.kill()
            wait_until(lambda: started_at(first) is None, "the first ends")
            wait_until(lambda: armed(team) == second.pid, "the second takes over")


def test_a_server_ends_when_its_host_is_gone_though_its_standard_input_stays_open(team: Team) -> None:
    reading, writing = os.pipe()
    command = [*COMMAND, "serve", "--root", str(team.root), "--session", team.session, "--agent", "worker-a"]
    host = subprocess.Popen([sys.executable, "-c", HOST, *command], env=team.env, stdin=reading)
    os.close(reading)
    try:
        (session,) = wait_until(lambda: team.services.sessions.live("worker-a"), "the server runs")
        host.kill()
        host.wait()
        wait_until(lambda: started_at(session.pid) is None, "the server ends")
        assert team.services.workspace.sessions.get(session.id).state == "ended"
    finally:
        os.close(writing)


@pytest.mark.anyio
async def test_a_server_notes_the_thread_that_codex_says_with_a_call(team: Team) -> None:
    async with team.server("worker-a") as worker:
        for thread in ("t-1", "t-1", "t-2"):
            await worker.client.call_tool("get_unread_count", {}, meta=cast("RequestParamsMeta", {"threadId": thread}))
            assert team.services.agents.get("worker-a").extra["codex_thread_id"] == thread
        await worker.call("get_unread_count")
        assert team.services.agents.get("worker-a").extra["codex_thread_id"] == "t-2"
        async with team.server("worker-a"):
            assert team.services.agents.get("worker-a").extra["codex_thread_id"] == "t-2"
    async with team.server("worker-a"):  # Codex was started again: a line for the old thread would reach nobody
        assert team.services.agents.get("worker-a").extra["codex_thread_id"] is None


@pytest.mark.anyio
@pytest.mark.parametrize(("language", "words"), [("ja", ("エージェント", "割り込み")), ("en", ("agent", "interrupt"))])
async def test_a_server_says_what_an_ipc_line_is_in_the_language_of_its_session(
    bare: Team, language: str, words: tuple[str, ...]
) -> None:
    team = bare.make(f"language: {language}\n{TEAM}")
    async with team.server("worker-a", mode="legacy") as worker:
        instructions = worker.client.instructions or ""
        assert len(instructions.encode()) <= CLAUDE_READS
        for word in ("[IPC]", "read_messages", "get_notifications", "get_next_action", "report_completed", *words):
            assert word in instructions


@pytest.mark.anyio
async def test_a_server_says_which_tools_an_agent_always_needs(team: Team) -> None:
    async with team.server("worker-a", mode="legacy") as worker:
        capabilities = worker.client.server_capabilities
        assert capabilities is not None
        assert capabilities.tools is not None
        assert capabilities.tools.list_changed
        tools = await worker.tools()
        always = {name for name, tool in tools.items() if (tool.meta or {}).get("anthropic/alwaysLoad")}
        assert {"read_messages", "send_message", "get_notifications", "report_completed"} <= always
        assert len(always) < len(tools) / 2
        read_only = {name for name, tool in tools.items() if tool.annotations and tool.annotations.read_only_hint}
        assert {"list_agents", "get_message_status", "get_my_tasks"} <= read_only
        assert not read_only & {"read_messages", "get_notifications", "send_message", "get_next_action"}
