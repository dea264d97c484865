"""`up` as a user meets it: programs that show real hosts' screens, servers that live, and all that goes wrong."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from multi_agent_mcp.domain.slot import Slot
from multi_agent_mcp.hooks.answers import Event
from multi_agent_mcp.services.tasks.board import NewTask
from multi_agent_mcp.system.process import is_alive
from tests.end_to_end.support import COMMAND, REPOSITORY, UP, Team, Terminal, run, wait_until
from tests.programs import PACKAGES

pytestmark = [pytest.mark.tmux]

ACTOR = f"{sys.executable} {Path(__file__).with_name('actor.py')}"
SCREENS = REPOSITORY / "tests" / "fixtures" / "hosts"
HOST = """\
import sys, time
from pathlib import Path
screen, x, y = sys.argv[1:4]
sys.stdout.write("\\x1b[?25l" + Path(screen).read_text(encoding="utf-8").rstrip() + f"\\x1b[{int(y) + 1};{int(x) + 1}H")
sys.stdout.flush()
time.sleep(600)
"""
SECRET = "sk-ant-do-not-print-this"


def showing(base: Path, screen: str) -> str:
    """The command of a program that is where a host's would be, shows one of its screens, and starts no server."""
    host, _, name = screen.partition("/")
    program = base / "node_modules" / PACKAGES[host] / host
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(f"#!{sys.executable}\n{HOST}", encoding="utf-8")
    program.chmod(0o755)
    found = re.search(r"cur=(\d+),(\d+)", (SCREENS / host / f"{name}.meta.txt").read_text(encoding="utf-8"))
    assert found is not None
    return f"{program} {SCREENS / host / name}.txt {found[1]} {found[2]}"


def made(bare: Team, **commands: str | dict[str, str]) -> Team:
    """A team of an Owner and these agents, in English."""
    agents: list[dict[str, Any]] = [{"id": "owner", "role": "owner", "type": "human"}]
    for agent_id, given in commands.items():
        entry = {"command": given} if isinstance(given, str) else given
        agents.append({"id": agent_id.replace("_", "-"), "parent": "owner", **entry})
    return bare.make(json.dumps({"language": "en", "agents": agents}))


def panes(terminal: Terminal) -> dict[str, str]:
    """Window → whether its program has ended, as tmux's `pane_dead`."""
    listed = terminal("list-panes", "-a", "-F", "#{session_name} #{window_name} #{pane_dead}").splitlines()
    found = [row.split() for row in listed if not row.startswith("work ")]
    assert len(found) == len({name for _, name, _ in found}), "no window twice"
    return {name: dead for _, name, dead in found}


def test_a_directory_that_no_program_can_work_in_is_named_and_nothing_starts_elsewhere(
    bare: Team, terminal: Terminal
) -> None:
    team = made(bare, a={"command": ACTOR, "host": "plain"})
    gone = bare.base / "gone"
    gone.mkdir()
    move = ["sh", "-c", 'cd "$1" && rmdir "$1" && shift && exec "$@"', "sh", str(gone)]
    call = [*move, *COMMAND, "up", "--socket", terminal.socket, "--root", str(team.root), "--no-supervisor", "--json"]
    ran = run(call, env=team.env, cwd=bare.base)
    (agent,) = (item for item in ran.json["agents"] if item["agent_id"] == "a")
    assert (ran.code, agent["state"]) == (1, "refused")
    assert f"{gone} is no directory in which a program can work" in agent["note"]
    assert "a" not in panes(terminal)


def test_windows_of_a_deleted_session_are_named_by_up_and_closed_by_down(bare: Team, terminal: Terminal) -> None:
    team = made(bare, a={"command": ACTOR, "host": "plain"})
    here = {"TMUX": f"{terminal.socket},1,0"}
    team.ask(*UP, "--no-supervisor", env=here)
    wait_until(lambda: team.services.sessions.alive("a"), "its program runs")
    shutil.rmtree(team.root)
    refused = team.run("up", env={**here, "LC_ALL": "C.UTF-8"})
    assert refused.code == 1
    assert "still run: a. multi-agent-mcp down closes them" in refused.stderr
    elsewhere = team.run("down", "--json", env={**here, "MULTI_AGENT_MCP_ROOT": str(bare.base / "other")})
    assert elsewhere.code == 1
    assert panes(terminal) == {"a": "0"}
    assert team.ask("down", env=here)["closed"] == ["a"]
    assert panes(terminal) == {}


def test_windows_of_a_deleted_session_are_none_of_the_new_one_at_its_place(bare: Team, terminal: Terminal) -> None:
    agents: dict[str, str | dict[str, str]] = {"a": {"command": ACTOR, "host": "plain"}, "b": "cat"}
    team = made(bare, **agents)
    up = (*UP, "--no-supervisor", "--socket", terminal.socket)
    team.ask(*up)
    wait_until(lambda: team.services.sessions.alive("a"), "its program runs")
    before = processes_of(terminal)
    (team.path / "session.yaml").unlink()
    made(bare, **agents)
    assert [item["state"] for item in team.ask(*up)["agents"]] == ["no_command", "running", "running"], "the same team"
    shutil.rmtree(team.root)
    made(bare, **agents)
    for asked in (up, ("up", "b", "--socket", terminal.socket), ("restart", "a", "--socket", terminal.socket)):
        refused = team.run(*asked, env={"LC_ALL": "C.UTF-8"})
        assert (refused.code, refused.stdout) == (1, "")
        assert "still run: a, b. multi-agent-mcp down closes them" in refused.stderr
    assert processes_of(terminal) == before
    assert team.services.agents.get("a").pane_id is None
    assert sorted(team.ask("down", "--socket", terminal.socket)["closed"]) == ["a", "b"]
    assert panes(terminal) == {}
    assert team.ask(*up)["ready"]
    assert panes(terminal) == {"a": "0", "b": "0"}


def test_up_calls_nobody_ready_into_whose_pane_it_could_not_type(bare: Team, terminal: Terminal) -> None:
    plain = {"command": ACTOR, "host": "plain"}
    team = made(bare, a=plain, b=plain, c=plain, d=plain)
    up = ("up", "--socket", terminal.socket, "--no-supervisor", "--no-watch")
    places = {item["agent_id"]: item["pane_id"] for item in team.ask(*up)["agents"]}
    terminal("set-option", "-p", "-t", places["b"], "synchronize-panes", "on")
    terminal("select-pane", "-d", "-t", places["c"])
    terminal("copy-mode", "-t", places["d"])
    ran = team.run(*up, "--json")
    assert (ran.code, ran.json["ready"]) == (1, False)
    said = {item["agent_id"]: (item["state"], item["note"]) for item in ran.json["agents"]}
    assert said["a"] == ("ready", "ready")
    for agent_id, why in (("b", "synchronized"), ("c", "no input (select-pane -d)"), ("d", "scrolling")):
        assert said[agent_id][0] == "untyped"
        assert why in said[agent_id][1]


def test_what_tmux_shows_over_a_pane_that_nobody_looks_at_is_taken_away(bare: Team, terminal: Terminal) -> None:
    """As tmux does with what a program prints that tmux.conf runs in the background."""
    team = made(bare, a={"command": ACTOR, "host": "plain"})
    team.ask("up", "a", "--no-wait", "--socket", terminal.socket)
    pane = str(team.services.agents.get("a").pane_id)
    terminal("run-shell", "-t", pane, "echo a plug-in is missing")
    assert terminal("display-message", "-p", "-t", pane, "#{pane_mode}") == "view-mode"
    assert team.ask("up", "a", "--socket", terminal.socket)["ready"]
    assert terminal("display-message", "-p", "-t", pane, "#{pane_mode}") == ""
    terminal("copy-mode", "-t", pane)
    assert not team.run("up", "a", "--socket", terminal.socket, "--json").json["ready"], "somebody scrolls there"


def test_up_says_of_everybody_whether_they_are_ready_or_what_they_wait_for(bare: Team, terminal: Terminal) -> None:
    broken = "sh -c 'echo no such model >&2; sleep 1; exit 3'"  # tmux may lose what comes in the very last moment
    team = made(
        bare,
        admin={"command": ACTOR, "host": "plain"},
        a=showing(bare.base, "claude/dialog_trust"),
        b=showing(bare.base, "codex/dialog_hook_trust"),
        c=showing(bare.base, "claude/login"),
        d=broken,
        e="no-such-host {mcp_config}",
        f={"command": ACTOR, "spawn": "on_demand"},
        g={"type": "human"},
    )
    up = ("up", "--socket", terminal.socket, "--no-supervisor")
    ran = team.run(*up, "--json")
    assert ran.code == 1
    assert ran.json["ready"] is False
    states = {item["agent_id"]: item for item in ran.json["agents"]}
    assert {agent_id: item["state"] for agent_id, item in states.items()} == {
        "owner": "no_command",
        "admin": "ready",
        "a": "dialog:trust",
        "b": "dialog:hooks",
        "c": "dialog:login",
        "d": "ended",
        "e": "no_program",
        "f": "on_demand",
        "g": "no_command",
        "(owner)": "open",
    }
    assert "no-such-host" in states["e"]["note"]
    lines = states["d"]["last_lines"]  # tmux writes the second one a moment after the program has ended
    assert lines[0] == "no such model"
    assert all(line.startswith("Pane is dead (status 3") for line in lines[1:])
    assert panes(terminal) == {"admin": "0", "a": "0", "b": "0", "c": "0", "d": "1", "owner": "0"}

    shown = team.run(*up)  # the same once more, in words; only what has ended is started again
    assert (shown.code, shown.stderr) == (1, "")
    said = shown.stdout.splitlines()
    for words in ("a: asks to trust this folder", "b: asks about hooks", "c: not logged in", "   no such model"):
        assert words in said
    for words in ("   2  No, exit", "   2  Trust all and continue (it will not ask again) [Down Enter]"):
        assert words in said
    assert said[-1].startswith("to answer: multi-agent-mcp answer b CHOICE")
    dialogs = {item["agent_id"]: item["id"] for item in ran.json["dialogs"]}
    assert {name: team.services.listed_dialogs.of("owner", name) for name in ("a", "b")} == dialogs
    assert panes(terminal) == {"admin": "0", "a": "0", "b": "0", "c": "0", "d": "1", "owner": "0"}
    kept = team.services.agents.get("d").pane_id

    team.services.workspace.registry.update("d", command=ACTOR)
    again = team.run("up", "d", "admin", "--socket", terminal.socket, "--json")
    assert (again.code, again.json["ready"]) == (1, False)
    notes = {item["agent_id"]: (item["state"], item["note"]) for item in again.json["agents"]}
    assert notes["admin"] == ("ready", "ready")
    assert notes["d"][0] == "untyped"
    assert "No host profile describes" in notes["d"][1]
    assert panes(terminal)["d"] == "0"
    assert team.services.agents.get("d").pane_id != kept

    (bare.base / "leave").touch()
    terminal("respawn-pane", "-k", "-t", str(team.services.agents.get("a").pane_id), "exec cat")
    terminal("send-keys", "-t", str(team.services.agents.get("d").pane_id), "C-c")
    wait_until(lambda: panes(terminal)["d"] == "1", "d ends and its pane is kept")
    assert sorted(team.ask("down")["closed"]) == ["admin", "b", "c", "d", "owner"]
    assert panes(terminal) == {"a": "0"}, "what somebody else runs there is not ours"


def test_one_whose_server_does_not_come_is_not_ready(bare: Team, terminal: Terminal) -> None:
    (bare.base / "screen.txt").write_text("╭──╮\n│ Something new? │\n╰──╯\n", encoding="utf-8")
    host = showing(bare.base, "claude/idle").split()[0]
    team = made(bare, a="cat", b=f"{host} {bare.base}/screen.txt 0 3", c="cat", d=showing(bare.base, "claude/idle"))
    ran = team.run("up", "a", "b", "d", "--timeout", "1", "--socket", terminal.socket, "--json")
    assert ran.code == 1
    states = {item["agent_id"]: item["state"] for item in ran.json["agents"]}
    assert states == {"a": "no_server", "b": "unknown_screen", "d": "unconfigured"}
    (note,) = (item["note"] for item in ran.json["agents"] if item["agent_id"] == "d")
    assert "multi-agent-mcp agent set d --command claude; multi-agent-mcp restart d" in note
    refused = team.run("up", "c", "nobody", "--socket", terminal.socket)
    assert (refused.code, refused.stderr.partition(":")[2].split(":")[0]) == (1, " agent_not_found")
    assert panes(terminal) == {"a": "0", "b": "0", "d": "0"}


def test_variables_that_a_running_tmux_server_keeps_back_are_named_and_never_shown(
    bare: Team, terminal: Terminal
) -> None:
    team = made(bare, a=showing(bare.base, "claude/dialog_trust"), b="cat")
    env = {"ANTHROPIC_API_KEY": SECRET, "CLAUDE_CONFIG_DIR": "/x\ny", "OPENAI_ORGANIZATION": "o", "PAGER": "cat"}
    said = team.run(*UP, "--socket", terminal.socket, env=env)
    assert said.code == 0
    assert "ANTHROPIC_API_KEY, CLAUDE_CONFIG_DIR" in said.stdout
    assert SECRET not in said.stdout
    assert "PAGER" not in said.stdout
    assert "OPENAI" not in said.stdout, "nobody runs Codex here"
    remedy = next(line for line in said.stdout.splitlines() if "set-environment" in line).partition(": ")[2]
    subprocess.run(["sh", "-c", remedy], env={**team.env, **env}, check=True)
    tmux = team.ask(*UP, "--socket", terminal.socket, env=env)["tmux"]
    assert tmux["was_running"]
    assert tmux["withheld"] == []


def test_a_tmux_that_is_too_old_is_one_sentence_and_is_asked_for_nothing(bare: Team) -> None:
    team = made(bare, a="cat")
    old = bare.base / "old"
    old.mkdir()
    (old / "tmux").write_text('#!/bin/sh\n[ "$*" = "${*%-V}" ] || { echo \'tmux 3.2a\'; exit; }\nexit 1\n')
    (old / "tmux").chmod(0o755)
    ran = team.run("up", "--socket", bare.base / "s", env={"PATH": f"{old}:{team.env['PATH']}"})
    assert ran.code == 1
    assert "3.2a" in ran.stderr
    assert len(ran.stderr.splitlines()) == 1
    assert not (bare.base / "opened").exists()


def test_inside_tmux_the_terminal_is_shown_who_asks_and_elsewhere_how_to_attach(
    bare: Team, terminal: Terminal, other_terminal: Terminal
) -> None:
    team = made(bare, a={"command": ACTOR, "host": "plain"}, b=showing(bare.base, "codex/dialog_trust"))
    attach = f"env -u TMUX tmux -S {terminal.socket} attach -t =work"
    other_terminal("new-window", "-d", f"exec {attach}")
    client = ("list-clients", "-F", "#{session_name} #{pane_id}")
    wait_until(lambda: terminal(*client), "a person looks at the team's tmux server")
    here = terminal.pane("exec sh")
    up = f"{' '.join(COMMAND)} up --root {team.root} --no-supervisor --no-watch"
    terminal("select-window", "-t", here.id)
    terminal("send-keys", "-t", here.id, f"cd {REPOSITORY}; {up}; echo code $?", "Enter")
    name = team.ask(*UP, "owner", "--socket", terminal.socket)["tmux_session"]
    wait_until(lambda: "code 1" in here.screen, "up has ended")
    assert "asks to trust this folder" in here.screen
    assert terminal(*client) == f"{name} {team.services.agents.get('b').pane_id}"

    # From another server's terminal: no second team there, and the command leads to the team's.
    there = other_terminal.pane("exec sh")
    answer = team.ask(*UP, "--no-supervisor", env=there.env)
    assert answer["tmux"]["socket_path"] == terminal.socket
    assert {item["state"] for item in answer["agents"]} == {"no_command", "running"}
    other_terminal("send-keys", "-t", there.id, answer["attach"], "Enter")
    wait_until(lambda: len(terminal(*client).splitlines()) == 2, "its attach command works from inside tmux")
    assert {row.split()[0] for row in terminal(*client).splitlines()} == {name}


def test_restart_ends_an_agents_program_and_starts_its_command_again_in_its_window(
    bare: Team, terminal: Terminal
) -> None:
    team = made(bare, a=showing(bare.base, "claude/idle"), b={"command": ACTOR, "host": "plain"})
    team.ask(*UP, "--no-supervisor", "--socket", terminal.socket)
    where = ("list-panes", "-a", "-F", "#{pane_id} #{window_index} #{window_name} #{pane_pid}")
    before = dict(row.rsplit(" ", 1) for row in terminal(*where).splitlines())
    services = team.services
    services.agents.change("a", command=showing(bare.base, "codex/dialog_hook_trust"))
    services.hooks.answer("a", "task", Event("PostToolUse", host="claude"))  # the old program is still at work
    ran = team.run("restart", "a", "--json")
    assert (ran.code, ran.json["ready"]) == (1, False)
    (state,) = ran.json["agents"]
    assert (state["agent_id"], state["state"]) == ("a", "dialog:hooks"), "the screen is read as the new program's"
    after = dict(row.rsplit(" ", 1) for row in terminal(*where).splitlines())
    assert after.keys() == before.keys(), "every window is where it was"
    (changed,) = (place for place in before if after[place] != before[place])
    assert changed.endswith(" a")
    wait_until(lambda: not is_alive(int(before[changed]), None), "the former program has ended")

    team.services.agents.change("a", command=ACTOR, host="plain")
    shown = team.run("restart", "a")
    assert (shown.code, shown.stderr) == (0, "")
    assert "a: ready" in shown.stdout.splitlines()
    hint = "a goes on as it was started; its new command: multi-agent-mcp restart a"
    assert team.run("agent", "set", "a", "--command", f" {ACTOR}").stdout.splitlines()[-1] == hint
    assert hint not in team.run("agent", "set", "a", "--command", f" {ACTOR}").stdout, "it was so before"
    written = json.loads((team.base / "team.yaml").read_text(encoding="utf-8"))
    written["agents"][1] |= {"command": ACTOR, "host": "plain"}
    (team.base / "team.yaml").write_text(json.dumps(written), encoding="utf-8")
    assert hint in team.run("init", "--session", team.session).stdout.splitlines()
    pane = team.services.agents.get("a")
    assert f"{pane.pane_id} {pane.pane_pid}" in terminal("list-panes", "-a", "-F", "#{pane_id} #{pane_pid}")
    assert [item["state"] for item in team.ask("up", "a", "--no-wait")["agents"]] == ["running"], "it is still ours"
    (bare.base / "leave").touch()
    terminal("send-keys", "-t", str(pane.pane_id), "C-c")
    wait_until(lambda: panes(terminal)["a"] == "1", "its program has ended")
    (bare.base / "leave").unlink()
    assert [item["state"] for item in team.ask("restart", "a")["agents"]] == ["ready"]
    assert panes(terminal) == {"a": "0", "b": "0"}
    assert sorted(team.ask("down")["closed"]) == ["a", "b"]


def test_restart_after_down_opens_the_window_on_the_server_that_the_team_was_on_or_on_the_one_named(
    bare: Team, terminal: Terminal, other_terminal: Terminal
) -> None:
    team = made(bare, a={"command": ACTOR, "host": "plain"})
    team.ask(*UP, "--no-supervisor", "--socket", terminal.socket)
    for options, server in (((), terminal), (("--socket", other_terminal.socket), other_terminal)):
        team.ask("down")
        (state,) = team.ask("restart", "a", *options)["agents"]
        assert state["state"] == "ready"
        assert panes(server) == {"a": "0"}
    assert team.ask("down")["closed"] == ["a"]


def test_what_cannot_be_restarted_is_one_sentence_and_goes_on(bare: Team, terminal: Terminal) -> None:
    team = made(bare, a="cat", b={"type": "human"}, c="cat")
    team.ask(*UP, "a", "--no-supervisor", "--socket", terminal.socket)
    here = terminal.pane("exec cat")
    team.ask("agent", "set", "c", "--pane", here.id, "--socket", terminal.socket, "--host", "plain")
    program = terminal("list-panes", "-a", "-F", "#{window_name} #{pane_pid}")
    team.services.agents.change("a", command="no-such-host {mcp_config}")
    for agent_id, code, words in (
        ("a", "invalid_arguments", "no-such-host"),
        ("b", "invalid_arguments", "has no command"),
        ("c", "invalid_arguments", f"runs in pane {here.id}"),
        ("nobody", "agent_not_found", "nobody"),
    ):
        refused = team.run("restart", agent_id)
        assert (refused.code, refused.stdout) == (1, "")
        assert refused.stderr.startswith(f"multi-agent-mcp: {code}: ")
        assert words in refused.stderr
    assert team.run("restart").code == 2
    assert terminal("list-panes", "-a", "-F", "#{window_name} #{pane_pid}") == program


def test_an_agent_that_restarts_itself_ends_the_command_and_is_there_again(bare: Team, terminal: Terminal) -> None:
    team = made(bare, a="sh")
    up = (*UP, "--no-supervisor", "--socket", terminal.socket)
    (started,) = (item for item in team.ask(*up)["agents"] if item["agent_id"] == "a")
    pid = ("list-panes", "-a", "-f", f"#{{==:#{{pane_id}},{started['pane_id']}}}", "-F", "#{pane_pid}")
    before = terminal(*pid)
    restart = f"cd {REPOSITORY}; {' '.join(COMMAND)} restart a --root {team.root}"
    terminal("send-keys", "-t", started["pane_id"], restart, "Enter")
    wait_until(lambda: terminal(*pid) != before, "its window has a new program")
    assert [item["state"] for item in team.ask(*up)["agents"]] == ["no_command", "running"]
    assert str(team.services.agents.get("a").pane_pid) == terminal(*pid)


def test_attach_shows_an_agents_window_and_touches_no_other_tmux_server(
    bare: Team, terminal: Terminal, other_terminal: Terminal
) -> None:
    team = made(bare, a="cat", b="cat", c={"type": "human"})
    for arguments, words in ((), "multi-agent-mcp up"), (("b",), "multi-agent-mcp up b"):
        refused = team.run("attach", *arguments)
        assert (refused.code, len(refused.stderr.splitlines())) == (1, 1)
        assert refused.stderr.endswith(f"{words}\n")
    name = team.ask(*UP, "--no-supervisor", "--socket", terminal.socket)["tmux_session"]
    pane_a, pane_b = (team.services.agents.get(agent_id).pane_id for agent_id in "ab")
    refused = team.run("attach", "b")
    assert refused.code == 1
    command = f"tmux -S {terminal.socket} attach -t '={name}:.{pane_b}'"
    assert refused.stderr.endswith(f"In one, run: {command}\n"), "without a terminal"
    assert team.run("attach", "c").code == 1
    client = ("list-clients", "-F", "#{session_name} #{pane_id}")
    attach = f"{' '.join(COMMAND)} attach --root {team.root}"

    # From another server's terminal it is refused, and the command that it names leads there.
    there = other_terminal.pane("exec sh")
    other_terminal("send-keys", "-t", there.id, f"cd {REPOSITORY}; {attach} b; echo code $?", "Enter")
    wait_until(lambda: "code 1" in there.screen, "refused inside another tmux server")
    assert f"env -u TMUX {command}" in there.screen.replace("\n", "")
    assert terminal(*client) == ""

    # From a terminal outside tmux.
    other_terminal("send-keys", "-t", there.id, f"unset TMUX TMUX_PANE; {attach} b", "Enter")
    wait_until(lambda: terminal(*client) == f"{name} {pane_b}", "b is shown")

    # From a terminal of the team's own server.
    terminal("send-keys", "-t", str(pane_b), "C-c")
    here = terminal.pane("exec sh")
    terminal("switch-client", "-t", here.id)
    terminal("send-keys", "-t", here.id, f"cd {REPOSITORY}; {attach} a", "Enter")
    wait_until(lambda: terminal(*client) == f"{name} {pane_a}", "a is shown")
    assert other_terminal(*client) == ""


def processes_of(terminal: Terminal) -> list[int]:
    return [int(pid) for pid in terminal("list-panes", "-a", "-F", "#{pane_pid}").splitlines()]


def test_a_socket_that_a_cleaner_removed_is_asked_for_again_and_nobody_is_started_twice(
    bare: Team, terminal: Terminal
) -> None:
    team = made(bare, worker_a={"command": ACTOR, "host": "plain"})
    assert team.ask(*UP, "--no-supervisor", "--socket", terminal.socket)["ready"]
    before = processes_of(terminal)
    Path(terminal.socket).unlink()
    assert team.ask(*UP, "--no-supervisor", "--socket", terminal.socket)["ready"]
    assert processes_of(terminal) == before
    Path(terminal.socket).unlink()
    assert team.ask("down")["closed"] == ["worker-a"]
    assert not any(is_alive(pid, None) for pid in set(before) - set(processes_of(terminal)))


def test_an_agent_that_a_person_has_started_in_a_plain_terminal_is_not_started_twice(
    bare: Team, terminal: Terminal
) -> None:
    team = made(bare, a={"command": ACTOR, "host": "plain"})
    named = {"ROOT": str(team.root), "SESSION": team.session, "AGENT": "a"}
    environment = {**os.environ, **team.env, **{f"MULTI_AGENT_MCP_{name}": value for name, value in named.items()}}
    words = ["/bin/sh", "-c", f"exec {ACTOR}"]
    pid, screen = pty.fork()
    if pid == 0:
        os.execve(words[0], words, environment)  # noqa: S606 - the child becomes the program
    try:
        wait_until(lambda: team.services.sessions.alive("a"), "its program runs")
        opened = team.ask(*UP, "--no-supervisor", "--socket", terminal.socket)
        assert [(item["state"], item["note"]) for item in opened["agents"] if item["agent_id"] == "a"] == [
            ("elsewhere", f"is already running, as process {pid}")
        ]
        restarted = team.run("restart", "a", "--socket", terminal.socket)
        assert restarted.code == 1
        assert f"as process {pid}. End it there, then: multi-agent-mcp up a" in restarted.stderr
        team.services.task_creation.create(team.services.agents.get("owner"), [NewTask(title="t", assignee_id="a")])
        assert [slot.agent_id for slot in team.services.missing_sessions.needed()] == []
        assert panes(terminal) == {}
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(screen)
    assert team.ask(*UP, "--no-supervisor", "--socket", terminal.socket)["ready"]
    assert panes(terminal) == {"a": "0"}


def test_behind_a_socket_that_another_server_has_taken_nobody_is_started_twice_and_down_ends_who_lives_there(
    bare: Team, terminal: Terminal
) -> None:
    team = made(bare, a={"command": ACTOR, "host": "plain"}, b={"type": "human"})
    up = ("up", "--no-wait", "--socket", terminal.socket)
    assert team.ask(*up)["ready"]
    team.services.conversations.begin(team.services.agents.get("b"), team.services.agents.get("a"), "are you there?")
    wait_until(lambda: "a-chat" in panes(terminal), "a window for the chat session")
    wait_until(lambda: "tmux_server" in team.services.missing_sessions.windows()[Slot("a", "chat")].pane, "recorded")
    theirs = terminal("list-panes", "-a", "-f", "#{!=:#{session_name},work}", "-F", "#{pane_pid}").splitlines()
    server = int(terminal("display-message", "-p", "#{pid}"))
    Path(terminal.socket).unlink()
    terminal("new-session", "-d", "-s", "work", "exec cat")
    try:
        done = team.run(*up, "--json")
        assert done.code == 1
        states = {item["agent_id"]: (item["state"], item["note"]) for item in json.loads(done.stdout)["agents"]}
        assert {name: states[name][0] for name in ("a", "(owner)", "(supervisor)")} == {
            "a": "refused",
            "(owner)": "refused",
            "(supervisor)": "elsewhere",
        }
        assert "multi-agent-mcp down a" in states["a"][1]
        assert states["(owner)"][1].endswith("multi-agent-mcp down")
        assert panes(terminal) == {}
        assert all(is_alive(int(pid), None) for pid in theirs)
        assert {"a", "a-chat", "owner"} <= set(team.ask("down")["closed"])
        wait_until(lambda: not any(is_alive(int(pid), None) for pid in theirs), "they have ended")
        assert "lost" not in team.ask("down")
    finally:
        os.kill(server, signal.SIGTERM)


def test_where_another_mount_hides_the_socket_nobody_is_started_twice_and_down_ends_the_team(
    bare: Team, terminal: Terminal
) -> None:
    """As a service with a /tmp of its own, or a login with another TMUX_TMPDIR, looks at the team."""
    hidden = ["unshare", *(["-m"] if os.getuid() == 0 else ["-rm"]), "sh", "-c"]
    hidden.append(f'mount -t tmpfs none {Path(terminal.socket).parent} && exec "$@"')
    if subprocess.run([*hidden, "sh", "true"], capture_output=True, check=False).returncode:
        pytest.skip("this machine allows no mounts of one's own")
    team = made(bare, a={"command": ACTOR, "host": "plain"})
    assert team.ask(*UP, "--socket", terminal.socket)["ready"]
    theirs = terminal("list-panes", "-a", "-f", "#{!=:#{session_name},work}", "-F", "#{pane_pid}").splitlines()

    def there(*words: str) -> Any:
        environment = {**team.env, "MULTI_AGENT_MCP_ROOT": str(team.root)}
        return run((*hidden, "sh", *COMMAND, *words), env=environment, cwd=team.base)

    said = there("doctor").stdout
    assert "cannot be reached from here" in said
    assert "multi-agent-mcp up a" in said
    opened = there("up", "a", "--no-wait")
    assert (opened.code, "multi-agent-mcp down a" in opened.stdout) == (1, True)
    assert there("down", "a").stdout.strip().startswith("closed: a")
    opened = there("up", "a", "--no-wait", "--no-attach")
    assert (opened.code, "starting" in opened.stdout) == (0, True)
    assert "closed: a" in there("down").stdout
    wait_until(lambda: not any(is_alive(int(pid), None) for pid in theirs), "the team has ended")
    assert not team.services.sessions.running("a")
