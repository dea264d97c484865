"""`hook`: what hosts run at every tool call (docs/protocol.md, Hooks)."""

from __future__ import annotations

import json
import re
import sys
from typing import Any

import pytest

from multi_agent_mcp.services.turn.reading import Query
from tests.end_to_end.support import COMMAND, INTERRUPTED, Ran, Team, line, run, wait_until

EVENTS = ("SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop")
HEAVY = {"mcp", "mcp_types", "pydantic", "click", "rich", "watchdog"}
READ_IT = "read_messages を呼び出して内容を確認してください。"
DENIED = "割り込み通知があるため、このツールは実行されませんでした。"
BLOCKED = "作業を中断し、report_completedをresult='blocked'で呼び出してください"


def ran(team: Team, event: str, *options: str, agent: str = "worker-a", **facts: Any) -> Ran:
    given = {"hook_event_name": event, "session_id": "s-1", "tool_name": "Bash", **facts}
    where = ["--session", team.session, "--agent", agent]
    return team.run("hook", *where, *options, stdin=json.dumps(given).encode())


def told(team: Team, event: str, *options: str, **facts: Any) -> Any:
    """The hook's output, None when it is silent. It must succeed and write nothing to standard error."""
    done = ran(team, event, *options, **facts)
    assert (done.code, done.stderr) == (0, "")
    return json.loads(done.stdout) if done.stdout else None


def context(text: str, event: str = "PostToolUse") -> dict[str, Any]:
    return {"hookSpecificOutput": {"hookEventName": event, "additionalContext": text}}


def test_with_nothing_to_say_every_event_is_silent(team: Team) -> None:
    for _ in range(2):
        assert [told(team, event) for event in EVENTS] == [None] * len(EVENTS)
    assert told(team, "Notification") is None
    assert team.run("hook", "--help").stdout.startswith("Usage:")


def test_new_mail_is_told_once_after_a_tool_without_its_content(team: Team) -> None:
    assert told(team, "PostToolUse") is None
    team.send("worker-a", "the content")
    assert told(team, "PreToolUse") is None
    assert told(team, "PostToolUse") == context(f"{line()}\n{READ_IT}")
    assert told(team, "PostToolUse") is None
    assert told(team, "UserPromptSubmit") is None
    assert told(team, "Stop") is None
    team.send("worker-a", "another")
    assert told(team, "UserPromptSubmit") == context(f"{line()}\n{READ_IT}", "UserPromptSubmit")
    assert told(team, "PostToolUse", agent="worker-b") is None


def test_mail_that_was_read_meanwhile_is_not_told(team: Team) -> None:
    team.send("worker-a")
    assert team.ask("read", "worker-a", "--as", "worker-a")["count"] == 1
    assert told(team, "PostToolUse") is None


def test_a_notification_is_told_once(team: Team) -> None:
    team.notify("worker-a", "n.md", id="ntf_000000000001", type="message", message="x", instruction="do it")
    assert "get_notifications" in told(team, "PostToolUse")["hookSpecificOutput"]["additionalContext"]
    assert told(team, "PostToolUse") is None
    assert told(team, "Stop") is None


def test_an_interrupt_denies_every_native_tool_until_it_is_read_but_none_of_ours(team: Team) -> None:
    assert told(team, "PreToolUse") is None
    team.ask("interrupt", "worker-a", "--as", "admin")
    for tool in ("Bash", "Edit", "Bash"):
        output = told(team, "PreToolUse", tool_name=tool)["hookSpecificOutput"]
        assert (output["hookEventName"], output["permissionDecision"]) == ("PreToolUse", "deny")
        reason = output["permissionDecisionReason"]
        assert reason.startswith(DENIED)
        assert BLOCKED in reason
        assert reason.endswith(INTERRUPTED)
    assert told(team, "PreToolUse", tool_name="mcp__ipc__get_notifications") is None
    assert told(team, "PreToolUse", tool_name="ToolSearch") is None
    assert told(team, "PreToolUse", "--purpose", "chat") is None
    team.services.notifications.read("worker-a", "task")
    assert told(team, "PreToolUse") is None


def test_an_interrupt_whose_task_is_reopened_denies_nothing(team: Team) -> None:
    task = team.ask("task", "add", "work", "--assignee", "worker-a", "--as", "admin")["task_id"]
    team.ask("task", "status", task, "in_progress", "--as", "worker-a")
    team.ask("task", "status", task, "blocked", "--as", "admin")
    assert told(team, "PreToolUse") is not None
    team.ask("task", "status", task, "todo", "--as", "admin")
    assert told(team, "PreToolUse") is None


def test_a_stop_is_prevented_once_for_urgent_mail_and_once_for_an_interrupt(team: Team) -> None:
    team.send("worker-a", "not urgent")
    assert told(team, "Stop") is None
    team.send("worker-a", "urgent", priority="urgent")
    assert told(team, "Stop", stop_hook_active=True) is None
    answer = told(team, "Stop")
    assert answer["decision"] == "block"
    assert answer["reason"].endswith(f"{line()}\n{READ_IT}")
    assert told(team, "Stop") is None
    team.ask("interrupt", "worker-a", "--as", "admin")
    assert BLOCKED in told(team, "Stop")["reason"]
    assert told(team, "Stop") is None


def test_the_host_is_noted_and_of_codex_its_thread(team: Team) -> None:
    def thread() -> Any:
        return team.services.agents.get("worker-a").extra.get("codex_thread_id")

    assert told(team, "SessionStart", "--host", "claude", session_id="s-1") is None
    assert thread() is None
    assert team.services.agents.get("worker-a").host == "plain", "as a person wrote"
    team.services.agents.change("worker-a", host="")
    assert told(team, "SessionStart", "--host", "claude", session_id="s-2") is None
    assert team.services.agents.get("worker-a").host == "claude"
    for session_id in ("thread-1", "thread-2"):
        assert told(team, "PostToolUse", "--host", "codex", session_id=session_id) is None
        assert thread() == session_id


def test_options_and_environment_say_who_the_agent_is(team: Team) -> None:
    team.send("worker-a")
    stdin = b'{"hook_event_name": "PostToolUse"}'
    env = {"MULTI_AGENT_MCP_SESSION": team.session, "MULTI_AGENT_MCP_AGENT": "worker-a"}
    other = ("--agent", "worker-b")
    assert team.run("hook", *other, stdin=stdin, env=env).stdout == ""
    assert team.run("hook", *other, "--unless-env", stdin=stdin, env=env).stdout != ""
    team.send("worker-a", "again")
    assert team.run("hook", stdin=stdin, env=env).stdout != ""


def test_mail_that_comes_with_what_was_read_or_told_before_is_told(team: Team) -> None:
    for number in range(3):
        team.send("worker-a", f"read {number}")
        team.send("worker-a", f"kept {number}")
        assert told(team, "PostToolUse") is not None
        name = sorted(team.services.workspace.mailbox("worker-a").unread())[0][0]
        team.services.workspace.mailbox("worker-a").read([name], team.services.clock())
        assert told(team, "PostToolUse") is None
    task = team.ask("task", "add", "work", "--assignee", "worker-a", "--as", "admin")["task_id"]
    team.ask("task", "status", task, "in_progress", "--as", "worker-a")
    assert told(team, "PreToolUse") is None
    team.ask("task", "status", task, "blocked", "--as", "admin")
    for notice in (team.path / "notifications" / "worker-a").glob("*.md"):
        notice.unlink()  # its writer died between the two files: the next reader repairs it
    assert told(team, "PreToolUse") is not None


@pytest.mark.parametrize(
    ("arguments", "stdin"),
    [
        ((), b"{"),
        ((), b"\xff"),
        (("--agent", "nobody"), None),
        (("--agent", "../x"), None),
        (("--session", "none"), None),
        (("--root", "/dev/null"), None),
        (("--agent",), None),
        (("--what",), None),
        (("--wait", "--agent", "nobody"), None),
    ],
)
def test_whatever_is_wrong_is_one_line_and_never_breaks_the_host(
    team: Team, arguments: tuple[str, ...], stdin: bytes | None
) -> None:
    env = {"MULTI_AGENT_MCP_SESSION": team.session, "MULTI_AGENT_MCP_AGENT": "worker-a"}
    done = team.run("hook", *arguments, stdin=b'{"hook_event_name": "Stop"}' if stdin is None else stdin, env=env)
    assert (done.code, done.stdout) == (0, "")
    assert re.fullmatch(r"multi-agent-mcp: hook: .+\n", done.stderr)


@pytest.mark.parametrize(
    "spoilt", ["protected: {a: b}\n", "language: fr\n", "guard: true\nguard: true\n", "roles: [\n", None]
)
def test_a_session_yaml_that_cannot_be_read_switches_no_interrupt_and_no_rule_off(
    team: Team, spoilt: str | None
) -> None:
    services = team.services
    settings = services.workspace.settings_path
    with settings.open("a") as file:
        file.write("roles: {worker: {commands: {deny: [curl]}}}\n")
    services.approvals.approve()
    if spoilt is None:
        settings.unlink()
    else:
        settings.write_text(settings.read_text().replace("roles:", "other:") + spoilt)
    denied = json.loads(ran(team, "PreToolUse", tool_input={"command": "curl x"}).stdout)
    assert "curl" in denied["hookSpecificOutput"]["permissionDecisionReason"]
    services.interrupts.pause("worker-a", None)
    done = ran(team, "PreToolUse", tool_input={"command": "ls"})
    assert done.code == 0
    assert json.loads(done.stdout)["hookSpecificOutput"]["permissionDecision"] == "deny"
    assert re.fullmatch(r"multi-agent-mcp: hook: .+\n", done.stderr)


def test_what_hook_remembers_may_be_deleted_or_spoilt(team: Team) -> None:
    team.send("worker-a")
    assert told(team, "PostToolUse") is not None
    for spoilt in ("{", "[]", '{"told": 3, "seen": 1}', '{"ring": "x"}'):
        (team.path / ".hooks" / "worker-a.json").write_text(spoilt, encoding="ascii")
        assert told(team, "PostToolUse") is not None
    (team.path / ".hooks" / "worker-a.json").unlink()
    assert told(team, "PostToolUse") is not None


def test_a_silent_hook_imports_next_to_nothing_and_no_hook_anything_heavy(team: Team) -> None:
    def imported() -> set[str]:
        options = ["hook", "--root", str(team.root), "--session", team.session, "--agent", "worker-a"]
        command = [sys.executable, "-X", "importtime", *COMMAND[1:], *options]
        done = run(command, env=team.env, cwd=team.base, stdin=b'{"hook_event_name": "PostToolUse"}')
        assert done.code == 0
        return {text.rpartition("|")[2].strip().partition(".")[0] for text in done.stderr.splitlines()}

    team.send("worker-a")
    assert not imported() & HEAVY
    slow = {"yaml", "pathlib", "dataclasses"}
    wait_until(lambda: not imported() & slow, "nothing has changed for a moment")
    team.services.reading.read(team.services.agents.get("worker-a"), Query())
    assert not imported() & slow


def test_hook_is_in_the_list_of_commands(team: Team) -> None:
    assert re.search(r"^ +hook ", team.run("help", "--all").stdout, re.MULTILINE)
