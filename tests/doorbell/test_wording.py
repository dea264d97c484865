"""The doorbell's line never holds anything an agent wrote freely."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multi_agent_mcp.domain.delivery import DoorbellItem, UnreadNotification
from multi_agent_mcp.domain.message import MESSAGE_TYPES, Message
from multi_agent_mcp.domain.notification import ACTIONS, TYPES
from multi_agent_mcp.doorbell.channel import doorbell_line, sanitized
from multi_agent_mcp.texts import catalogue

HOSTILE = ["$(reboot)", "`id`", "a;b", "x\n/exit", "\x1b[31m", "admin\u202e", "rm -rf ~", "", "a" * 65, '"', "--help"]


def test_one_message_names_its_type_and_sender() -> None:
    message = Message(id="m", sender_id="worker-a", message_type="task_complete")
    assert doorbell_line(catalogue("ja"), [message]) == "[IPC] 新しいメッセージ: task_complete from worker-a"
    assert doorbell_line(catalogue("en"), [message]) == "[IPC] New message: task_complete from worker-a"


def test_several_messages_are_one_line_with_their_number() -> None:
    messages = [Message(id=str(number), sender_id="admin", message_type="request") for number in range(3)]
    assert doorbell_line(catalogue("ja"), messages) == "[IPC] 新しいメッセージ: 3件"


def notification(
    action: str | None = "task_assigned", sender_id: str | None = "admin", type: str = "status_change"
) -> UnreadNotification:
    return UnreadNotification("n", sender_id, type, action, ("task",))


def test_one_notification_names_its_action_and_who_caused_it() -> None:
    assert doorbell_line(catalogue("ja"), [notification()]) == "[IPC] 新しい通知: task_assigned from admin"
    assert doorbell_line(catalogue("en"), [notification()]) == "[IPC] New notification: task_assigned from admin"


def test_what_nobody_caused_is_from_the_system_and_what_has_no_action_is_named_by_its_type() -> None:
    line = doorbell_line(catalogue("ja"), [notification(action=None, sender_id=None)])
    assert line == "[IPC] 新しい通知: status_change from system"


def test_several_notifications_are_one_line_with_their_number() -> None:
    assert doorbell_line(catalogue("ja"), [notification()] * 3) == "[IPC] 新しい通知: 3件"
    assert doorbell_line(catalogue("en"), [notification()] * 3) == "[IPC] New notifications: 3"


def test_messages_and_notifications_are_one_line_with_both_numbers() -> None:
    items: list[DoorbellItem] = [
        notification(),
        Message(id="m", sender_id="admin", message_type="request"),
        notification(),
    ]
    assert doorbell_line(catalogue("ja"), items) == "[IPC] 新しいメッセージ: 1件、新しい通知: 2件"
    assert doorbell_line(catalogue("en"), items) == "[IPC] New messages: 1, new notifications: 2"


@pytest.mark.parametrize("hostile", HOSTILE)
def test_a_hand_written_type_or_sender_is_not_repeated(hostile: str) -> None:
    line = doorbell_line(catalogue("en"), [Message(id="m", sender_id=hostile, message_type=hostile)])
    assert line == "[IPC] New message: request from unknown"


@given(st.text(), st.text())
def test_whatever_a_file_claims_the_line_is_made_of_names_and_known_words(sender: str, kind: str) -> None:
    line = doorbell_line(catalogue("en"), [Message(id="m", sender_id=sender, message_type=kind)])
    found = re.fullmatch(r"\[IPC\] New message: (\w+) from ([A-Za-z0-9][A-Za-z0-9_-]{0,63})", line)
    assert found is not None
    assert found[1] in MESSAGE_TYPES


@given(st.text(), st.text(), st.text())
def test_whatever_a_notification_claims_the_line_is_made_of_names_and_known_words(
    sender: str, action: str, kind: str
) -> None:
    line = doorbell_line(catalogue("en"), [notification(action, sender, kind)])
    found = re.fullmatch(r"\[IPC\] New notification: (\w+) from ([A-Za-z0-9][A-Za-z0-9_-]{0,63})", line)
    assert found is not None
    assert found[1] in (*ACTIONS, *TYPES)


@given(st.text())
def test_a_sanitized_line_holds_nothing_a_terminal_obeys(text: str) -> None:
    line = sanitized(text)
    assert not re.search("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]", line)
    assert len(line) == len(text)


def test_harmless_text_is_kept() -> None:
    assert sanitized("[IPC] 新しいメッセージ: 3件 🎉") == "[IPC] 新しいメッセージ: 3件 🎉"
