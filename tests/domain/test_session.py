"""Agent sessions, notifications and the Owner's wait, as values."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from multi_agent_mcp.domain.agent import AgentSession, OwnerWait
from multi_agent_mcp.domain.notification import Notification

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def test_a_session_expires_an_hour_after_its_last_call() -> None:
    session = AgentSession(id="ses_0123456789ab", created_at=NOON).touch(NOON)
    assert not session.expired(NOON + HOUR - timedelta(microseconds=1))
    assert session.expired(NOON + HOUR)
    assert not session.touch(NOON + HOUR / 2).expired(NOON + HOUR)


def test_an_ended_session_keeps_the_end_it_had() -> None:
    ended = AgentSession(id="ses_0123456789ab").end(NOON)
    assert (ended.state, ended.ended_at) == ("ended", NOON)
    assert ended.end(NOON + HOUR, "expired") == ended


def test_a_session_holds_what_it_handed_out() -> None:
    leased = AgentSession(id="ses_0123456789ab").with_unconfirmed(("a", "b"))
    assert leased.unconfirmed == ("a", "b")
    assert leased.with_unconfirmed(()).unconfirmed == ()


@pytest.mark.parametrize(
    ("target", "task", "chat"), [(None, True, True), ("both", True, True), ("task", True, False), ("chat", False, True)]
)
def test_a_notification_is_meant_for_sessions_of_its_purpose(target: str | None, task: bool, chat: bool) -> None:
    notice = Notification(id="ntf_0123456789ab", target_purpose=target)
    assert (notice.meant_for("task"), notice.meant_for("chat")) == (task, chat)


def test_only_an_interrupt_interrupts() -> None:
    assert Notification(id="ntf_0123456789ab", type="interrupt").interrupts
    assert not Notification(id="ntf_0123456789ab", type="chat_session_notification").interrupts


def test_empty_looks_are_counted_in_a_row() -> None:
    wait = OwnerWait(owner_id="owner").checked(0).checked(0)
    assert wait.empty_checks == 2
    assert wait.checked(3).empty_checks == 0
