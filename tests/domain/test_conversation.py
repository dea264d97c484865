"""Conversations and delegations as pure values (docs/protocol.md, Conversations)."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from multi_agent_mcp.domain.message import Conversation, Delegation
from multi_agent_mcp.errors import ConversationNotActive, NotParticipant

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
PENDING = Conversation(id="cnv_0123456789ab", initiator_id="worker-a", target_agent_id="worker-b", started_at=NOON)
ACTIVE = PENDING.seen_by("worker-b")
ENDED = ACTIVE.end("worker-b", NOON)
DELEGATION = Delegation(id="dlg_0123456789ab", agent_id="worker-a", target_agent_id="worker-b", purpose="talk")


def test_a_conversation_is_pending_until_the_other_side_has_seen_it_then_active_then_ended() -> None:
    assert [item.status for item in (PENDING, ACTIVE, ENDED)] == ["pending", "active", "ended"]
    assert (ENDED.ended_at, ENDED.ended_by) == (NOON, "worker-b")


@pytest.mark.parametrize("agent_id", ["worker-a", "admin"])
def test_only_the_target_makes_it_active(agent_id: str) -> None:
    assert PENDING.seen_by(agent_id) is PENDING


@pytest.mark.parametrize("conversation", [ACTIVE, ENDED])
def test_being_seen_again_changes_nothing(conversation: Conversation) -> None:
    assert conversation.seen_by("worker-b") is conversation


@pytest.mark.parametrize("conversation", [PENDING, ACTIVE, ENDED])
def test_each_participant_has_the_other_and_nobody_else_has_any(conversation: Conversation) -> None:
    assert conversation.other("worker-a") == "worker-b"
    assert conversation.other("worker-b") == "worker-a"
    for stranger in ("admin", ""):
        assert not conversation.has(stranger)
        with pytest.raises(NotParticipant):
            conversation.other(stranger)
        with pytest.raises(NotParticipant):
            conversation.end(stranger, NOON)


@pytest.mark.parametrize("by", ["worker-a", "worker-b"])
@pytest.mark.parametrize("conversation", [PENDING, ACTIVE])
def test_either_side_ends_it_also_before_anybody_answered(conversation: Conversation, by: str) -> None:
    assert conversation.end(by, NOON).ended_by == by


def test_an_ended_conversation_says_so() -> None:
    PENDING.require_open()
    ACTIVE.require_open()
    for refused in (ENDED.require_open, lambda: ENDED.end("worker-a", NOON)):
        with pytest.raises(ConversationNotActive):
            refused()


def test_a_delegation_is_taken_by_one_session_and_taking_it_again_changes_nothing() -> None:
    taken = DELEGATION.take("ses_000000000001", NOON)
    assert (taken.status, taken.taken_by, taken.updated_at) == ("taken", "ses_000000000001", NOON)
    assert taken.take("ses_000000000001", NOON + timedelta(hours=1)) is taken
    later = taken.take("ses_000000000002", NOON + timedelta(hours=1))
    assert (later.status, later.taken_by) == ("taken", "ses_000000000002")


def test_a_started_delegation_names_its_conversation() -> None:
    started = DELEGATION.start("ses_000000000001", "cnv_0123456789ab", NOON)
    assert (started.status, started.taken_by, started.conversation_id) == (
        "started",
        "ses_000000000001",
        "cnv_0123456789ab",
    )
    assert (
        replace(started, status="pending", taken_by=None, conversation_id=None, updated_at=DELEGATION.updated_at)
        == DELEGATION
    )
