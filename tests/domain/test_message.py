"""Messages and the order in which they are read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from multi_agent_mcp.domain.entity import age
from multi_agent_mcp.domain.message import Message, reading_order

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


def message(id: str, minutes: int = 0, priority: str = "normal") -> Message:
    return Message(id=id, created_at=NOON + timedelta(minutes=minutes), priority=priority)


def test_urgent_mail_is_read_first_and_otherwise_the_oldest() -> None:
    mail = [message("b", 2), message("c", 3, "urgent"), message("a", 1, "high"), message("d", 4, "urgent")]
    assert [item.id for item in sorted(mail, key=reading_order)] == ["c", "d", "a", "b"]


def test_priority_plays_no_part_in_a_page_of_history() -> None:
    mail = [message("b", 2, "urgent"), message("a", 1), message("c", 3)]
    assert [item.id for item in sorted(mail, key=age, reverse=True)] == ["c", "b", "a"]


def test_messages_of_the_same_moment_have_one_order() -> None:
    mail = [message("b"), message("a"), message("c")]
    assert [item.id for item in sorted(mail, key=reading_order)] == ["a", "b", "c"]


def test_marking_read_gives_a_new_message_and_can_be_taken_back() -> None:
    fresh = message("a")
    read = fresh.mark_read(NOON)
    assert (fresh.read_at, read.read_at, read.mark_read(None)) == (None, NOON, fresh)
