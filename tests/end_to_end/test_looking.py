"""Commands for looking on, as processes of their own: `timeline` and `watch` (docs/protocol.md, Commands)."""

from __future__ import annotations

import shlex
from xml.etree import ElementTree

import pytest

from tests.end_to_end.support import COMMAND, Pane, Team, Terminal, wait_until


def test_the_timeline_is_a_table_a_picture_or_data(team: Team) -> None:
    task = team.ask("task", "add", "Build it", "--assignee", "worker-a")["task_id"]
    team.ask("task", "status", task, "in_progress", "--as", "worker-a")
    team.ask("task", "status", task, "blocked", "--reason", "wait")
    team.send("worker-b", "hello", subject="a\nsubject")
    table = team.run("timeline").stdout
    for told in ("タスク in_progress", "割り込み blocked", "owner → worker-a", "admin → worker-b", "a subject"):
        assert told in table
    data = team.ask("timeline")
    assert [arrow["subject"] for arrow in data["arrows"]] == ["a\nsubject"]
    assert [mark["by"] for mark in data["marks"]] == ["owner"]
    picture = team.base / "picture.svg"
    assert team.run("timeline", "--svg", picture).stdout == f"{picture}\n"
    drawn = picture.read_text(encoding="utf-8")
    assert task in {element.get("data-id") for element in ElementTree.fromstring(drawn).iter()}  # noqa: S314 - ours
    assert team.run("timeline", "--svg", "-").stdout == drawn
    assert team.ask("timeline", "--to", "2026-01-01")["arrows"] == []
    refused = team.run("timeline", "--from", "yesterday", "--json")
    assert (refused.code, refused.json["error"]) == (1, "invalid_arguments")


def test_watch_once_is_plain_text_and_data_for_scripts(team: Team) -> None:
    task = team.ask("task", "add", "Build it", "--assignee", "worker-a")["task_id"]
    team.send("worker-b", "hello", subject="a subject")
    told = team.run("watch", "--once", env={"FORCE_COLOR": "1"}).stdout
    assert "\x1b" not in told
    for text in ("demo · ", " · todo 1\n", "  admin", "Build it", "admin → worker-b", "stored: no_pane", "a subject"):
        assert text in told
    calm = team.services.people("attention.nothing")
    assert team.run("watch").stdout.splitlines()[0] == f"demo · {calm} · todo 1"
    team.ask("task", "status", task, "blocked", "--reason", "no bricks")
    data = team.ask("watch", "--messages", "1")
    assert [(item["kind"], item["id"]) for item in data["attention"]] == [("blocked", task)]
    assert [item["id"] for item in data["tasks"]] == [task]
    assert [item["state"] for item in data["messages"]] == ["stored"]


def _watching(team: Team, terminal: Terminal, *options: str) -> Pane:
    """`watch` in a pane; what it ended with is there afterwards, and `cat` says whether it echoes."""
    command = shlex.join([*COMMAND, "watch", *options, "--root", str(team.root)])
    return terminal.pane(f"cd {team.base}; trap : INT; {command}; echo ended with $?; stty -a; exec cat")


@pytest.mark.tmux
def test_watch_shows_at_once_what_another_process_changes_and_follows_the_terminals_size(
    team: Team, terminal: Terminal
) -> None:
    pane = _watching(team, terminal, "--plain")
    wait_until(lambda: "q で終了" in pane.screen, "the screen stands")
    team.ask("task", "add", "ログイン画面を作る", "--assignee", "worker-a")
    wait_until(lambda: "未着手 1" in pane.screen and "ログイン画面を作る" in pane.screen, "the task appears")
    team.send("worker-b", "hello", subject="件名")
    wait_until(lambda: "admin → worker-b" in pane.screen and "件名" in pane.screen, "the message appears")
    team.ask("agent", "add", "newcomer", "--parent", "admin")
    wait_until(lambda: "newcomer" in pane.screen, "the new agent appears")
    terminal("resize-window", "-t", pane.id, "-x", "60", "-y", "10")
    wait_until(lambda: "… 残り" in pane.screen and "q で終了" in pane.screen, "it fits into the smaller window")
    assert len(pane.screen.splitlines()) <= 10


@pytest.mark.tmux
def test_watch_steers_the_team_by_commands_which_it_shows(team: Team, terminal: Terminal) -> None:
    task = team.ask("task", "add", "ログイン画面を作る", "--assignee", "worker-a")["task_id"]
    pane = _watching(team, terminal)
    wait_until(lambda: "q で終了" in pane.screen, "the screen stands")
    team.send("owner", "hello", subject="件名")
    wait_until(lambda: "件名" in pane.screen, "what waits appears")
    terminal("send-keys", "-t", pane.id, "Tab", "Tab")
    wait_until(lambda: f"── {task}" in pane.screen, "the task is chosen")
    terminal("send-keys", "-t", pane.id, "b")
    terminal("send-keys", "-t", pane.id, "-l", "no bricks")
    command = f"$ multi-agent-mcp task status --root {team.root} --reason 'no bricks' {task} blocked"
    wait_until(lambda: "".join(command.split()) in "".join(pane.screen.split()), "the command is shown before it runs")
    terminal("send-keys", "-t", pane.id, "Enter")
    wait_until(lambda: "ブロック中 1" in pane.screen, "the list follows")
    assert team.ask("task", "show", task)["task"]["blocked_reason"] == "no bricks"
    terminal("resize-window", "-t", pane.id, "-x", "60", "-y", "10")
    wait_until(lambda: len(pane.screen.splitlines()) <= 10 and "q で終了" in pane.screen, "it fits a smaller window")


@pytest.mark.tmux
@pytest.mark.parametrize(("key", "options"), [("q", ()), ("C-c", ()), ("q", ("--plain",))])
def test_watch_ends_by_a_key_and_gives_the_terminal_back(
    team: Team, terminal: Terminal, key: str, options: tuple[str, ...]
) -> None:
    pane = _watching(team, terminal, *options)
    wait_until(lambda: "q で終了" in pane.screen, "the screen stands")
    assert pane.fact("alternate_on") == "1"
    terminal("send-keys", "-t", pane.id, key)
    wait_until(lambda: "ended with 0" in pane.screen and pane.fact("pane_current_command") == "cat", "it has ended")
    assert (pane.fact("alternate_on"), pane.fact("cursor_flag")) == ("0", "1")
    assert " icanon" in pane.screen
    assert " -echo " not in pane.screen
