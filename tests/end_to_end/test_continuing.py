"""The morning after: a team whose tmux server died goes on with its hosts' conversations
(docs/protocol.md, Continuing a conversation)."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from multi_agent_mcp.system.process import host_of, started_at
from tests.end_to_end.chat_support import new_task
from tests.end_to_end.support import UP, Team, Terminal, wait_until
from tests.end_to_end.test_up import SCREENS, made, panes
from tests.programs import PACKAGES

pytestmark = [pytest.mark.tmux]

HOST = Path(__file__).with_name("rememberer.py")


@pytest.fixture
def home(bare: Team) -> Path:
    """Where the host keeps its conversations."""
    kept = bare.base / "conversations"
    kept.mkdir()
    return kept


def host(base: Path, home: Path) -> str:
    """The command of a host named `claude` that keeps its conversations there."""
    program = base / "node_modules" / PACKAGES["claude"] / "claude"
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(f"#!{sys.executable}\n{HOST.read_text(encoding='utf-8')}", encoding="utf-8")
    program.chmod(0o755)
    found = re.search(r"cur=(\d+),(\d+)", (SCREENS / "claude" / "idle.meta.txt").read_text(encoding="utf-8"))
    assert found is not None
    # the words after the program's name come first, as with the real hosts' options
    wrapper = base / "bin" / "claude"
    wrapper.parent.mkdir(exist_ok=True)
    wrapper.write_text(f'#!/bin/sh\nexec {program} {home} {SCREENS}/claude/idle.txt {found[1]} {found[2]} "$@"\n')
    wrapper.chmod(0o755)
    return str(wrapper)


def begun(answer: dict[str, Any]) -> dict[str, tuple[bool, bool, str | None]]:
    agents = (item for item in answer["agents"] if not item["agent_id"].startswith("("))
    return {item["agent_id"]: (item["continued"], item["fresh"], item["why"]) for item in agents if item["pane_id"]}


def test_a_team_goes_on_after_its_tmux_server_died_and_says_of_everybody_how(
    bare: Team, terminal: Terminal, other_terminal: Terminal, home: Path
) -> None:
    team = made(bare, **dict.fromkeys("abcd", host(bare.base, home)))
    task = new_task(team, "the house", "a", by="owner")
    team.services.task_changes.start(team.services.agents.get("a"), task.id)
    up = ["up", "--no-watch", "--no-supervisor"]
    assert begun(team.ask(*up, "--socket", terminal.socket)) == dict.fromkeys("abcd", (False, True, "first"))
    terminal("kill-server")
    sessions = {item.agent_id: item.host_session for item in team.services.sessions.all(ended=True)}
    (home / str(sessions["d"])).unlink()
    team.services.agents.note("c", resume=False)
    answer = team.ask(*up, "--socket", other_terminal.socket)
    assert begun(answer) == {
        "a": (True, False, None),
        "b": (True, False, None),
        "c": (False, True, "team"),
        "d": (False, True, "refused"),
    }
    assert answer["ready"]
    lines = (home / str(sessions["a"])).read_text(encoding="utf-8").splitlines()
    assert lines[1].startswith("resume briefed"), "it holds a task"
    assert lines[1].endswith(team.services.texts("doorbell.begin")), "and is woken"
    assert team.services.texts("doorbell.begin") not in (home / str(sessions["b"])).read_text(encoding="utf-8")
    assert panes(other_terminal) == dict.fromkeys("abcd", "0")

    state = team.ask("restart", "b")["agents"][0]
    assert (state["continued"], state["host_session"]) == (True, sessions["b"])
    state = team.ask("restart", "b", "--fresh")["agents"][0]
    assert (state["continued"], state["why"]) == (False, "asked")
    shown = team.run("restart", "a").stdout.splitlines()
    assert "a: ready, goes on with its conversation" in shown


def test_a_conversation_that_the_host_did_not_refuse_is_kept_whatever_else_ends_it(
    bare: Team, terminal: Terminal, home: Path
) -> None:
    team = made(bare, a=host(bare.base, home))
    up = ["up", "--no-watch", "--no-supervisor", "--socket", terminal.socket]
    team.ask(*up)
    (kept,) = {item.host_session for item in team.services.sessions.all(ended=False)}
    (home / "broken").touch()
    ran = team.run("restart", "a", "--json")
    (state,) = ran.json["agents"]
    assert (ran.code, state["state"], state["continued"], state["why"]) == (1, "ended", True, None)
    assert "its conversation is kept" in state["note"]
    assert "Error: MCP server ipc is required and could not start" in state["last_lines"]
    (home / "broken").unlink()
    (again,) = team.ask("restart", "a")["agents"]
    assert (again["state"], again["continued"], again["host_session"]) == ("ready", True, kept)


DEAF = "import signal, subprocess, sys; signal.signal(signal.SIGHUP, signal.SIG_IGN); subprocess.run(sys.argv[1:])"


@pytest.mark.skipif(sys.platform != "linux", reason="whether a terminal is gone is told by /proc")
def test_down_ends_a_host_that_outlives_its_window(bare: Team, terminal: Terminal, home: Path) -> None:
    (home / "deaf").touch()
    team = made(bare, a=f"{sys.executable} -c '{DEAF}' {host(bare.base, home)}")
    team.ask("up", "--no-watch", "--no-supervisor", "--socket", terminal.socket)
    (session,) = team.services.sessions.all(ended=False)
    parent = host_of(session.pid)
    assert team.ask("down")["closed"] == ["a"]
    assert [pid for pid in (session.pid, parent) if started_at(pid) is not None] == []


@pytest.mark.parametrize("fresh", [[], ["--fresh"]])
def test_restart_ends_a_host_that_outlives_its_pane(
    bare: Team, terminal: Terminal, home: Path, fresh: list[str]
) -> None:
    (home / "deaf").touch()
    team = made(bare, a=f"{sys.executable} -c '{DEAF}' {host(bare.base, home)}")
    team.ask("up", "--no-watch", "--no-supervisor", "--socket", terminal.socket)
    (session,) = team.services.sessions.all(ended=False)
    parent = host_of(session.pid)
    team.ask("restart", "a", "--no-wait", *fresh)
    assert [pid for pid in (session.pid, parent) if started_at(pid) is not None] == []
    started = wait_until(lambda: team.services.sessions.running("a"), "its successor has begun")
    assert session.id not in [item.id for item in started]
    (home / "deaf").unlink()


def test_the_supervisor_continues_a_chat_and_begins_again_where_the_host_refuses(
    bare: Team, terminal: Terminal, home: Path
) -> None:
    team = made(bare, a=host(bare.base, home), b={"command": "cat", "host": "plain"})
    team.ask(*UP, "--no-wait", "--socket", terminal.socket)
    services = team.services

    def chats() -> list[str]:
        found = sorted(services.sessions.all(ended=True), key=lambda item: item.created_at)
        return [str(item.host_session) for item in found if item.purpose == "chat" and item.host_session]

    def talk(number: int) -> None:
        services.conversations.begin(services.agents.get("b"), services.agents.get("a"), f"hello {number}")
        wait_until(lambda: len(chats()) == number, f"chat session {number}")

    def crash() -> None:
        rows = terminal("list-panes", "-a", "-F", "#{pane_id} #{window_name}").splitlines()
        (pane,) = (row.split()[0] for row in rows if row.endswith(" a-chat"))
        terminal("kill-pane", "-t", pane)

    talk(1)
    crash()
    wait_until(lambda: len(chats()) == 2, "the chat session is back")
    first, second = chats()
    assert first == second
    (home / first).unlink()
    crash()
    wait_until(lambda: len(chats()) == 3, "a new conversation")
    assert chats()[2] != first
    team.ask("down")
