"""Announcements of hooks when there is much mail: each message is announced once, and the state stays small."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from multi_agent_mcp.domain.entity import EPOCH
from multi_agent_mcp.domain.times import format_time
from multi_agent_mcp.hooks import first_look
from multi_agent_mcp.hooks.answers import Event
from multi_agent_mcp.system.file_status import RACY_NS, modified_at
from multi_agent_mcp.wiring import Services
from tests.services.support import by_hand, read, send

AGENT = "worker-a"


def said(services: Services, event: str) -> str | None:
    """The first line of the text that the hook gives the model at this event; None if it is silent."""
    answer = services.hooks.answer(AGENT, "task", Event(event))
    if answer is None:
        return None
    return str(answer.get("reason") or answer["hookSpecificOutput"]["additionalContext"]).splitlines()[0]


def state(services: Services) -> dict[str, Any]:
    return first_look.read_state(str(services.path), AGENT, "task")


def is_silent(services: Services, event: str) -> bool:
    return first_look.surely_silent(str(services.path), AGENT, "task", event, None)


def settle(services: Services) -> None:
    """Waits until later files cannot be mistaken for part of those already seen."""
    while time.time_ns() < modified_at(services.workspace.mailbox(AGENT).path) + 2 * RACY_NS:
        os.sched_yield()


def test_only_what_is_new_is_announced_and_remembered_by_its_id(services: Services) -> None:
    for number in range(30):
        by_hand(services, AGENT, f"{number}.md", "---\nsender_id: admin\n---\n\nx")
    settle(services)
    assert said(services, "PostToolUse") == "[IPC] New messages: 30"
    send(services, "admin", AGENT)
    settle(services)
    assert said(services, "PostToolUse") == "[IPC] New message: request from admin"
    assert len(state(services)["told"]) == 1
    assert is_silent(services, "PostToolUse")


def test_reading_what_was_announced_is_no_news(services: Services) -> None:
    send(services, "admin", AGENT)
    settle(services)
    said(services, "PostToolUse")
    read(services, AGENT)
    assert is_silent(services, "PostToolUse")
    send(services, "admin", AGENT)
    assert not is_silent(services, "PostToolUse")


def test_a_conversation_that_goes_on_in_another_process_of_its_host_is_noted_though_nothing_is_to_be_told(
    services: Services,
) -> None:
    """As after a crash, when `up` continues it: its server has to know in which conversation it is."""
    event = Event("PreToolUse", "conversation-1", "claude")
    services.hooks.answer(AGENT, "task", event)
    settle(services)
    assert is_silent(services, event.name)
    path = Path(first_look.state_path(str(services.path), AGENT, "task"))
    known = state(services)
    earlier = known["host"] | {
        "pid": os.getpid(),
        "since": format_time(EPOCH),
        "told_at": "",
    }  # started no hook of ours
    path.write_text(json.dumps(known | {"host": earlier}), encoding="utf-8")
    assert services.hooks.conversation(AGENT, "task", services.clock()) == (None, None)
    assert not is_silent(services, event.name)
    services.hooks.answer(AGENT, "task", event)
    assert services.hooks.conversation(AGENT, "task", services.clock()) == ("claude", "conversation-1")
    assert is_silent(services, event.name)


@pytest.mark.parametrize("held", [False, True])
def test_a_read_message_that_was_put_back_is_news(services: Services, held: bool) -> None:
    send(services, "admin", AGENT)
    settle(services)
    said(services, "PostToolUse")
    session = services.sessions.open(AGENT) if held else None
    read(services, AGENT, session.lease if session else None)
    if session:  # what it has handed out is in the mailbox still
        assert is_silent(services, "PostToolUse")
    settle(services)
    assert said(services, "PostToolUse") is None
    by_hand(services, AGENT, "back.md", "---\nsender_id: admin\nread_at: '2026-11-27T09:00:00Z'\n---\n\nx")
    assert not is_silent(services, "PostToolUse")
    assert said(services, "PostToolUse") == "[IPC] New message: request from admin"


@pytest.mark.parametrize("kind", ["ipc", "notifications", "tasks"])
def test_what_is_written_into_a_file_that_was_empty_at_a_look_is_no_secret(services: Services, kind: str) -> None:
    path = services.path / kind / AGENT / "new.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as file:
        os.utime(path.parent, ns=(time.time_ns() - 2 * RACY_NS,) * 2)
        assert said(services, "PostToolUse") is None
        file.write("---\nx: 1\n---\n\nx")
    assert not is_silent(services, "PostToolUse")


def test_what_no_event_could_announce_waits_for_one_that_can(services: Services) -> None:
    send(services, "admin", AGENT)
    settle(services)
    assert said(services, "PreToolUse") is None
    settle(services)
    send(services, "admin", AGENT, priority="urgent")
    assert said(services, "Stop") is not None
    settle(services)
    assert said(services, "PostToolUse") == "[IPC] New message: request from admin"
    assert said(services, "PostToolUse") is None


def test_urgent_mail_that_was_announced_long_ago_prevents_one_end_of_a_turn(services: Services) -> None:
    send(services, "admin", AGENT, priority="urgent")
    for _ in range(2):
        settle(services)
        send(services, "admin", AGENT)
        settle(services)
        assert said(services, "PostToolUse") is not None
    assert len(state(services)["urgent"]) == 1
    assert said(services, "Stop") is not None
    assert said(services, "Stop") is None
    assert state(services)["urgent"] == []


def test_urgent_mail_that_was_read_prevents_nothing(services: Services) -> None:
    send(services, "admin", AGENT, priority="urgent")
    settle(services)
    said(services, "PostToolUse")
    settle(services)
    read(services, AGENT)
    assert said(services, "Stop") is None


def test_a_clock_that_was_set_back_has_everything_announced_once_more_and_hides_nothing(services: Services) -> None:
    send(services, "admin", AGENT)
    settle(services)
    said(services, "PostToolUse")
    send(services, "admin", AGENT)
    directory = services.workspace.mailbox(AGENT).path
    os.utime(directory, ns=(0, modified_at(directory) - 3600 * 10**9))
    assert not is_silent(services, "PostToolUse")
    assert said(services, "PostToolUse") is not None


def test_mail_for_the_chat_session_is_announced_when_that_has_ended(services: Services) -> None:
    chat = services.doorbell.serve(AGENT, "chat")
    assert chat is not None
    send(services, "admin", AGENT, message_type="conversation")
    settle(services)
    assert said(services, "PostToolUse") is None
    send(services, "admin", AGENT)
    settle(services)
    assert said(services, "PostToolUse") == "[IPC] New message: request from admin"
    chat.release()
    assert said(services, "PostToolUse") == "[IPC] New message: conversation from admin"
    assert said(services, "PostToolUse") is None


def test_a_state_of_an_earlier_version_announces_nothing_twice(services: Services) -> None:
    sent = [send(services, "admin", AGENT).message_id for _ in range(2)]
    settle(services)
    facts = {"seen": [1, 2, 3], "unread": [["a"], []], "speaks": [], "told": sent[:1], "stopped": [], "ring": None}
    state_path = services.path / ".hooks" / f"{AGENT}.json"
    services.workspace.files.replace(state_path, str(facts).replace("'", '"').replace("None", "null").encode())
    assert said(services, "PostToolUse") == "[IPC] New message: request from admin"
    assert said(services, "PostToolUse") is None


@pytest.mark.parametrize(
    "damage",
    [
        {"urgent": ["\0.md", "../x.md", "\ud800.md", "gone.md"]},
        {"urgent": 5},
        {"until": "x"},
        {"until": 1e400},
        {"seen": 1},
    ],
)
def test_a_state_that_was_spoilt_hides_nothing(services: Services, damage: dict[str, Any]) -> None:
    send(services, "admin", AGENT)
    settle(services)
    said(services, "PostToolUse")
    spoilt = state(services) | damage
    services.workspace.files.replace(services.path / ".hooks" / f"{AGENT}.json", json.dumps(spoilt).encode())
    send(services, "admin", AGENT)
    assert not is_silent(services, "PostToolUse")
    assert said(services, "PostToolUse") is not None
    assert said(services, "PostToolUse") is None


def test_a_hook_without_a_directory_looks_from_where_it_was_when_that_was_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    edit = {"tool_name": "Edit", "tool_input": {"file_path": "a.py"}}
    (path,) = first_look.tool_call(edit, {"edits": {"Edit": ["file_path"]}}).paths
    assert path == (str(gone / "a.py") if sys.platform == "linux" else "/a.py")
    monkeypatch.chdir(tmp_path)
