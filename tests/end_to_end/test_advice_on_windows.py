"""Advice about windows helps: each command that is named is run as it is printed, on a real tmux, and what it was about
is gone. (All other advice: tests/cli/test_advice.py.)"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from multi_agent_mcp.services.attention import Item
from multi_agent_mcp.services.doctor.tree import Finding
from multi_agent_mcp.services.tasks.board import NewTask
from tests.end_to_end.support import REPOSITORY, TEAM, UP, Ran, Team, Terminal, wait_until
from tests.programs import PACKAGES

pytestmark = [pytest.mark.tmux]

WITH_COMMANDS = TEAM.replace("agents:", "language: en\nagents:").replace("{id: worker", "{command: cat, id: worker")


def follow(team: Team, said: str, command: str, *more: str) -> Ran:
    """Runs a command that was named, with what this test's tmux needs beside it."""
    assert re.search(rf"multi-agent-mcp {re.escape(command)}(?![\w-])", said), (command, said)
    return team.run(*shlex.split(command), *more)


def findings(team: Team, check: str) -> dict[str, Finding]:
    return {found.subject: found for found in team.services.doctor().examine() if found.check == check}


def attention(team: Team, kind: str) -> list[Item]:
    services = team.services
    return [item for item in services.attention.of(services.agents.owner()) if item.kind == kind]


def test_what_is_said_of_windows_helps(bare: Team, terminal: Terminal) -> None:
    team = bare.make(WITH_COMMANDS)
    up = UP[1:]
    # no windows
    assert findings(team, "panes")["worker-a"].repair.startswith("multi-agent-mcp up;")
    said = team.run("attach").stderr
    follow(team, said, "up", *up, "--no-supervisor", "--socket", terminal.socket)
    assert "attach needs a terminal" in team.run("attach").stderr
    assert "worker-a" not in findings(team, "panes")
    # one that `down` has closed
    team.ask("down", "worker-a")
    assert findings(team, "supervisor")["worker-a"].repair == "multi-agent-mcp up worker-a"
    follow(team, team.run("attach", "worker-a").stderr, "up worker-a", *up)
    assert "attach needs a terminal" in team.run("attach", "worker-a").stderr
    assert findings(team, "supervisor") == {}
    # one that a person closed
    terminal("kill-pane", "-t", str(team.services.agents.get("worker-a").pane_id))
    follow(team, findings(team, "panes")["worker-a"].repair, "up worker-a", *up)
    assert "worker-a" not in findings(team, "panes")
    # one whose program has ended
    os.kill(int(terminal("display-message", "-p", "-t", pane(team), "#{pane_pid}")), signal.SIGKILL)
    wait_until(lambda: attention(team, "ended"), "its end is seen")
    said = team.run("send", "worker-a", "hello").stdout
    assert attention(team, "ended")[0].command == "multi-agent-mcp up worker-a"
    follow(team, said, "up worker-a", *up)
    assert attention(team, "ended") == []


def test_what_is_said_of_a_single_window_helps(bare: Team, terminal: Terminal) -> None:
    """With two sessions under one root, in which the next command needs the session's name."""
    team, up = bare.make(WITH_COMMANDS), UP[1:]
    said = team.run("up", "worker-a", *up, "--socket", terminal.socket).stdout
    follow(team, said[said.index("no supervisor runs") :], "up", *up, "--socket", terminal.socket)
    wait_until(lambda: team.services.supervision.running(), "it supervises")
    assert "no supervisor runs" not in team.run("restart", "worker-a", *up[:1]).stdout
    team.ask("down")


def test_an_agent_that_stays_in_the_shared_directory_is_named_until_it_is_restarted(
    bare: Team, terminal: Terminal
) -> None:
    team = bare.make(WITH_COMMANDS)
    named = ("-c", "user.name=T", "-c", "user.email=t@example.org")
    for call in (["init", "-q"], [*named, "commit", "-q", "--allow-empty", "-m", "first"]):
        subprocess.run(["git", *call], cwd=team.services.root.parent, check=True)
    team.ask(*UP, "--no-supervisor", "--socket", terminal.socket)
    made = team.ask("workspace", "add", "worker-a")
    assert made["restart"]
    said = team.run(*UP, "--no-supervisor").stdout
    follow(team, " ".join(said.split()), "restart worker-a", "--no-wait")
    assert terminal("display-message", "-p", "-t", pane(team), "#{pane_current_path}").strip() == made["path"]
    assert "to its worktree" not in team.run(*UP, "--no-supervisor").stdout
    said = team.run("workspace", "remove", "worker-a").stderr
    follow(team, said, "down worker-a")
    team.ask("workspace", "remove", "worker-a")
    assert not Path(made["path"]).exists()


def pane(team: Team) -> str:
    return str(team.services.agents.get("worker-a").pane_id)


def test_what_is_said_of_a_team_that_is_down_or_without_its_supervisor_helps(bare: Team, terminal: Terminal) -> None:
    team, up = bare.make(WITH_COMMANDS), UP[1:]
    team.ask(*UP, "--socket", terminal.socket)
    services = team.services
    services.task_creation.create(services.agents.get("admin"), [NewTask(title="work", assignee_id="worker-a")])
    wait_until(lambda: team.services.supervision.running(), "it supervises")
    supervisor = terminal("list-windows", "-a", "-F", "#{window_name} #{pane_pid}").split("supervisor ")[1].split()[0]
    os.kill(int(supervisor), signal.SIGKILL)
    wait_until(lambda: not team.services.supervision.running(), "it has ended")
    assert findings(team, "supervisor")["supervise"].repair == "multi-agent-mcp up"
    (item,) = attention(team, "ended")
    follow(team, item.command, "up", *up)
    wait_until(lambda: team.services.supervision.running(), "it supervises again")
    assert attention(team, "ended") == []
    team.ask("down")
    (item,) = attention(team, "down")
    follow(team, item.command, "up", *up, "--socket", terminal.socket)
    assert attention(team, "down") == []
    team.ask("down")


def test_what_is_said_of_options_of_a_persons_tmux_helps(bare: Team, terminal: Terminal) -> None:
    """Windows of ours are opened without them, also when tmux.conf has them; somebody who looks at them may set them
    afterwards."""
    options = {"destroy-unattached": "-t", "exit-unattached": "-s", "synchronize-panes": "-wt"}
    terminal("set-option", "-g", "remain-on-exit", "on", ";", "set-option", "-gw", "synchronize-panes", "on")
    team = bare.make(WITH_COMMANDS)
    team.ask(*UP, "--no-supervisor", "--socket", terminal.socket)
    shown = ("list-panes", "-a", "-F", "#{pane_id} #{pane_synchronized}")
    assert f"{pane(team)} 0" in terminal(*shown).splitlines()
    assert not {said.finding for said in findings(team, "panes").values() if "tmux's option" in said.finding}
    terminal("set-option", "-p", "-u", "-t", pane(team), "synchronize-panes")
    terminal.pane(f"exec env -u TMUX tmux -S {terminal.socket} attach -t {pane(team)}")
    wait_until(lambda: terminal("list-clients"), "somebody looks at it")
    for option, how in options.items():
        target = [] if how == "-s" else [pane(team)]
        terminal("set-option", how, *target, option, "on")
        said = [found for found in team.services.doctor().examine() if f"option {option} is on" in found.finding]
        assert [found.subject for found in said] == ["worker-a"], option
        subprocess.run(shlex.split(said[0].repair), check=True, env=team.env)
        assert not [found for found in team.services.doctor().examine() if f"option {option} is on" in found.finding]
    assert f"{pane(team)} 0" in terminal(*shown).splitlines()
    team.ask("down")


HOST = """\
import json, os, subprocess, sys, time
print(open({screen!r}).read().rstrip(), end="", flush=True)
if "--mcp-config" in sys.argv:
    (server,) = json.load(open(sys.argv[sys.argv.index("--mcp-config") + 1]))["mcpServers"].values()
    run = [server["command"], *server["args"]]
    told = {{**os.environ, **server.get("env", {{}})}}
    child = subprocess.Popen(run, env=told, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
time.sleep(600)
"""


def test_what_is_said_of_a_host_without_our_server_helps(bare: Team, terminal: Terminal) -> None:
    host = bare.base / "node_modules" / PACKAGES["claude"] / "claude"
    host.parent.mkdir(parents=True)
    screen = REPOSITORY / "tests" / "fixtures" / "hosts" / "claude" / "idle_fresh.txt"
    host.write_text(f"#!{sys.executable}\n{HOST.format(screen=str(screen))}", encoding="utf-8")
    host.chmod(0o755)
    team = bare.make(TEAM.replace("worker-a, role: worker, parent: admin, host: plain", "worker-a, command: claude"))
    team.env["PATH"] = f"{host.parent}:{team.env['PATH']}"
    team.ask("up", "worker-a", "--no-wait", "--socket", terminal.socket)
    wait_until(lambda: "worker-a" in findings(team, "stuck"), "it has no server")
    said = findings(team, "stuck")["worker-a"].repair
    follow(team, said, "agent set worker-a --command claude")
    follow(team, said, "restart worker-a", "--no-wait")
    wait_until(lambda: "worker-a" not in findings(team, "stuck"), "it has one")
    team.ask("down")
