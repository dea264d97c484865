"""`show`, and the beginnings of ids, which every command takes."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from multi_agent_mcp.bootstrap import open_session
from multi_agent_mcp.cli.main import COMMANDS
from tests.cli.conftest import Ask, Run
from tests.cli.test_terminal import in_terminal


@pytest.fixture
def task(ask: Ask) -> str:
    found: str = ask("task", "add", "Build it", "--assignee", "worker-a", "--description", "with care")["task_id"]
    return found


def shown(run: Run, given: str) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(run("show", given, "--json").stdout)
    return answer


def test_anything_is_shown_by_the_first_digits_of_its_id(ask: Ask, run: Run, task: str) -> None:
    message = ask("send", "worker-a", "hello", "--subject", "greeting")["message_id"]
    talk = ask("conversation", "start", "worker-a", "Are you there?", "--purpose", "to know")["conversation_id"]
    ask("task", "status", task, "in_progress")
    notification = ask("interrupt", "worker-a", "--task", task[4:10])["notification_id"]
    for given, kind, whole in (
        (task[:8], "task", task),
        (task[4:12], "task", task),
        (message[:8], "message", message),
        (message, "message", message),
        (talk[4:10], "conversation", talk),
        (notification[:12], "notification", notification),
        ("worker-a", "agent", "worker-a"),
    ):
        answer = shown(run, given)
        assert (answer["kind"], answer["id"], answer[kind]["id"]) == (kind, whole, whole), given
    assert shown(run, task[:9])["path"] == f"tasks/worker-a/{task}.md"
    printed = run("show", task[4:12]).stdout
    assert "Build it" in printed
    assert "   with care" in printed


def test_every_command_takes_the_beginning_of_an_id(ask: Ask, run: Run, task: str) -> None:
    other = ask("task", "add", "Then this", "--depends-on", task[:9], "--parent", task[4:12])["task_id"]
    assert ask("task", "show", other[:9])["task"]["dependencies"] == [task]
    assert ask("task", "status", task[4:12], "in_progress", "--as", "worker-a")["task_id"] == task
    talk = ask("conversation", "start", "worker-a", "Well?", "--task", task[:10])["conversation_id"]
    assert ask("conversation", "say", talk[4:12], "Well?")["conversation_id"] == talk
    broadcast = ask("send", "all", "to all of you")["message_id"]
    assert len(ask("trace", broadcast[:8])["copies"]) == 2


def test_what_several_ids_begin_with_or_none_is_refused_in_one_sentence(
    ask: Ask, run: Run, task: str, session: Path
) -> None:
    path = session / "tasks" / "worker-a" / f"{task}.md"
    twin = f"{task[:12]}0000" if not task.endswith("0000") else f"{task[:12]}1111"
    path.with_name(f"{twin}.md").write_text(path.read_text(encoding="utf-8"), encoding="utf-8")
    refused = run("task", "status", task[:12], "in_progress")
    assert refused.exit_code == 1
    assert task in refused.stderr
    assert twin in refused.stderr
    assert ask("task", "show", task)["task"]["status"] == "todo"
    assert json.loads(run("show", "tsk_ffffffff", "--json").stdout)["error"] == "task_not_found"
    assert json.loads(run("show", "nothing", "--json").stdout)["error"] == "invalid_arguments"
    for beginning in ("tsk_f00000000", "0000" if not task.startswith("tsk_0000") else "1111"):
        assert f"Nothing here has the id '{beginning}'" in run("task", "status", beginning, "blocked").stderr
    assert json.loads(run("task", "show", task[4:7], "--json").stdout)["error"] == "invalid_id", "too short"


def test_a_name_that_is_nearly_right_is_suggested(run: Run, session: Path) -> None:
    assert session.exists()
    assert "'show'" in run("shwo").output
    refused = json.loads(run("read", "worker-b", "--json").stdout)
    assert refused["error"] == "agent_not_found"
    assert "worker-a" in refused["message"]
    assert run("-h").stdout == run("--help").stdout
    assert run("task", "list", "-h").exit_code == 0


def test_the_man_page_has_every_command_of_the_help(run: Run) -> None:
    page = run("help", "--man").stdout.replace("\\-", "-")
    assert page.startswith(".TH MULTI-AGENT-MCP 1 ")
    for subject, named in COMMANDS.items():
        assert f'.SH "{subject.upper()}"' in page
        assert all(f'.SS "multi-agent-mcp {name} ' in page for name in named)
    assert "multi-agent-mcp task list" in page


def test_open_tasks_come_first_and_a_list_may_be_short(ask: Ask, run: Run, task: str) -> None:
    later = ask("task", "add", "Later", "--assignee", "worker-a")["task_id"]
    ask("task", "status", task, "in_progress", "--as", "worker-a")
    ask("task", "status", task, "done", "--as", "worker-a")
    assert ask("task", "show", task)["task"]["progress"] == 100
    assert [item["task_id"] for item in ask("task", "list")["tasks"]] == [later, task]
    assert [item["task_id"] for item in ask("task", "list", "--open")["tasks"]] == [later]
    answer = ask("task", "list", "--limit", "1")
    assert ([item["task_id"] for item in answer["tasks"]], answer["total_count"]) == ([later], 2)
    assert run("task", "list", "--limit", "1").stdout.splitlines()[-1] == "… 1 more (--all)"
    assert run("task", "list", "--open", "--all").exit_code == 2


def test_unread_says_from_whom_and_what(ask: Ask, run: Run) -> None:
    assert run("unread").stdout == "0\n"
    ask("send", "owner", "which colour?", "--as", "admin", "--subject", "colours")
    ask("send", "owner", "no subject", "--as", "worker-a")
    answer = ask("unread")
    assert answer["unread_count"] == 2
    told = [(item["sender_id"], item["subject"]) for item in answer["messages"]]
    assert told == [("admin", "colours"), ("worker-a", "no subject")]
    assert "colours" in run("unread").stdout


def test_a_person_is_shown_words_and_what_was_said_and_told_which_name_may_be_meant(
    ask: Ask, run: Run, task: str, session: Path
) -> None:
    settings = session / "session.yaml"
    settings.write_text(settings.read_text().replace("language: en", "language: ja"))
    said = in_terminal(80, "show", task[4:12], session=session)
    assert said[0] == "Build it"
    assert any(line.split() == ["状態", "未着手"] for line in said)
    assert not any("assignee_id" in line or "todo" in line for line in said)
    assert any(line.split() == ["状態", "チームに参加中"] for line in in_terminal(80, "show", "admin", session=session))
    talk = ask("conversation", "start", "worker-a", "Are you there?", "--purpose", "to know")["conversation_id"]
    (message,) = [line for line in in_terminal(80, "show", talk, session=session) if "Are you there?" in line]
    assert "(JST)  owner: " in message
    assert "worker-a" in run("show", "wroker-a").stderr


def test_a_task_written_by_hand_is_not_said_to_have_changed_in_1970(run: Run, session: Path) -> None:
    path = session / "tasks" / "worker-a" / "tsk_aaaabbbbcccc.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("---\ntitle: By hand\nstatus: done\nhistory:\n  - {by: owner}\n---\nDone.\n")
    said = run("show", "aaaabbbb").stdout
    assert "By hand" in said
    assert "1970" not in said


@pytest.mark.parametrize("zone", ["Asia/Tokyo", "America/Los_Angeles"])
@pytest.mark.parametrize("year", ["9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z"])
def test_mail_from_the_ends_of_the_calendar_is_read_searched_and_traced(
    session: Path, run: Run, monkeypatch: pytest.MonkeyPatch, zone: str, year: str
) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    message_id = "msg_0123456789ab"
    name = f"{year[:10].replace('-', '')}_{year[11:19].replace(':', '')}_01234567.md"
    head = f"id: {message_id}\nsender_id: admin\nreceiver_id: owner\nmessage_type: request\ncreated_at: '{year}'\n"
    (session / "ipc" / "owner" / name).write_text(f"---\n{head}---\nhello\n")
    reading = (("unread",), ("search", "hello"), ("read",), ("timeline",), ("trace", message_id), ("watch", "--once"))
    for command in reading:
        shown = run(*command)
        assert shown.exit_code == 0, (command, shown.output, shown.exception)
    monkeypatch.undo()
    time.tzset()


def test_what_a_reviewer_is_shown_by_its_id_may_be_approved(ask: Ask, run: Run, session: Path) -> None:
    task_id = ask("task", "add", "Build", "--assignee", "worker-a", "--done-when", "review")["task_id"]
    ask("task", "status", task_id, "in_progress", "--as", "worker-a")
    services = open_session(session.parent, "demo")
    worker = services.agents.get("worker-a")
    for summary in ("some of it", "all of it"):
        services.deliveries.conclude(services.deliveries.deliver(worker, task_id, summary))
    assert json.loads(run("task", "approve", task_id, "--json").stdout)["error"] == "not_proven"
    run("show", task_id)
    assert ask("task", "approve", task_id)["status"] == "done"
