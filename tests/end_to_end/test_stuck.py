"""An agent falls silent with a task in progress: under a real supervisor its superior is told once, until it acts."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator

import pytest

from multi_agent_mcp.domain.notification import Notification
from tests.end_to_end.support import UP, Team, Terminal, wait_until
from tests.end_to_end.test_supervisor import supervisor_pid, windows

pytestmark = [pytest.mark.tmux, pytest.mark.slow]

HASTY = """\
session: demo
language: en
limits: {stuck_minutes: 0.05}
agents:
  - {id: owner, role: owner, type: human}
  - {id: admin, role: admin, parent: owner}
  - {id: worker-a, role: worker, parent: admin}
"""


@pytest.fixture
def team(bare: Team) -> Team:
    """A team in which an agent counts as stuck after three seconds of silence."""
    return bare.make(HASTY)


@pytest.fixture
def up(team: Team, terminal: Terminal) -> Iterator[None]:
    team.ask(*UP, "--socket", terminal.socket)
    yield
    assert team.run("down").code == 0


def told(team: Team) -> list[Notification]:
    """The admin's unread notifications about stuck agents."""
    unread = [notice for _, notice in team.services.workspace.notices("admin").unread()]
    return [notice for notice in unread if notice.action == "agent_stuck"]


@pytest.mark.usefixtures("up")
def test_a_silent_agent_is_told_of_once_whoever_supervises_and_no_more_when_it_acts(
    team: Team, terminal: Terminal
) -> None:
    services = team.services
    session = services.sessions.open("worker-a", "task")  # it runs as long as this test, and calls when we say so
    task_id = team.ask("task", "add", "Build", "--assignee", "worker-a", "--as", "admin")["task_id"]
    services.task_changes.set_status(services.agents.get("worker-a"), task_id, "in_progress")
    wait_until(lambda: told(team), "the admin is told")
    (first,) = told(team)
    assert (first.task_id, first.sender_id) == (task_id, "worker-a")
    os.kill(supervisor_pid(terminal), signal.SIGKILL)
    wait_until(lambda: windows(terminal) == [], "the supervisor is gone")
    team.ask(*UP, "--socket", terminal.socket)
    looked = services.workspace.pane_looks.path
    looked.unlink()
    wait_until(looked.exists, "another supervisor looks after the agents")
    assert [notice.id for notice in told(team)] == [first.id]
    seen = {row["id"]: row["stuck"] for row in team.ask("watch")["agents"]}
    assert seen == {"owner": None, "admin": None, "worker-a": "silent"}
    doctor = json.loads(team.run("doctor", "--json").stdout)
    assert [item["subject"] for item in doctor["findings"] if item["check"] == "stuck"] == ["worker-a"]
    services.task_changes.set_status(services.agents.get("worker-a"), task_id, "done")
    session.touch()
    wait_until(lambda: told(team) == [], "its notification is read by itself")
