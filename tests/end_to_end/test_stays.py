"""Agents that do what our sentences say, in real windows: one that stays works on task after task, whoever watches."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.end_to_end.chat_support import task_of
from tests.end_to_end.support import Team, Terminal, wait_until
from tests.end_to_end.test_supervisor import supervisor_pid, windows

pytestmark = [pytest.mark.tmux, pytest.mark.slow]

LITERAL = f"{{python}} {Path(__file__).with_name('literal.py')}"
LITERAL_TEAM = f"""\
session: demo
language: en
agents:
  - {{id: owner, role: owner, type: human}}
  - {{id: admin, role: admin, parent: owner}}
  - {{id: worker-a, parent: admin, host: plain, command: "{LITERAL} {{prompt}}"}}
  - {{id: worker-b, parent: admin, host: plain, command: "{LITERAL} leaves {{prompt}}"}}
  - {{id: worker-c, parent: admin, host: plain, command: "{LITERAL} {{prompt}}", spawn: on_demand}}
"""
UP = ("up", "--no-watch", "--no-attach")


@pytest.fixture
def team(bare: Team, terminal: Terminal) -> Iterator[Team]:
    team = bare.make(LITERAL_TEAM)
    assert team.ask(*UP, "--socket", terminal.socket)["ready"]
    yield team
    assert team.run("down").code == 0


def works(team: Team, *agents: str) -> None:
    """Gives a task to each agent by the command line, and waits until it is done."""
    tasks = [team.ask("task", "add", f"for {name}", "--assignee", name, "--as", "admin")["task_id"] for name in agents]
    wait_until(lambda: all(task_of(team, task_id).status == "done" for task_id in tasks), f"{tasks} are done")
    assert all(not team.services.derived_notices.waiting(name) for name in agents)


def states(team: Team, agent_id: str) -> list[str]:
    return [item.state for item in team.services.workspace.sessions.all(agent_id)]


def test_agents_in_windows_that_stay_or_are_opened_for_a_task_work_on_one_after_another(
    team: Team, terminal: Terminal
) -> None:
    for _ in range(2):
        works(team, "worker-a", "worker-b")
        wait_until(lambda: set(states(team, "worker-b")) == {"ended"}, "worker-b has logged out")
    assert states(team, "worker-a") == ["active"], "nothing told it to log out"
    assert len(states(team, "worker-b")) >= 2
    assert {item["id"]: item["alive"] for item in team.ask("agent", "list")["agents"]}["worker-b"] is True
    again = team.ask(*UP, "--socket", terminal.socket)
    assert {item["agent_id"]: item["state"] for item in again["agents"]}["worker-b"] == "ready"
    assert team.ask("attention")["items"] == []
    assert windows(terminal) == ["supervisor", "worker-a", "worker-b"]
    for _ in range(2):
        works(team, "worker-c")
        wait_until(lambda: "worker-c" not in windows(terminal), "the window that was opened for one task is closed")
    assert states(team, "worker-c") == ["ended", "ended"]
    os.kill(supervisor_pid(terminal), signal.SIGKILL)
    works(team, "worker-a", "worker-b")


def test_a_chat_window_that_was_opened_for_a_conversation_is_closed_after_its_end(
    team: Team, terminal: Terminal
) -> None:
    own = team.services.agents.get("worker-a").pane_id
    assert own is not None
    begun = team.ask("conversation", "start", "worker-a", "are you there?", "--as", "owner")
    talk = str(begun["conversation_id"])
    wait_until(lambda: "worker-a-chat" in windows(terminal), "a window for the chat session")
    wait_until(lambda: team.services.conversations.get(talk).status == "active", "it has read the message")
    assert team.run("conversation", "end", talk, "--as", "owner").code == 0
    wait_until(lambda: "worker-a-chat" not in windows(terminal), "it was told to leave, and has logged out")
    assert team.unread("worker-a") == []
    rings = team.services.workspace.delivery_log("worker-a").rings()
    assert own not in {entry.get("pane") for entry in rings}, "nobody rang its task session"
