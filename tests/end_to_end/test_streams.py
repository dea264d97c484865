"""Standard streams that are closed, that nobody reads, that lack characters: one sentence each, or it simply works."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping

import pytest

from multi_agent_mcp.services.tasks.board import NewTask
from tests.end_to_end.support import COMMAND, PATIENCE_SECONDS, UP, Ran, Team, Terminal

TITLE = "見積もりの計算"
CONTENT = "日本語の本文"
CLOSED = "multi-agent-mcp: storage_error: standard output is closed; nothing was done\n"
EVERY_KIND = (
    ("agent", "list"),
    ("read",),
    ("down",),
    ("watch", "--once"),
    ("web",),
    ("--version",),
)


@pytest.fixture
def talkative(team: Team) -> Team:
    """A team with Japanese in its task and in the Owner's mail."""
    services = team.services
    services.task_creation.create(services.agents.get("admin"), [NewTask(title=TITLE, assignee_id="worker-a")])
    team.post("owner", CONTENT)
    return team


def in_shell(team: Team, script: str, *command: str, env: Mapping[str, str] | None = None) -> Ran:
    """A command in a shell: `"$@" >&-` closes its standard output."""
    environment = {**team.env, "MULTI_AGENT_MCP_ROOT": str(team.root), **(env or {})}
    done = subprocess.run(
        ["sh", "-c", script, "sh", *COMMAND, *command],
        env=environment,
        cwd=team.base,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )
    errors = done.stderr.decode(errors="replace")
    assert "Traceback" not in errors, errors
    return Ran(done.returncode, done.stdout.decode(errors="replace"), errors)


@pytest.mark.parametrize("command", EVERY_KIND, ids=lambda command: command[0])
def test_a_closed_standard_output_is_one_sentence_and_nothing_is_done(
    talkative: Team, command: tuple[str, ...]
) -> None:
    ran = in_shell(talkative, '"$@" >&-', *command)
    assert (ran.code, ran.stderr) == (1, CLOSED)
    assert len(talkative.unread("owner")) == 1


def test_a_hook_whose_answer_nobody_reads_does_the_rest_and_fails_no_host(talkative: Team) -> None:
    event = json.dumps({"hook_event_name": "StopFailure", "error": "rate_limit"})
    ran = in_shell(talkative, f"echo '{event}' | \"$@\" >&-", "hook", "--host", "claude", "--agent", "worker-a")
    assert (ran.code, ran.stderr) == (0, "")
    assert (talkative.path / ".limits" / "worker-a.json").is_file()


def test_closed_standard_input_and_error_are_in_nobodys_way(talkative: Team) -> None:
    assert "worker-a" in in_shell(talkative, '"$@" 2>&- <&-', "agent", "list").stdout
    assert in_shell(talkative, '"$@" 2>&- >&-', "agent", "list").code == 1
    assert in_shell(talkative, '"$@" <&-', "send", "worker-a", "hello").code == 0


@pytest.mark.parametrize("command", [("agent", "list"), ("read",), ("web",)], ids=lambda command: command[0])
@pytest.mark.parametrize("full", [False, True], ids=["no reader", "full disk"])
def test_an_output_that_cannot_be_written_ends_the_command_and_consumes_nothing(
    talkative: Team, command: tuple[str, ...], *, full: bool
) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as unread, open("/dev/full", "w") as filled:
        done = subprocess.run(
            [*COMMAND, *command],
            env={**talkative.env, "MULTI_AGENT_MCP_ROOT": str(talkative.root)},
            stdout=filled if full else unread,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            encoding="utf-8",
            check=False,
            timeout=PATIENCE_SECONDS,
        )
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) <= 1
    assert len(talkative.unread("owner")) == 1


def test_a_command_that_was_carried_out_says_so_when_its_output_cannot_be_written(team: Team) -> None:
    ran = in_shell(team, '"$@" >/dev/full', "send", "worker-a", "hello")
    done = "multi-agent-mcp: storage_error: done, but standard output cannot be written: No space left on device\n"
    assert (ran.code, ran.stderr) == (1, done)
    assert len(team.unread("worker-a")) == 1
    refused = in_shell(team, '"$@" >/dev/full', "send", "nobody", "hello", "--json")
    assert refused.code == 1
    assert "done" not in refused.stderr
    assert in_shell(team, '"$@" >/dev/full 2>&1', "send", "nobody", "hello").code == 1


@pytest.mark.parametrize(("encoding", "shown"), [("ascii", "???"), ("euc-jp", TITLE), ("latin-1", "???")])
def test_letters_that_an_encoding_has_not_are_replaced_in_tables_and_kept_in_json(
    talkative: Team, encoding: str, shown: str
) -> None:
    env = {**talkative.env, "PYTHONIOENCODING": encoding, "MULTI_AGENT_MCP_ROOT": str(talkative.root)}

    def output(*command: str) -> bytes:
        done = subprocess.run([*COMMAND, *command], env=env, capture_output=True, check=True, timeout=PATIENCE_SECONDS)
        assert b"Traceback" not in done.stderr
        return done.stdout

    assert shown in output("task", "list").decode(encoding)
    assert shown in output("watch", "--once").decode(encoding)
    assert json.loads(output("task", "list", "--json"))["tasks"][0]["title"] == TITLE


def test_a_content_in_the_wrong_encoding_is_one_sentence(team: Team) -> None:
    for encoding in ("utf-8", "ascii"):
        env = {"PYTHONIOENCODING": encoding, "LC_ALL": "en_US.UTF-8"}
        ran = team.run("send", "worker-a", "-", stdin=b"\xe6\x97\xff", env=env)
        assert ran.code == 1
        assert ran.stderr.startswith("multi-agent-mcp: invalid_arguments: ")
    assert team.mailbox("worker-a") == []


def test_an_age_beyond_the_calendar_is_older_than_everything(team: Team) -> None:
    for age in ("1e9", "800000", "inf"):
        assert team.ask("prune", "--older-than", age)["files"] == []
    assert team.run("prune", "--older-than", "nan").code == 2


@pytest.mark.tmux
def test_up_and_down_do_without_a_locale(bare: Team, terminal: Terminal) -> None:
    text = "agents: [{id: owner, role: owner, type: human}, {id: a, name: 甲, command: cat}]"
    team = bare.make(text)
    for env in ({"LC_ALL": "C"}, {"LC_ALL": "POSIX", "PYTHONIOENCODING": "ascii"}):
        assert team.ask(*UP, "--socket", terminal.socket, "--no-supervisor", env=env)["agents"][1]["pane_id"]
        assert team.ask("down", env=env)["closed"] == ["a"]


def test_what_the_system_refuses_is_said_with_the_path(team: Team) -> None:
    refused = team.run("unread", "--root", team.base / ("x" * 300))
    assert (refused.code, refused.stdout) == (1, "")
    assert refused.stderr.endswith(f"{'x' * 300}: File name too long\n")
