"""A person's part in conversations, and the tasks and waits of an Owner, at the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Ask, Run


@pytest.fixture
def asked(ask: Ask) -> dict[str, Any]:
    """The Admin has asked the Owner something in a conversation."""
    return ask("conversation", "start", "owner", "Which database?", "--purpose", "storage", "--as", "admin")


def state(ask: Ask, asked: dict[str, Any]) -> tuple[str, list[str]]:
    shown = ask("conversations", asked["conversation_id"])
    return shown["conversation"]["status"], [message["content"] for message in shown["messages"]]


def test_a_conversation_is_pending_until_it_is_read_or_answered_and_over_when_ended(
    ask: Ask, run: Run, asked: dict[str, Any]
) -> None:
    talk = asked["conversation_id"]
    assert state(ask, asked) == ("pending", ["Which database?"])
    assert talk in run("read", "--peek").stdout
    assert state(ask, asked)[0] == "pending"
    assert talk in run("read").stdout
    assert state(ask, asked)[0] == "active"
    answer = ask("reply", asked["message_id"], "Postgres.")
    assert (answer["conversation_id"], answer["receiver_ids"]) == (talk, ["admin"])
    (received,) = ask("read", "admin")["messages"]
    assert (received["sender_id"], received["metadata"]["in_reply_to"]) == ("owner", asked["message_id"])
    assert "verified" not in received
    assert run("say", talk, "-", "--as", "admin", input="Which\nversion?\n").exit_code == 0
    ask("send", "17", "--conversation", talk)
    ask("send", "admin", "or 16", "--conversation", talk)
    assert run("end", talk, "Thanks.", "--as", "admin").stdout == f"{talk} has ended\n"
    words = ["Which database?", "Postgres.", "Which\nversion?\n", "17", "or 16", "Thanks."]
    assert state(ask, asked) == ("ended", words)


def test_answering_without_reading_makes_it_active_too(ask: Ask, run: Run, asked: dict[str, Any]) -> None:
    said = run("reply", asked["message_id"][:8], "Postgres.").stdout.splitlines()
    assert said[1].startswith("stored; admin was not rung: ")
    assert ask("trace", said[0])["copies"][0]["sender_id"] == "owner"
    assert state(ask, asked) == ("active", ["Which database?", "Postgres."])


def test_it_is_started_for_people_with_its_id_first(ask: Ask, run: Run) -> None:
    task_id = ask("task", "add", "Dig", "--assignee", "worker-a")["task_id"]
    talk, message_id, reached = run("conversation", "start", "worker-a", "How deep?", "--task", task_id).stdout.split(
        "\n", 2
    )
    assert reached.startswith("stored; worker-a was not rung: ")
    shown = ask("conversations", talk)
    assert [message["id"] for message in shown["messages"]] == [message_id]
    assert (shown["conversation"]["task_id"], shown["conversation"]["initiator_id"]) == (task_id, "owner")
    assert ask("end", talk) == {"success": True, "conversation_id": talk, "status": "ended"}
    assert [message["message_type"] for message in ask("read", "worker-a")["messages"]] == ["conversation", "system"]


def test_what_cannot_be_said_is_refused_with_its_reason(ask: Ask, run: Run, asked: dict[str, Any]) -> None:
    talk = asked["conversation_id"]

    def refused(*arguments: str, input: str | None = None) -> str:
        result = run(*arguments, "--json", input=input)
        assert result.exit_code == 1, arguments
        return str(json.loads(result.stdout)["error"])

    assert refused("say", "cnv_000000000000", "hello") == "conversation_not_found"
    assert refused("say", "../x", "hello") == "invalid_id"
    assert refused("say", talk, "hello", "--as", "worker-a") == "not_participant"
    assert refused("end", talk, "--as", "worker-a") == "not_participant"
    assert refused("send", "hello", "--conversation", talk, "--as", "worker-a") == "not_participant"
    for somebody in ("worker-a", "all"):
        assert refused("send", somebody, "hello", "--conversation", talk) == "invalid_arguments"
    assert refused("reply", asked["message_id"], "hello", "--as", "worker-a") == "unauthorized"
    assert refused("reply", "00000000", "hello") == "message_not_found"
    own = ask("send", "worker-a", "hello")["message_id"]
    said = run("reply", own, "again").stderr
    assert "Write to 'worker-a' again with send" in said, said  # its sender is who asks
    assert refused("conversation", "start", "worker-a", "hi", "--task", "tsk_000000000000") == "task_not_found"
    for empty in (
        ("send", "admin", ""),
        ("send", "admin", " "),
        ("say", talk, ""),
        ("reply", asked["message_id"], " "),
        ("end", talk, "-"),
    ):
        assert refused(*empty, input="\n") == "invalid_arguments"
    assert state(ask, asked) == ("pending", ["Which database?"])
    ask("end", talk)
    for late in (("say", talk, "x"), ("reply", asked["message_id"], "x"), ("end", talk)):
        assert refused(*late) == "conversation_not_active"
    assert run("send", "hello").exit_code == 2


def test_a_task_sent_to_the_admin_makes_the_owner_wait_until_it_is_unlocked(ask: Ask, run: Run, session: Path) -> None:
    sent = ask("send-task", "admin", "Build", "the house", "--priority", "high")
    assert set(sent) == {"success", "task_id", "message_id", "waiting", "delivery"}
    assert sent["waiting"] is True
    (mail,) = ask("read", "admin")["messages"]
    assert (mail["id"], mail["message_type"], mail["content"]) == (sent["message_id"], "task_assign", "the house")
    refused = run("send-task", "admin", "Another", "house")
    assert (refused.exit_code, refused.stderr.split(": ")[1]) == (1, "owner_waiting")
    assert len(ask("task", "list")["tasks"]) == 1
    assert ask("unread")["unread_count"] == ask("unread")["unread_count"] == 0, "a person may look twice"
    assert (
        run("wait", "end", "--reason", "gone home").stdout == f"owner no longer waits for admin ({sent['task_id']})\n"
    )
    assert ask("wait", "end") == {"success": True, "owner_id": "owner", "waiting_before": False, "waiting_after": False}
    assert run("wait", "end").stdout == "owner was not waiting\n"
    log = sorted((session / "audit").glob("*.jsonl"))[-1].read_text(encoding="utf-8")
    first = next(line for line in map(json.loads, log.splitlines()) if line["tool"] == "unlock_owner_wait")
    assert (first["tool"], first["agent_id"], first["reason"], first["released"]) == (
        "unlock_owner_wait",
        "owner",
        "gone home",
        True,
    )


def test_the_admins_answer_ends_the_wait_of_an_owner_who_reads_it(ask: Ask, run: Run) -> None:
    said = run("send-task", "admin", "Build", "-", input="the house\n").stdout.splitlines()
    assert said[-1] == "owner now waits for admin; `multi-agent-mcp wait end` ends it"
    assert ask("task", "show", said[0])["task"]["description"] == "the house\n"
    ask("send", "owner", "done", "--as", "admin")
    assert run("read").exit_code == 0
    assert ask("wait", "end")["waiting_before"] is False


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("send-task", "worker-a", "Build", "it", "--as", "worker-a"), "unauthorized"),
        (("send-task", "admin", "Build", "it", "--as", "worker-a"), "unauthorized"),
        (("send-task", "ghost", "Build", "it"), "agent_not_found"),
        (("send-task", "owner", "Build", "it"), "invalid_arguments"),
        (("send-task", "admin", "", "it"), "invalid_arguments"),
        (("wait", "end", "--as", "admin"), "invalid_arguments"),
    ],
)
def test_a_task_or_an_unlock_that_is_not_ones_own_business_is_refused(
    ask: Ask, run: Run, arguments: tuple[str, ...], code: str
) -> None:
    assert json.loads(run(*arguments, "--json").stdout)["error"] == code
    assert ask("task", "list")["tasks"] == []
