"""Output for people in a session whose language is Japanese; codes, ids and roles remain as the tools accept them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from multi_agent_mcp.domain.text import columns
from tests.cli.conftest import TEAM, Ask, Run
from tests.cli.test_terminal import in_terminal

WORD = re.compile(r"[a-z]{2,}")


@pytest.fixture
def session(run: Run, tmp_path: Path) -> Path:
    (tmp_path / "team.yaml").write_text(TEAM.replace("language: en", "language: ja"), encoding="utf-8")
    assert run("init").exit_code == 0
    return tmp_path / ".multi-agent-mcp" / "demo"


@pytest.fixture
def task_id(ask: Ask) -> str:
    """A blocked task with a reason of several thousand characters."""
    found = str(ask("task", "add", "家", "--assignee", "worker-a")["task_id"])
    ask("task", "status", found, "in_progress", "--as", "worker-a")
    ask("task", "status", found, "blocked", "--reason", "待つ" * 1_500)
    return found


@pytest.mark.parametrize(
    "command", ["agent list", "task list", "sessions", "log", "conversations", "timeline", "watch --once"]
)
@pytest.mark.usefixtures("session")
def test_every_table_has_its_titles_in_japanese(run: Run, command: str) -> None:
    shown = run(*command.split())
    assert shown.exit_code == 0, shown.output
    titles = [line for line in shown.stdout.splitlines() if "worker-a" not in line and "owner" not in line]
    assert [WORD.findall(line.removeprefix("demo · ").replace("admin", "")) for line in titles[:1]] == [[]]


def test_watch_says_in_japanese_who_works_and_what_waits(ask: Ask, run: Run, task_id: str) -> None:
    del task_id
    ask("send-task", "admin", "庭", "木")
    ask("send", "worker-a", "x", "--subject", "件")
    shown = run("watch", "--once").stdout
    assert "停止中" in shown
    assert "割り込み中" in shown
    assert "admin の返事待ち" in shown
    english = {"off", "interrupted", "waiting", "waits", "alive", "now", "ago", "works", "agent"}
    assert english.isdisjoint(WORD.findall(shown.replace("worker-a", "")))


def test_a_task_without_an_assignee_was_nobodys_not_nones(ask: Ask, run: Run) -> None:
    task_id = str(ask("task", "add", "家")["task_id"])
    ask("task", "assign", task_id, "worker-a")
    shown = run("task", "show", task_id).stdout
    assert "assignee_id - → worker-a" in shown
    assert "None" not in shown


def test_a_conversation_that_is_ended_is_told_in_japanese(ask: Ask, run: Run) -> None:
    talk = str(ask("conversation", "start", "worker-a", "どう？")["conversation_id"])
    assert run("end", talk).stdout == f"{talk} を終了しました\n"


def test_a_reason_of_any_length_widens_no_table_and_is_not_cut_for_programs(ask: Ask, run: Run, task_id: str) -> None:
    for command in (("timeline",), ("watch", "--once"), ()):
        lines = run(*command).stdout.splitlines()
        assert any("待つ…" in line or "待…" in line for line in lines), command
        assert max(map(columns, lines)) < 200
        assert all(line == line.rstrip() for line in lines)
    (mark,) = ask("timeline")["marks"]
    assert len(mark["reason"]) > 500
    assert ask("task", "show", task_id)["task"]["blocked_reason"] == "待つ" * 1_500


def test_people_are_told_commands_where_agents_are_told_tools(ask: Ask, run: Run) -> None:
    ask("send-task", "admin", "家", "を建てる")
    refused = run("send-task", "admin", "庭", "も")
    assert refused.exit_code == 1
    for number in range(3):
        ask("send", "owner", str(number), "--as", "worker-a")
    read = run("read", "--limit", "1").stdout + run("read", "--all", "--limit", "1").stdout
    diagnosis = run("doctor").stdout
    said = refused.stderr + read + diagnosis
    for tool in ("read_messages", "unlock_owner_wait", "get_unread_count", "get_notifications"):
        assert tool not in said
    assert "wait end" in refused.stderr
    assert "multi-agent-mcp wait end" in diagnosis
    assert "multi-agent-mcp read --all --before " in read


def test_doctor_shows_a_person_no_codes(ask: Ask, session: Path) -> None:
    ask("send", "worker-a", "x", "--as", "admin")
    said = [line.strip() for line in in_terminal(180, "doctor", session=session)]
    assert any(line.split()[:2] == ["注意", "ペイン"] for line in said)
    assert any(line.startswith("owner") and "ステータス行" in line for line in said)
    assert not [line for line in said if re.search(r"no_pane|status_line|^注意 +[a-z]|no_desktop", line)]
