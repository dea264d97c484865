"""The options that commands share: `--root`, `--session`, `--as`, `--json`, and how refusals end a command."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from multi_agent_mcp.cli import main
from multi_agent_mcp.cli.main import app
from tests.cli.conftest import Ask, Run

SHARED = ["root", "session", "acting", "as_json"]
ACTING = {
    *("send", "reply", "read", "unread", "web", "attention", "answer", "send-task", "wait end"),
    *("interrupt", "resume", "reserve", "release", "workspace merge", "questions"),
    *("task add", "task show", "task status", "task assign", "task approve"),
    *("task diff", "task reject"),
    *("conversation start", "conversation say", "conversation end"),
}
WITHOUT_JSON = {"lease", "attach", "supervise", "relay", "host learn"}
WITHOUT_SESSION = {"serve", "hook", "demo", "init", "help", "join", "doctor trust"}


def _commands(group: click.Group, path: str = "") -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None, name
        if isinstance(command, click.Group):
            if command.invoke_without_command:
                yield f"{path}{name}", command
            yield from _commands(command, f"{path}{name} ")
        else:
            yield f"{path}{name}", command


COMMANDS = dict(_commands(app))


@pytest.mark.parametrize("name", sorted(set(COMMANDS) - WITHOUT_SESSION))
def test_every_command_on_a_session_ends_with_the_same_options_in_the_same_order(name: str) -> None:
    expected = [
        option
        for option in SHARED
        if (option != "acting" or name in ACTING) and (option != "as_json" or name not in WITHOUT_JSON)
    ]
    names = [parameter.name for parameter in COMMANDS[name].params]
    assert [option for option in names if option in SHARED] == expected
    assert names[len(names) - len(expected) :] == expected


@pytest.mark.parametrize("name", sorted(set(COMMANDS) - {"serve", "hook"}))
def test_every_command_has_a_help(run: Run, name: str) -> None:
    shown = run(*name.split(), "--help")
    assert shown.exit_code == 0
    assert shown.stdout.startswith(f"Usage: multi-agent-mcp {name}")


@pytest.mark.parametrize("name", ["agent", "task", "workspace"])
def test_the_list_of_commands_below_one_says_whole_sentences(run: Run, name: str) -> None:
    shown = run(name, "--help").stdout.partition("Commands:\n")[2]
    assert "..." not in shown
    first = [" ".join(item.split()) for item in re.split(r"\n  (?=\S)", shown)]
    assert [line for line in first if not line.endswith(".")] == []


def test_the_root_and_the_session_are_found_by_options_from_anywhere(
    run: Run, session: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    found = run("agent", "list", "--root", str(session.parent), "--session", "demo", "--json")
    assert [agent["id"] for agent in json.loads(found.stdout)["agents"]] == ["owner", "admin", "worker-a"]


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (("unread", "ghost"), "agent_not_found", "ghost"),
        (("unread", "--as", "ghost"), "agent_not_found", "ghost"),
        (("unread", "admin", "--as", "ghost"), "agent_not_found", "ghost"),
        (("task", "list", "--assignee", "ghost"), "agent_not_found", "ghost"),
        (("log", "--agent", "ghost"), "agent_not_found", "ghost"),
        (("search", "login", "from:ghost"), "agent_not_found", "ghost"),
        (("search", "to:ghost"), "agent_not_found", "ghost"),
        (("unread", "--session", "other"), "invalid_session", "other"),
        (("task", "show", "tsk_0123456789ab"), "task_not_found", "tsk_0123456789ab"),
        (("agent", "set", "admin"), "invalid_arguments", ""),
        (("trace", "nothing"), "message_not_found", "nothing"),
        (("timeline", "--from", "yesterday"), "invalid_arguments", "--from"),
        (("conversations", "x"), "invalid_id", "x"),
    ],
)
@pytest.mark.usefixtures("session")
def test_a_refusal_is_one_sentence_and_exit_code_1(
    run: Run, arguments: tuple[str, ...], code: str, sentence: str
) -> None:
    refused = run(*arguments)
    assert (refused.exit_code, refused.stdout) == (1, "")
    (line,) = refused.stderr.splitlines()
    assert line.startswith(f"multi-agent-mcp: {code}: ")
    assert sentence in line
    in_json = run(*arguments, "--json")
    answer = json.loads(in_json.stdout)
    assert (in_json.exit_code, in_json.stderr) == (1, "")
    assert (answer["success"], answer["error"]) == (False, code)
    assert answer["message"] in line


NO_SUCH_CHOICE = {
    "interrupt admin --action zap": "--action must be one of: blocked, cancel, pause",
    "host-config zap --agent admin": "HOST must be one of: claude, codex, gemini, opencode, copilot",
    "init --admin zap": "claude, codex",
    "init --workers claude,": "claude, codex",
    "init --language zap": "ja, en",
    "agent add x --role zap": "owner, admin, worker",
    "agent add x --type zap": "ai, human",
    "send admin x --type zap": "request, response",
    "send admin x --priority zap": "low, normal",
    "task add x --priority zap": "low, medium",
    "task list --status zap": "backlog, todo",
    "task status tsk_0123456789ab zap": "STATUS must be one of: backlog, todo",
    "send-task admin x y --priority zap": "low, medium",
    "demo zap": "main, interrupt",
    "demo --language zap": "ja, en",
}


@pytest.mark.parametrize("arguments", ["nothing", "send", "read --limit 0", "prune --older-than x", *NO_SUCH_CHOICE])
def test_wrong_use_is_exit_code_2(run: Run, arguments: str) -> None:
    assert run(*arguments.split()).exit_code == 2


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("nothing --json", "nothing"),
        ("send --json", "RECEIVER"),
        ("read --json --limit 0", "--limit"),
        ("search x --json --limit x", "--limit"),
        ("read --json --nothing", "--nothing"),
        ("read --json --as", "--as"),
        ("read a b c --json", "b c"),
        *((f"{command} --json", values) for command, values in NO_SUCH_CHOICE.items() if "demo" not in command),
    ],
)
def test_wrong_use_is_an_object_for_those_who_asked_for_json(
    arguments: str, says: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["multi-agent-mcp", *arguments.split()])
    with pytest.raises(SystemExit) as ended:
        main.run()
    printed = capsys.readouterr()
    answer = json.loads(printed.out)
    assert (ended.value.code, printed.err) == (2, "")
    assert (answer["success"], answer["error"]) == (False, "invalid_arguments")
    assert says in answer["message"]


def test_what_comes_after_two_dashes_asks_for_no_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["multi-agent-mcp", "reply", "--", "--json", "x", "y", "z"])
    with pytest.raises(SystemExit):
        main.run()
    assert capsys.readouterr().out == ""


def test_the_history_of_a_removed_agent_can_be_selected(ask: Ask) -> None:
    task = ask("task", "add", "Dig", "--assignee", "worker-a")["task_id"]
    ask("task", "status", task, "cancelled")
    ask("agent", "remove", "worker-a")
    assert ask("task", "list", "--assignee", "worker-a")["total_count"] == 1
    assert len(ask("search", "to:worker-a")["results"]) == 1
    assert ask("search", "nothing", "to:worker-a")["results"] == []
    assert ask("log", "--agent", "worker-a")["executions"] == []


def test_without_a_session_nothing_is_made(run: Run, tmp_path: Path) -> None:
    assert run("agent", "list").exit_code == 1
    assert list(tmp_path.iterdir()) == []


def test_a_command_acts_for_the_owner_or_for_whom_as_names(ask: Ask) -> None:
    ask("send", "worker-a", "by the owner")
    ask("send", "worker-a", "by the admin", "--as", "admin")
    senders = [message["sender_id"] for message in ask("read", "worker-a", "--peek")["messages"]]
    assert sorted(senders) == ["admin", "owner"]
    assert ask("unread", "--as", "worker-a") == ask("unread", "worker-a", "--as", "admin")
    assert ask("unread")["agent_id"] == "owner"


GIANT = "x" * 90_000
REFUSED = (
    *("{}", "--{}", "help {}", "unread --{}", "unread x {}", "unread {}", "unread --session {}", "doctor trust /{}"),
    *("web --port {}", "task status x {}", "task {}", "task show {}", "unread --as {} --json", "unread --{} --json"),
    *("trace {}", "search from:{}", "agent add {}", "answer {}", "interrupt admin --action {}", "timeline --{}"),
    *("init --language {}", "init --name {}", "--show-completion {}", "join {}"),
)


@pytest.mark.parametrize("locale", ["C.UTF-8", "ja_JP.UTF-8"])
@pytest.mark.usefixtures("session")
def test_no_refusal_of_a_command_repeats_a_giant_argument(
    locale: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LC_ALL", locale)
    lengths = {}
    for arguments in REFUSED:
        monkeypatch.setattr(sys, "argv", ["multi-agent-mcp", *(word.format(GIANT) for word in arguments.split())])
        with pytest.raises(SystemExit) as ending:
            main.run()
        assert ending.value.code, arguments
        said = capsys.readouterr()
        lengths[arguments] = len(said.out + said.err)
    assert {arguments: length for arguments, length in lengths.items() if not 20 < length < 9_000} == {}


@pytest.mark.parametrize("option", ["--name", "--command", "--host"])
def test_text_that_is_not_utf8_is_refused_and_changes_nothing(run: Run, session: Path, option: str) -> None:
    before = sorted(session.rglob("*")), (session / "agents.json").read_bytes()
    for command in (("add", "worker-b"), ("set", "admin")):
        refused = run("agent", *command, option, os.fsdecode(b"b\xff"), "--json")
        answer = json.loads(refused.stdout)
        assert (answer["error"], option.strip("-") in answer["message"]) == ("invalid_arguments", True)
    assert (sorted(session.rglob("*")), (session / "agents.json").read_bytes()) == before


@pytest.mark.parametrize("command", ["unread admin", "init"])
def test_json_is_answered_also_where_the_system_refuses(
    run: Run, tmp_path: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    refused = run(*command.split(), "--json")
    assert (refused.exit_code, json.loads(refused.stdout)["error"], refused.stderr) == (1, "storage_error", "")


def test_the_home_of_an_unknown_user_is_no_place(run: Run) -> None:
    refused = run("unread", "--root", "~nobody-here/x", "--json")
    assert json.loads(refused.stdout)["error"] == "invalid_session"
