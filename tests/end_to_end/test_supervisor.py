"""The supervisor in a real tmux: it opens a window for a missing session, once, and closes what has logged out."""

from __future__ import annotations

import os
import pty
import signal
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from multi_agent_mcp.domain.slot import Slot
from multi_agent_mcp.services.tasks.board import NewTask
from multi_agent_mcp.system.process import is_alive
from multi_agent_mcp.windows.supervisor import Supervisor
from multi_agent_mcp.windows.window_registry import team_windows
from tests.end_to_end.chat_support import new_task
from tests.end_to_end.support import UP, Team, Terminal, wait_until

pytestmark = [pytest.mark.tmux, pytest.mark.slow]

ACTOR = Path(__file__).with_name("actor.py")
ON_DEMAND = f"""\
session: demo
agents:
  - {{id: owner, role: owner, type: human}}
  - {{id: admin, role: admin, parent: owner}}
  - {{id: worker-a, role: worker, parent: admin, host: plain, spawn: on_demand, command: "{{python}} {ACTOR}"}}
  - {{id: worker-b, role: worker, parent: admin}}
"""
TASK, CHAT = Slot("worker-a", "task"), Slot("worker-a", "chat")


@pytest.fixture
def team(bare: Team) -> Team:
    """worker-a is started when there is work for it."""
    return bare.make(ON_DEMAND)


@pytest.fixture
def up(team: Team, terminal: Terminal) -> Iterator[None]:
    """The team is up, with its supervisor; down again at the end."""
    start(team, terminal)
    yield
    assert team.run("down").code == 0
    assert windows(terminal) == []


def start(team: Team, terminal: Terminal) -> None:
    results = {item["agent_id"]: item["state"] for item in team.ask(*UP, "--socket", terminal.socket)["agents"]}
    assert results["worker-a"] == "on_demand"
    assert results["(supervisor)"] == "open"


def windows(terminal: Terminal) -> list[str]:
    """The names of the team's windows whose program runs."""
    living = ("-f", "#{==:#{pane_dead},0}", "-F", "#{session_name} #{window_name}")
    listed = terminal("list-panes", "-a", *living).splitlines()
    return sorted(name for session, _, name in (row.partition(" ") for row in listed) if session != "work")


def supervisor_pid(terminal: Terminal) -> int:
    return int(terminal("list-panes", "-a", "-f", "#{==:#{window_name},supervisor}", "-F", "#{pane_pid}"))


def sessions(team: Team, purpose: str = "task") -> list[str]:
    """The ids of worker-a's living sessions."""
    return [item.id for item in team.services.sessions.live("worker-a") if item.purpose == purpose]


def started_by_a_person(
    words: list[str], environment: Mapping[str, str], terminal: Terminal, *, in_tmux: bool
) -> tuple[int, int | None]:
    """The process of a program in a pane that a person has opened, or in a terminal without tmux, with its screen."""
    if in_tmux:
        given = [f"-e{name}={value}" for name, value in environment.items() if name.startswith("MULTI_AGENT")]
        return int(terminal("new-window", "-d", "-t", "work", "-P", "-F", "#{pane_pid}", *given, *words)), None
    pid, screen = pty.fork()
    if pid == 0:
        os.execve(words[0], words, {**os.environ, **environment})  # noqa: S606 - the child becomes the program
    return pid, screen


def look(team: Team, terminal: Terminal, task_id: str) -> None:
    """Makes a change that the supervisor reacts to, and waits until it has done so."""
    team.services.workspace.tasks.update(task_id, lambda task: task)
    conversation = team.services.conversations
    agents = team.services.agents
    conversation.begin(agents.get("worker-b"), agents.get("worker-a"), "are you there?")
    wait_until(lambda: "worker-a-chat" in windows(terminal), "a window for the chat session")


@pytest.mark.usefixtures("up")
def test_a_window_is_opened_once_and_closed_after_the_logout_whoever_supervises(team: Team, terminal: Terminal) -> None:
    assert windows(terminal) == ["supervisor"]
    task = new_task(team)
    wait_until(lambda: sessions(team), "worker-a has a task session")
    (first,) = sessions(team)
    assert windows(terminal) == ["supervisor", "worker-a"]
    os.kill(supervisor_pid(terminal), signal.SIGKILL)
    wait_until(lambda: windows(terminal) == ["worker-a"], "the supervisor is gone")
    start(team, terminal)
    look(team, terminal, task.id)
    wait_until(lambda: sessions(team, "chat"), "worker-a has a chat session")
    assert sessions(team) == [first]
    assert windows(terminal) == ["supervisor", "worker-a", "worker-a-chat"]
    services = team.services
    services.task_changes.set_status(services.agents.get("worker-a"), task.id, "cancelled")
    team.ask("read", "worker-a")
    (team.root.parent / "leave").touch()
    wait_until(lambda: windows(terminal) == ["supervisor"], "the windows are closed after the logout")
    wait_until(lambda: services.missing_sessions.windows() == {}, "nothing is remembered of them")
    assert [item.state for item in services.workspace.sessions.all("worker-a")] == ["ended", "ended"]


def test_a_host_that_outlives_the_window_of_a_session_that_has_logged_out_is_ended(
    bare: Team, terminal: Terminal
) -> None:
    deaf = bare.base / "deaf.py"
    deaf.write_text(
        f"import signal, runpy\nsignal.signal(signal.SIGHUP, signal.SIG_IGN)\nrunpy.run_path({str(ACTOR)!r})"
    )
    team = bare.make(ON_DEMAND.replace(str(ACTOR), str(deaf)))
    start(team, terminal)
    task = new_task(team)
    (session,) = wait_until(lambda: team.services.sessions.live("worker-a"), "worker-a has a task session")
    team.services.task_changes.set_status(team.services.agents.get("worker-a"), task.id, "cancelled")
    team.ask("read", "worker-a")
    (team.root.parent / "leave").touch()
    wait_until(lambda: not is_alive(session.pid, session.pid_started_at), "it is ended with its window")
    (team.root.parent / "leave").unlink()
    new_task(team)
    wait_until(lambda: sessions(team), "a window is opened for the next task")
    team.ask("down")


def test_down_names_an_agent_once_whose_ended_window_was_kept_beside_the_next(bare: Team, terminal: Terminal) -> None:
    ends_first = f"test -e begun && exec {{python}} {ACTOR}; touch begun"
    team = bare.make(ON_DEMAND.replace("spawn: on_demand, ", "").replace(f"{{python}} {ACTOR}", ends_first))

    def ended() -> list[str]:
        return terminal("list-panes", "-a", "-f", "#{==:#{window_name},worker-a}", "-F", "#{pane_dead}").splitlines()

    team.run(*UP, "--socket", terminal.socket)
    wait_until(lambda: ended() == ["1"], "its first command has ended")
    new_task(team)
    wait_until(lambda: sessions(team), "the supervisor has started it again")
    assert sorted(ended()) == ["0", "1"]
    assert sorted(team.ask("down")["closed"]) == ["supervisor", "worker-a"]


@pytest.mark.usefixtures("up")
def test_a_command_that_dies_at_once_rests_doctor_says_so_and_it_is_tried_again(team: Team, terminal: Terminal) -> None:
    file = team.base / "team.yaml"
    init = ("init", "--team", str(file))
    written = file.read_text(encoding="utf-8")
    file.write_text(written.replace(f"{{python}} {ACTOR}", "false"), encoding="utf-8")
    assert team.run(*init).code == 0
    new_task(team)

    def failures() -> int:
        window = team.services.missing_sessions.window(TASK)
        return window.failures if window is not None else 0

    wait_until(lambda: failures() >= 2, "it died twice")
    doctor = team.run("doctor", "--json")
    assert doctor.code == 1
    (finding,) = (item for item in doctor.json["findings"] if item["check"] == "supervisor")
    assert finding["subject"] == "worker-a"
    assert "続けてすぐに終了しました" in finding["finding"]
    assert windows(terminal) == ["supervisor"]
    assert all(f"multi-agent-mcp {advised}" in finding["repair"] for advised in ("restart worker-a", "init"))
    assert "Pane is dead (status 1" in team.run("restart", "worker-a", "--timeout", "5").stdout, "it shows why"
    file.write_text(written, encoding="utf-8")
    assert team.run(*init).code == 0
    assert team.run("restart", "worker-a").code == 0
    wait_until(lambda: sessions(team), "the fixed command is started")
    assert team.services.missing_sessions.windows()[TASK].pane
    assert CHAT not in team.services.missing_sessions.windows()
    found = team.ask("watch")["attention"] + team.run("doctor", "--json").json["findings"]
    assert [item for item in found if "続けてすぐに終了しました" in str(item)] == []

    team.ask("down")
    wait_until(lambda: not sessions(team), "its server has ended")
    for items in (team.ask("attention")["items"], team.ask("watch")["attention"]):
        (item,) = [item for item in items if item["kind"] == "down"]
        assert item["command"] == "multi-agent-mcp up"
        assert item["text"].startswith("チームが動いていません: up")


@pytest.mark.usefixtures("up")
def test_a_window_that_the_supervisor_opens_is_registered_unless_the_agent_runs_in_another(
    team: Team, terminal: Terminal
) -> None:
    registry = team.services.workspace.registry
    registry.update("worker-a", command="sleep 600", socket_path=terminal.socket, pane_id="%999", pane_pid=1)
    new_task(team)
    wait_until(lambda: "worker-a" in windows(terminal), "a window is opened")
    opened = terminal("list-panes", "-a", "-f", "#{==:#{window_name},worker-a}", "-F", "#{pane_id}").strip()
    wait_until(lambda: registry.get("worker-a").pane_id == opened, "its pane is registered")


def test_no_more_than_at_most_agents_are_at_work_and_the_next_comes_in_order(bare: Team, terminal: Terminal) -> None:
    names = [f"worker-{one}" for one in "dcba"]
    agents = "\n".join(f'  - {{id: {name}, parent: owner, host: plain, command: "sleep 600"}}' for name in names)
    team = bare.make(f"at_most: 2\nlanguage: en\nagents:\n  - {{id: owner, role: owner, type: human}}\n{agents}\n")
    up = ("up", "--no-wait", "--no-attach", "--socket", terminal.socket)
    came = {item["agent_id"]: item for item in team.ask(*up)["agents"]}
    assert [came[name]["state"] for name in names] == ["starting", "starting", "waits", "waits"]
    assert came["worker-b"]["note"].startswith("waits, as no more agents may be at work (at_most: 2)")

    def work() -> list[str]:
        return [name for name in windows(terminal) if name.startswith("worker")]

    assert work() == ["worker-c", "worker-d"]
    team.ask("down", "worker-d")
    wait_until(lambda: work() == ["worker-b", "worker-c"], "the next is opened for the one that was closed")
    pid = int(terminal("list-panes", "-a", "-f", "#{==:#{window_name},worker-c}", "-F", "#{pane_pid}"))
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: work() == ["worker-a", "worker-b"], "the next is opened for the one that ended")
    assert team.ask("up", "worker-d", "--no-wait", "--socket", terminal.socket)["agents"][0]["state"] == "waits"
    team.ask("down")
    assert team.services.missing_sessions.windows() == {}


HOST_OF_ITS_OWN = """\
import os, subprocess, sys
if not os.fork():
    os.setpgid(0, 0)  # a host's server reads no keys
    os.execv(sys.executable, [sys.executable, sys.argv[1]])
os.wait()
sys.stdin.read()
"""


@pytest.mark.parametrize("place", ["pane", "terminal"])
def test_who_goes_on_without_a_server_where_a_person_has_started_it_is_not_started_twice(
    bare: Team, terminal: Terminal, place: str
) -> None:
    agents = "".join(
        f'  - {{{{id: {name}, parent: owner, host: plain, command: "{{{{python}}}} {ACTOR}"}}}}\n'
        for name in ("a", "b")
    )
    head = "at_most: 1\nlanguage: en\nagents:\n  - {id: owner, role: owner, type: human}\n"
    team = bare.make(head + agents.format())
    services = team.services
    named = {"ROOT": str(team.root), "SESSION": team.session, "AGENT": "a"}
    environment = team.env | {f"MULTI_AGENT_MCP_{name}": value for name, value in named.items()}
    words = [sys.executable, "-c", HOST_OF_ITS_OWN, str(ACTOR)]
    pid, screen = started_by_a_person(words, environment, terminal, in_tmux=place == "pane")
    try:
        wait_until(lambda: services.sessions.running("a"), "its server runs")
        if place == "pane":
            (pane,) = terminal("list-panes", "-a", "-f", f"#{{==:#{{pane_pid}},{pid}}}", "-F", "#{pane_id}").split()
            assert team.run("agent", "set", "a", "--pane", pane, "--socket", terminal.socket).code == 0
        os.kill(services.sessions.running("a")[0].pid, signal.SIGKILL)
        wait_until(lambda: not services.sessions.running("a"), "its server has died")
        for name in ("a", "b"):
            services.task_creation.create(services.agents.get("owner"), [NewTask(title="t", assignee_id=name)])
        assert {slot.agent_id for slot in services.missing_sessions.needed()} == {"a", "b"}
        supervisor = Supervisor(team_windows(services, terminal.socket))
        services.supervision.begin()
        assert (supervisor.look(), windows(terminal)) == ([], [])
        came = {
            item["agent_id"]: item["state"]
            for item in team.ask(*UP, "--no-supervisor", "--timeout", "1", "--socket", terminal.socket, "a")["agents"]
        }
        assert came["a"] in ("running", "elsewhere", "no_server")
        assert team.run("restart", "a", "--socket", terminal.socket).code == 1
        shown = team.run("attach", "a", "--socket", terminal.socket).stderr
        assert (f":.{pane}" if place == "pane" else f"as process {pid}") in shown
        assert windows(terminal) == []
    finally:
        os.kill(pid, signal.SIGKILL)
        if screen is not None:
            os.waitpid(pid, 0)
            os.close(screen)
    wait_until(lambda: windows(terminal) == [] and not is_alive(pid, None), "the host has ended")
    supervisor.look()
    assert windows(terminal) == ["a"]
