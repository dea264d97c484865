"""Absent people, over real processes: `notify_command`, and the process that rings again after the pause."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

import pytest

from multi_agent_mcp.services.turn.reading import Query
from multi_agent_mcp.services.validation import Draft
from multi_agent_mcp.system.process import is_alive
from tests.end_to_end.support import COMMAND, Pane, Team, Terminal, wait_until
from tests.web.support import Web

ONE = "[IPC] New message: request from admin"
TEAM = """\
session: demo
language: en
limits: {{doorbell_pause_seconds: 2, doorbell_pause_max_seconds: 2}}
notify_command: ["{program}", "publish", "{{line}}"]
agents: [{{id: owner, role: owner, type: human}}, {{id: admin, parent: owner}}]
"""


@pytest.fixture
def team(bare: Team) -> Team:
    """A team whose Owner is reached by a command."""
    return reached_by(bare, f'printf "%s\\n" "$*" >> {bare.base}/said')


def reached_by(bare: Team, script: str) -> Team:
    program = bare.base / "push"
    program.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    program.chmod(0o700)
    return bare.make(TEAM.format(program=program))


def said(team: Team) -> list[str]:
    """The arguments with which the Owner's command was run, one line per run."""
    path = team.base / "said"
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def wait_for(team: Team, expected: list[str]) -> None:
    """Waits until as many lines as expected have arrived; they are compared at the end, when excess ones would have
    arrived."""
    wait_until(lambda: len(said(team)) >= len(expected), "the Owner is rung when the pause is over")


def three_letters(team: Team) -> None:
    """Sends three messages within one pause, even on a busy machine; earlier mail is read."""
    services = team.services
    services.reading.read(services.agents.get("owner"), Query())
    for number in range(3):
        services.messages.send(services.agents.get("admin"), Draft(content=str(number), receiver_id="owner"))


@contextmanager
def in_pane(team: Team, terminal: Terminal, command: str, stands: Callable[[Pane], object]) -> Iterator[None]:
    """A command in a pane of its own, ended with the pane."""
    pane = terminal.pane(f"cd {team.base}; exec {shlex.join([*COMMAND, command, '--root', str(team.root)])}")
    wait_until(lambda: stands(pane), f"{command} runs")
    pid = int(pane.fact("pane_pid"))
    yield
    terminal("kill-pane", "-t", pane.id)
    wait_until(lambda: not is_alive(pid, None), f"{command} ends")


def ringers(team: Team, terminal: Terminal) -> list[Callable[[], AbstractContextManager[object]]]:
    return [
        lambda: Web(team),
        lambda: in_pane(team, terminal, "watch", lambda pane: "· q " in pane.screen),
        lambda: in_pane(team, terminal, "supervise", lambda _: team.services.supervision.running()),
    ]


@pytest.mark.tmux
@pytest.mark.slow
def test_web_watch_and_supervisor_each_ring_the_owner_again_and_all_together_once(
    team: Team, terminal: Terminal
) -> None:
    assert team.delivery("owner") == ("rung", "notify_command")
    expected = [ONE]
    for ringer in ringers(team, terminal):
        three_letters(team)
        expected += [ONE, "[IPC] New messages: 3"]
        with ringer():
            wait_for(team, expected)
    with ExitStack() as stack:
        for ringer in ringers(team, terminal):
            stack.enter_context(ringer())
        three_letters(team)
        expected += [ONE, "[IPC] New messages: 3"]
        wait_for(team, expected)
        team.post("owner")
        expected.append("[IPC] New messages: 4")
        wait_for(team, expected)
    assert said(team) == [f"publish {line}" for line in expected]


def test_a_command_that_hangs_delays_one_sender_and_doctor_says_so(bare: Team) -> None:
    team = reached_by(bare, f"echo once >> {bare.base}/said; trap '' TERM; sleep 1000")
    for _ in range(3):
        assert team.delivery("owner") == ("stored", "notify_command_failed")
    assert said(team) == ["once"]
    doctor = team.run("doctor", "--json")
    (finding,) = (item for item in doctor.json["findings"] if item["check"] == "notify_command")
    assert (doctor.code, finding["level"]) == (1, "problem")
    assert "timeout" in finding["finding"]


def test_a_session_goes_on_with_a_notify_command_that_is_none(bare: Team) -> None:
    team = reached_by(bare, "exit 0")
    settings = team.services.workspace.settings_path
    settings.write_text("language: en\nnotify_command: push {line}\n", encoding="utf-8")
    assert team.delivery("owner") == ("stored", "bad_notify_command")
    assert team.ask("read", "owner")["messages"]
    doctor = team.run("doctor")
    assert "notify_command is not a list of strings" in doctor.stdout
    assert doctor.code == 1
