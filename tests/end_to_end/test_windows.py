"""`up`, `down` and `supervise` on a real tmux: whose windows are touched, and how often an agent is started."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from multi_agent_mcp.bootstrap import open_session
from multi_agent_mcp.domain.slot import Slot
from multi_agent_mcp.doorbell.tmux.client import CALL_SECONDS, Server
from multi_agent_mcp.services.tasks.board import NewTask
from multi_agent_mcp.system.process import is_alive
from multi_agent_mcp.windows.up_down import close_team
from multi_agent_mcp.windows.window_registry import TeamWindows
from tests.end_to_end.support import COMMAND, TEAM, UP, Team, Terminal, wait_until

pytestmark = [pytest.mark.tmux]

AGENTS = ("worker-a", "worker-b")
WITH_COMMANDS = "".join(
    line.replace("{id:", "{command: cat, id:") if "worker" in line else line for line in TEAM.splitlines(keepends=True)
)
ON_DEMAND = WITH_COMMANDS.replace("{command:", "{spawn: on_demand, command:")

KILLING_TMUX = """\
#!/bin/sh
# The first window that is opened costs its opener its life: before it is open, after, or while the call is under way.
case "$*" in
*new-session*|*new-window*)
  if rm {armed} 2>/dev/null; then
    case {moment} in
    before) kill -9 $PPID; exit ;;
    after) {tmux} "$@"; kill -9 $PPID; exit ;;
    meanwhile)
      kill -9 $PPID
      for _ in $(seq 600); do [ -e {go} ] && break; sleep 0.05; done
      {tmux} "$@"; touch {came}; exit ;;
    esac
  fi ;;
esac
exec {tmux} "$@"
"""

ENDING_TMUX = """\
#!/bin/sh
# The server that is asked first for a window is about to end.
case "$*" in
*new-session*) if rm {armed} 2>/dev/null; then echo "server exited unexpectedly" >&2; exit 1; fi ;;
esac
exec {tmux} "$@"
"""


def windows(terminal: Terminal) -> list[str]:
    """The names of the windows on this server, but for the one that it began with."""
    listed = terminal("list-windows", "-a", "-F", "#{session_name} #{window_name}").splitlines()
    return sorted(name for session, _, name in (row.partition(" ") for row in listed) if session != "work")


def new_work(team: Team) -> None:
    """A task for each worker: the supervisor opens a window for both."""
    services = team.services
    news = [NewTask(title="work", assignee_id=agent_id) for agent_id in AGENTS]
    services.task_creation.create(services.agents.get("admin"), news)


@contextmanager
def running(team: Team, env: Mapping[str, str], *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A command in a process of its own."""
    environment = {**team.env, "MULTI_AGENT_MCP_ROOT": str(team.root), **env}
    with subprocess.Popen(
        [*COMMAND, *arguments],
        env=environment,
        cwd=team.base,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def killing_tmux(team: Team, moment: str) -> dict[str, str]:
    """An environment whose tmux kills the process that opens the first window."""
    place = team.base / "killing"
    place.mkdir()
    (place / "armed").touch()
    paths = {"armed": place / "armed", "go": team.base / "go", "came": team.base / "came"}
    script = KILLING_TMUX.format(moment=moment, tmux=shutil.which("tmux"), **paths)
    (place / "tmux").write_text(script, encoding="utf-8")
    (place / "tmux").chmod(0o755)
    return {"PATH": f"{place}:{team.env['PATH']}"}


def let_it_come(team: Team, moment: str) -> None:
    """Lets the delayed call reach tmux."""
    (team.base / "go").touch()
    wait_until(lambda: moment != "meanwhile" or (team.base / "came").exists(), "the late call comes")


def test_inside_tmux_up_uses_that_server_and_down_leaves_everybody_elses_panes(bare: Team, terminal: Terminal) -> None:
    plain = ["tmux", "-f", "/dev/null"]
    subprocess.run([*plain, "new-session", "-d", "-s", "demo", "exec cat"], env=bare.env, check=True)
    try:
        team = bare.make(WITH_COMMANDS)
        shell = terminal.pane("exec sh")
        context = {item["agent_id"]: item["pane_id"] for item in team.ask(*UP, env=shell.env)["agents"]}
        assert windows(terminal) == ["supervisor", "worker-a", "worker-b"]
        registry = team.services.workspace.registry
        for agent_id in AGENTS:
            agent = registry.get(agent_id)
            assert (agent.socket_path, agent.pane_id) == (terminal.socket, context[agent_id])
        assert registry.get("admin").pane_id is None
        shell.belongs_to(team, "worker-b")  # its human has started a server of worker-b in their own shell
        assert sorted(team.ask("down", env=shell.env)["closed"]) == ["supervisor", "worker-a", "worker-b"]
        assert windows(terminal) == []
        assert shell.fact("pane_dead") == "0"
        assert registry.get("worker-b").pane_id == shell.id
        listed = subprocess.run([*plain, "list-panes", "-a"], env=bare.env, capture_output=True, check=True)
        assert len(listed.stdout.splitlines()) == 1
    finally:
        subprocess.run([*plain, "kill-server"], env=bare.env, check=False)


def test_windows_open_on_a_new_server_while_the_former_one_ends(bare: Team, terminal: Terminal) -> None:
    team = bare.make(WITH_COMMANDS)
    armed, program = team.base / "armed", team.base / "silent" / "tmux"
    armed.touch()
    program.write_text(ENDING_TMUX.format(armed=armed, tmux=shutil.which("tmux")), encoding="utf-8")
    program.chmod(0o755)
    team.ask(*UP, "--socket", terminal.socket, "--no-supervisor")
    assert not armed.exists()
    assert windows(terminal) == list(AGENTS)


def test_a_pane_that_somebody_respawned_is_not_closed(bare: Team, terminal: Terminal) -> None:
    team = bare.make(WITH_COMMANDS)
    team.ask(*UP, "--socket", terminal.socket, "--no-supervisor")
    pane_id = str(team.services.agents.get("worker-a").pane_id)
    terminal("respawn-pane", "-k", "-t", pane_id, "exec sh")
    assert team.ask("down")["closed"] == ["worker-b"]
    assert windows(terminal) == ["worker-a"]


def test_a_command_reaches_its_shell_as_it_is_and_in_the_trace_of_up(bare: Team, terminal: Terminal) -> None:
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    text = "~;#{pane_id} 'single' \" $HOME \\\\ \\n{}% 日本語"
    command = f"printf %s $TRACEPARENT > trace; cat <<'END' > said\n{text}\n   indented\nEND\nexec cat"
    team = bare.make(json.dumps({"agents": [{"id": "owner", "role": "owner"}, {"id": "a", "command": command}]}))
    opened = team.ask(*UP, "--socket", terminal.socket, "--no-supervisor", env={"TRACEPARENT": trace})
    (started,) = opened["agents"][1:]
    assert started["note"] == "起動しています"
    wait_until((team.base / "said").exists, "its command runs")
    wait_until(lambda: (team.base / "said").read_text(encoding="utf-8") == f"{text}\n   indented\n", "as it stands")
    assert (team.base / "trace").read_text(encoding="ascii") == trace
    assert team.ask("down")["closed"] == ["a"]


def test_a_tmux_that_hangs_is_one_sentence_and_starts_nobody_twice(bare: Team, terminal: Terminal) -> None:
    team = bare.make(WITH_COMMANDS)
    command = (*UP, "--socket", terminal.socket, "--no-supervisor")
    server = int(terminal("display-message", "-p", "#{pid}"))
    os.kill(server, signal.SIGSTOP)
    try:
        hung = team.run(*command)
    finally:
        os.kill(server, signal.SIGCONT)
    assert (hung.code, len(hung.stderr.splitlines())) == (1, 1)
    assert {item["note"] for item in team.ask(*command)["agents"][2:]} == {"起動しています"}
    assert windows(terminal) == ["worker-a", "worker-b"]
    assert sorted(team.ask("down")["closed"]) == ["worker-a", "worker-b"]


def test_two_projects_with_one_session_name_have_a_tmux_session_each(bare: Team, terminal: Terminal) -> None:
    ours = bare.make(WITH_COMMANDS)
    other_base = bare.base / "other"
    other_base.mkdir()
    theirs = Team(other_base, bare.env).make(WITH_COMMANDS)
    names = {team.ask(*UP, "--socket", terminal.socket, "--no-supervisor")["tmux_session"] for team in (ours, theirs)}
    assert len(names) == 2
    assert all(name.startswith("demo-") for name in names)
    assert windows(terminal) == ["worker-a", "worker-a", "worker-b", "worker-b"]
    again = ours.ask(*UP, "--socket", terminal.socket, "--no-supervisor")
    assert again["tmux_session"] in names
    assert again["tmux_session"] in ours.run(*UP, "--socket", terminal.socket, "--no-supervisor").stdout
    assert sorted(ours.ask("down")["closed"]) == ["worker-a", "worker-b"]
    assert windows(terminal) == ["worker-a", "worker-b"]
    assert {str(theirs.services.agents.get(agent_id).pane_id) for agent_id in AGENTS} == set(
        terminal("list-panes", "-a", "-f", "#{!=:#{session_name},work}", "-F", "#{pane_id}").splitlines()
    )


def test_several_up_at_once_open_every_window_once(bare: Team, terminal: Terminal) -> None:
    team = bare.make(WITH_COMMANDS)
    command = (*UP, "--socket", terminal.socket)
    with (
        running(team, {}, *command) as first,
        running(team, {}, *command) as second,
        running(team, {}, *command) as third,
    ):
        for process in (first, second, third):
            assert "Traceback" not in process.communicate()[1]
            assert process.returncode == 0
    assert windows(terminal) == ["supervisor", "worker-a", "worker-b"]


@pytest.mark.parametrize("moment", ["before", "after", "meanwhile"])
def test_up_that_is_killed_while_it_opens_a_window_starts_nobody_twice(
    bare: Team, terminal: Terminal, moment: str
) -> None:
    team = bare.make(WITH_COMMANDS)
    command = (*UP, "--socket", terminal.socket, "--no-supervisor")
    with running(team, killing_tmux(team, moment), *command) as killed:
        wait_until(lambda: killed.poll() is not None, "it is killed")
        assert killed.returncode == -signal.SIGKILL
        context = {item["agent_id"]: item for item in team.ask(*command)["agents"]}
        assert context["worker-a"]["note"] == ("既に動いています" if moment == "after" else "起動しています")
        let_it_come(team, moment)
    for agent_id in AGENTS:
        assert team.services.agents.get(agent_id).pane_id == context[agent_id]["pane_id"]
    team.ask(*command)
    assert windows(terminal) == ["worker-a", "worker-b"]
    assert sorted(team.ask("down")["closed"]) == ["worker-a", "worker-b"]
    assert windows(terminal) == []


@pytest.mark.parametrize("moment", ["after", "meanwhile"])
def test_a_supervisor_that_is_killed_while_it_opens_a_window_starts_nobody_twice(
    bare: Team, terminal: Terminal, moment: str
) -> None:
    team = bare.make(ON_DEMAND)
    here = terminal.pane().env
    new_work(team)
    with running(team, {**here, **killing_tmux(team, moment)}, "supervise") as killed:
        wait_until(lambda: killed.poll() is not None, "it is killed")
    with running(team, here, "supervise") as supervisor:
        wait_until(lambda: set(AGENTS) <= set(windows(terminal)), "both workers have their window")
        let_it_come(team, moment)
        assert windows(terminal) == ["worker-a", "worker-b"]
        assert sorted(team.ask("down")["closed"]) == ["worker-a", "worker-b"]
        wait_until(lambda: supervisor.poll() is not None, "the supervisor ends")
    assert windows(terminal) == []


def test_the_second_supervisor_says_who_runs_and_ends(bare: Team, terminal: Terminal) -> None:
    team = bare.make(ON_DEMAND)
    here = terminal.pane().env
    with running(team, here, "supervise") as first:
        wait_until((team.path / ".supervisor" / "running.json").exists, "the first one supervises")
        second = team.run("supervise", env=here)
        assert second.code == 1
        assert second.stderr.startswith("multi-agent-mcp: already_exists: ")
        assert f" {first.pid} " in second.stderr
        results = team.ask(*UP, "--socket", terminal.socket)["agents"]
        assert str(first.pid) in results[-1]["note"]
        assert windows(terminal) == []


def test_after_down_a_supervisor_elsewhere_ends_and_nothing_is_open(bare: Team, terminal: Terminal) -> None:
    team = bare.make(ON_DEMAND)
    here = terminal.pane().env
    with running(team, here, "supervise") as supervisor:
        wait_until((team.path / ".supervisor" / "running.json").exists, "it supervises")
        new_work(team)  # it opens windows at the very moment in which they are closed
        team.ask("down")
        os.utime(team.path / "tasks" / "worker-a")
        wait_until(lambda: supervisor.poll() is not None, "the supervisor ends")
        assert supervisor.returncode == 0
    assert windows(terminal) == []
    assert all(team.services.missing_sessions.window(Slot(agent_id, "task")) is None for agent_id in AGENTS)


def test_down_of_one_agent_keeps_it_closed_whatever_waits_until_up(bare: Team, terminal: Terminal) -> None:
    team = bare.make(ON_DEMAND)
    team.ask(*UP, "--socket", terminal.socket)
    new_work(team)
    wait_until(lambda: windows(terminal) == ["supervisor", *AGENTS], "the supervisor has opened both")
    assert team.run("down", "worker-a", "nobody").code == 1
    assert windows(terminal) == ["supervisor", *AGENTS]
    assert team.ask("down", "worker-a") == {"success": True, "closed": ["worker-a"], "left": {}}
    agents, conversations = team.services.agents, team.services.conversations
    conversations.begin(agents.get("admin"), agents.get("worker-a"), "are you there?")
    conversations.begin(agents.get("admin"), agents.get("worker-b"), "are you there?")
    wait_until(lambda: "worker-b-chat" in windows(terminal), "the supervisor has looked, at worker-a first")
    assert windows(terminal) == ["supervisor", "worker-b", "worker-b-chat"]
    assert team.services.agents.get("worker-a").pane_id is None
    notes = {item["subject"]: item["repair"] for item in team.run("doctor", "--json").json["findings"]}
    assert notes["worker-a"] == "multi-agent-mcp up worker-a"
    said = team.run("down", "worker-a", "worker-b").stdout.splitlines()
    assert said[0].endswith(": worker-b, worker-b-chat")
    assert said[1].endswith("multi-agent-mcp up worker-a worker-b")
    assert windows(terminal) == ["supervisor"]

    team.ask("up", "worker-a", "--no-wait")  # brings back what it names, chat work too
    wait_until(lambda: windows(terminal) == ["supervisor", "worker-a", "worker-a-chat"], "worker-a is back")
    team.ask(*UP)
    everything = ["supervisor", "worker-a", "worker-a-chat", "worker-b", "worker-b-chat"]
    wait_until(lambda: windows(terminal) == everything, "and everybody with the whole team")
    assert sorted(team.ask("down")["closed"]) == everything


def test_down_in_a_moved_directory_closes_the_windows_and_nothing_makes_the_former_directory(
    bare: Team, terminal: Terminal
) -> None:
    team = bare.make(WITH_COMMANDS)
    team.ask(*UP, "--socket", terminal.socket)
    supervisor = int(terminal("list-panes", "-a", "-f", "#{==:#{window_name},supervisor}", "-F", "#{pane_pid}"))
    moved = team.base / "moved"
    team.root.rename(moved)
    wait_until(lambda: not is_alive(supervisor, None), "the supervisor ends by itself")
    assert not team.root.exists()
    there = {"MULTI_AGENT_MCP_ROOT": str(moved)}
    assert sorted(team.ask("down", env=there)["closed"]) == ["supervisor", "worker-a", "worker-b"]
    assert windows(terminal) == []
    assert open_session(moved, team.session).agents.get("worker-a").pane_id is None


def test_up_in_a_moved_directory_opens_the_windows_again(bare: Team, terminal: Terminal) -> None:
    team = bare.make(WITH_COMMANDS)
    before = {item["pane_id"] for item in team.ask(*UP, "--socket", terminal.socket)["agents"]}
    moved = team.base / "moved"
    team.root.rename(moved)
    opened = team.ask(*UP, "--socket", terminal.socket, env={"MULTI_AGENT_MCP_ROOT": str(moved)})["agents"]
    assert {item["state"] for item in opened if item["agent_id"] in AGENTS} == {"starting"}
    assert not before & {item["pane_id"] for item in opened if item["pane_id"]}
    assert windows(terminal) == ["supervisor", "worker-a", "worker-b"]


def test_down_in_a_copy_leaves_the_windows_and_names_them(bare: Team, terminal: Terminal) -> None:
    team = bare.make(WITH_COMMANDS)
    team.ask(*UP, "--socket", terminal.socket, "--no-supervisor")
    copy = team.base / "copy"
    shutil.copytree(team.root, copy)
    done = team.run("down", env={"MULTI_AGENT_MCP_ROOT": str(copy)})
    assert done.code == 1
    assert "worker-a, worker-b" in done.stdout
    assert str(team.path) in done.stdout
    assert windows(terminal) == ["worker-a", "worker-b"]
    assert sorted(team.ask("down")["closed"]) == ["worker-a", "worker-b"]


def test_without_tmux_down_refuses_as_up_does_while_windows_are_recorded(bare: Team, terminal: Terminal) -> None:
    team = bare.make(WITH_COMMANDS)
    without = {"PATH": str(team.base)}
    assert team.ask("down", env=without)["closed"] == []
    team.ask(*UP, "--socket", terminal.socket)
    refused = [team.run(command, env=without) for command in ("up", "down")]
    assert refused[0] == refused[1]
    assert (refused[1].code, refused[1].stdout) == (1, "")
    assert "tmux 3.3" in refused[1].stderr
    assert sorted(team.ask("down")["closed"]) == ["supervisor", "worker-a", "worker-b"]


def test_a_pane_registered_for_a_second_agent_is_warned_of(team: Team, terminal: Terminal) -> None:
    pane = terminal.pane("exec cat")
    place = ("--pane", pane.id, "--socket", terminal.socket)
    first = team.run("agent", "set", "worker-a", *place)
    assert first.stderr == ""
    assert "worker-a: pane_index: 0" in first.stdout.splitlines()
    second = team.run("agent", "set", "worker-b", *place)
    assert second.code == 0
    assert len(second.stderr.splitlines()) == 1
    assert "worker-a, worker-b" in second.stderr
    assert team.services.agents.get("worker-b").pane_id == pane.id
    assert team.run("agent", "set", "worker-b", "--name", "Bee").stderr == ""


def test_a_tmux_server_that_reads_its_tmux_conf_for_long_is_waited_for_and_a_hook_s_window_is_not_ours(
    bare: Team, tmp_path: Path
) -> None:
    """Plug-ins are programs, and a person's hook may open windows for each session."""
    bare.make(WITH_COMMANDS)
    conf = tmp_path / "tmux.conf"
    conf.write_text(f"run-shell 'sleep {CALL_SECONDS + 0.5}'\nset-hook -g after-new-session 'new-window -n theirs'\n")
    with tempfile.TemporaryDirectory(prefix="mam-", dir="/tmp") as directory:
        windows = TeamWindows(bare.services, f"{directory}/s", str(conf))
        try:
            with windows.locked():
                pane = windows.open(Slot("worker-a", "task"), "exec cat", stays=True)
            assert pane is not None
            name = Server(windows.socket_path).pane(pane.pane_id).cmd("display-message", "-p", "#{window_name}")
            assert name.stdout == ["worker-a"]
            assert close_team(windows) == ["worker-a"]
        finally:
            Server(windows.socket_path).cmd("kill-server")
