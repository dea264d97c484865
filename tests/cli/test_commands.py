"""Output of single commands, for people and as JSON."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from multi_agent_mcp.bootstrap import open_session
from multi_agent_mcp.cli.context import indented
from multi_agent_mcp.cli.rendering import titled_table
from multi_agent_mcp.demo.commands import NAMES
from multi_agent_mcp.demo.scenes import SCENES
from multi_agent_mcp.store import locks
from multi_agent_mcp.texts import Texts
from tests.cli.conftest import Ask, Run


def test_a_task_is_added_moved_assigned_and_shown(ask: Ask, run: Run) -> None:
    task_id = ask("task", "add", "Build it", "--description", "all of it", "--assignee", "worker-a")["task_id"]
    assert ask("task", "add", "Later")["status"] == "backlog"
    moved = ask("task", "status", task_id, "in_progress", "--as", "worker-a")
    assert (moved["previous_status"], moved["new_status"]) == ("todo", "in_progress")
    assert [task["title"] for task in ask("task", "list")["tasks"]] == ["Build it", "Later"]
    assert ask("task", "list", "--assignee", "worker-a", "--status", "in_progress")["total_count"] == 1
    shown = run("task", "show", task_id).stdout
    assert "   all of it" in shown.splitlines()
    assert "status todo → in_progress" in shown
    blocked = run("task", "status", task_id, "blocked", "--reason", "wait")
    assert blocked.stdout == f"{task_id}: in_progress → blocked, worker-a is interrupted\n"
    assert run("task", "assign", task_id).stdout == f"{task_id}: worker-a → nobody\n"


def test_who_writes_to_an_agent_that_does_not_run_is_told_who_starts_it(ask: Ask, run: Run, session: Path) -> None:
    by_hand = "stored; worker-a was not rung: It has no pane to ring in"
    by_up = "stored; worker-a was not rung, as it does not run: multi-agent-mcp up worker-a starts it, and it gets this"
    by_supervisor = "stored; worker-a does not run: the supervisor starts it for this"
    assert run("send", "worker-a", "hello").stdout.splitlines()[1].startswith(by_hand)
    ask("agent", "set", "worker-a", "--command", "cat")
    task = ("task", "add", "Dig", "--assignee", "worker-a")
    assert " ".join(run(*task).stdout.split()[1:]).startswith(by_up)
    services = open_session(session.parent, session.name)
    services.supervision.begin()
    assert " ".join(run(*task).stdout.split()[1:]) == by_supervisor
    services.missing_sessions.put_down("worker-a")
    assert " ".join(run(*task).stdout.split()[1:]).startswith(by_up)


def test_a_message_is_sent_from_standard_input_read_and_traced(ask: Ask, run: Run) -> None:
    sent = run("send", "admin", "-", "--subject", "Hello", input="two\nlines\n")
    message_id = sent.stdout.splitlines()[0]
    assert sent.stdout.splitlines()[1].startswith("stored; admin was not rung: ")
    peeked = run("read", "admin", "--peek").stdout
    assert [line for line in peeked.splitlines() if line in ("   two", "   lines")] == ["   two", "   lines"]
    assert ask("unread", "admin")["unread_count"] == 1
    assert ask("read", "admin")["unread_remaining"] == 0
    (copy,) = ask("trace", message_id)["copies"]
    assert [copy["steps"][0]["state"], copy["state"]] == ["stored", "read"]
    assert "admin" in run("trace", message_id).stdout


def test_mail_that_is_printed_and_cannot_be_marked_is_said_to_be_unread(
    ask: Ask, run: Run, session: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("send", "admin", "one")
    run("send", "admin", "two")
    monkeypatch.setattr(locks, "LOCK_SECONDS", 0.02)
    with open_session(session.parent, session.name).workspace.locks.lock("mailbox-admin"):
        read, as_json = run("read", "admin"), run("read", "admin", "--json")
    assert (read.exit_code, as_json.exit_code) == (1, 1)
    assert "   one" in read.stdout.splitlines()
    assert read.stdout.splitlines()[-1] == "messages: 2; still unread: 2"
    assert "storage_error" in read.stderr
    assert json.loads(as_json.stdout)["count"] == 2
    assert "storage_error" in as_json.stderr
    assert ask("unread", "admin")["unread_count"] == 2
    assert run("read", "admin").stdout.splitlines()[-1] == "messages: 2; still unread: 0"


def test_the_name_of_a_host_alone_is_a_command_that_starts_it_with_our_server(ask: Ask, session: Path) -> None:
    added = ("--parent", "admin", "--host", "claude", "--command")
    ask("agent", "add", "worker-b", *added, "claude")
    record = json.loads((session / "agents.json").read_text(encoding="utf-8"))["agents"]["worker-b"]
    assert record["command"] == "claude --mcp-config {mcp_config}"
    changed = ask("agent", "set", "worker-b", "--command", "codex")
    assert (changed["command"], changed["host"]) == ("codex {mcp_config}", "codex")
    assert ask("agent", "set", "worker-b", "--command", "/opt/bin/gemini")["command"] == "/opt/bin/gemini {mcp_config}"
    for own in ("codex --yolo", "codex {mcp_config} -c x=1", "vim", "claude; codex"):
        assert ask("agent", "set", "worker-b", "--command", own)["command"] == own


def test_agents_are_added_changed_listed_and_removed(ask: Ask, run: Run, session: Path) -> None:
    added = ask("agent", "add", "worker-b", "--parent", "admin", "--command", "cat")
    assert Path(added["key_file"]) == session / "secrets" / "worker-b.key"
    assert ask("agent", "set", "worker-b", "--name", "Bee")["name"] == "Bee"
    assert run("agent", "set", "worker-b", "--command", "").stdout == "worker-b: command: -\n"
    head, *rows = run("agent", "list").stdout.splitlines()
    assert head.split() == ["id", "role", "type", "parent", "alive", "unread", "pane"]
    assert rows[-1].split() == ["worker-b", "worker", "ai", "admin", "no", "0", "-"]
    assert run("agent", "remove", "worker-b").stdout == "worker-b is removed; its files are kept\n"
    assert "worker-b" not in run("agent", "list").stdout


@pytest.mark.parametrize(
    ("arguments", "key"),
    [(("sessions",), "sessions"), (("conversations",), "conversations"), (("log",), "executions")],
)
def test_an_empty_list_is_a_table_without_rows(ask: Ask, run: Run, arguments: tuple[str, ...], key: str) -> None:
    assert ask(*arguments) == {"success": True, key: []}
    assert len(run(*arguments).stdout.splitlines()) == 1


def test_the_timeline_is_drawn_into_a_file_or_onto_standard_output(ask: Ask, run: Run, tmp_path: Path) -> None:
    ask("send", "admin", "hello")
    assert run("timeline", "--svg", "-").stdout.startswith("<svg")
    assert run("timeline", "--svg", "out.svg").stdout == "out.svg\n"
    assert (tmp_path / "out.svg").read_text(encoding="utf-8").startswith("<svg")
    assert "owner → admin" in run("timeline").stdout


def test_watch_prints_the_session_once(run: Run, session: Path) -> None:
    shown = run("watch", "--once")
    assert shown.exit_code == 0
    assert shown.stdout.startswith("demo · nothing waits for you · no tasks\n")
    assert [line.split()[:2] for line in shown.stdout.splitlines() if "worker-a" in line] == [["worker-a", "off"]]
    assert run("send", "admin", "hello").exit_code == 0
    assert "hello" not in run("watch", "--once", "--messages", "0").stdout


def test_init_keeps_what_is_there_and_refuses_a_team_without_a_session(run: Run, session: Path) -> None:
    key = (session / "secrets" / "admin.key").read_bytes()
    assert run("init").stdout == f"{session}: 3 agents (0 new)\n"
    assert (session / "secrets" / "admin.key").read_bytes() == key
    Path("team.yaml").write_text("agents: [{id: owner, role: owner}]\n", encoding="utf-8")
    refused = run("init")
    assert refused.exit_code == 1
    assert refused.stderr.startswith("multi-agent-mcp: invalid_arguments: ")


def test_every_scene_of_the_demo_is_named_in_its_help() -> None:
    assert (*SCENES, "machines") == NAMES


def test_a_table_is_aligned_in_columns_of_a_terminal() -> None:
    drawn = titled_table(
        Texts("en", {"table.name": "name", "table.n": "n"}), ("name", "n"), [("日本", 1), ("b\nc", 22)]
    )
    assert list(drawn) == ["name  n", "日本  1", "b c   22"]


def test_no_line_of_an_agents_text_begins_at_the_left() -> None:
    assert list(indented("a\n\nb")) == ["   a", "", "   b"]


def test_doctor_shows_how_far_it_has_got_on_a_terminal_and_nowhere_else(session: Path) -> None:
    command = [sys.executable, "-m", "multi_agent_mcp", "doctor", "--root", str(session.parent)]
    assert "files checked" not in subprocess.run(command, capture_output=True, text=True, check=True).stdout
    for arguments, shown in (([], True), (["--json"], False)):
        human, terminal = pty.openpty()
        with subprocess.Popen([*command, *arguments], stdout=terminal, stderr=terminal, stdin=terminal) as process:
            os.close(terminal)
            seen = b"".join(iter(partial(read_terminal, human), b""))
        os.close(human)
        assert process.returncode == 0
        assert (b"files checked" in seen) == shown
        assert b"secrets" in seen  # the size of each directory


def read_terminal(descriptor: int) -> bytes:
    """Reads from a terminal; returns b"" at its end, for which Linux reports EIO."""
    try:
        return os.read(descriptor, 65536)
    except OSError:
        return b""


def test_doctor_tells_an_owner_without_a_command_what_helps(ask: Ask, run: Run) -> None:
    def owners() -> str:
        return "".join(line for line in run("doctor").stdout.splitlines(True) if line.startswith("owner "))

    assert "agent set owner --here" in owners()
    assert "start it in tmux with `up`" not in owners()
    ask("agent", "set", "owner", "--command", "cat")
    assert "start it in tmux with `up`" in owners()


def test_an_agent_with_open_tasks_is_removed_only_if_its_superior_takes_them(ask: Ask, run: Run) -> None:
    task = ask("task", "add", "left", "--assignee", "worker-a")["task_id"]
    result = run("agent", "remove", "worker-a", "--json")
    refused = json.loads(result.stdout)
    assert (result.exit_code > 0, refused["error"]) == (True, "invalid_arguments")
    assert task in refused["message"]
    assert ask("agent", "remove", "worker-a", "--hand-over")["handed_over"] == [task]
    assert ask("task", "show", task)["task"]["assignee_id"] == "admin"
    assert "worker-a" not in [agent["id"] for agent in ask("agent", "list")["agents"]]
