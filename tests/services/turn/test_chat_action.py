"""The next action of a chat session (docs/protocol.md, Next action)."""

from __future__ import annotations

from typing import Any

import pytest

from multi_agent_mcp.domain.message import Conversation
from multi_agent_mcp.services.sessions.agent_sessions import LiveSession
from multi_agent_mcp.services.validation import Draft
from multi_agent_mcp.wiring import Services
from tests.conftest import Clock
from tests.services.support import read, send
from tests.services.tasks_support import converse, delegate, dies, open_session, running


@pytest.fixture
def chat(services: Services) -> LiveSession:
    """worker-a's chat session."""
    return open_session(services, "worker-a", "chat")


@pytest.fixture
def partner(services: Services) -> LiveSession:
    """worker-b's chat session."""
    return open_session(services, "worker-b", "chat")


def action(services: Services, session: LiveSession) -> dict[str, Any]:
    answer = services.chat_action.next_action(services.agents.get(session.record.agent_id), session.record)
    assert answer["instruction"]
    return answer


def say(services: Services, sender: str, conversation: Conversation, words: str) -> None:
    services.conversations.say(services.agents.get(sender), conversation.id, Draft(content=words))


def test_nothing_to_do_is_to_wait(services: Services, chat: LiveSession) -> None:
    assert action(services, chat)["action"] == "wait"


def test_a_delegation_is_handed_out_and_taken(services: Services, clock: Clock, chat: LiveSession) -> None:
    running(services)
    task = open_session(services, "worker-a")
    first = delegate(services, task, context="six rounds")
    clock.advance(1)
    second = delegate(services, task, "admin")
    answer = action(services, chat)
    assert answer["action"] == "process_delegation"
    assert answer["delegation"] == {
        "delegation_id": first.id,
        "target_agent_id": "worker-b",
        "purpose": "play",
        "context": "six rounds",
        "task_id": task.record.task_id,
        "created_at": "2026-11-21T21:46:01.123456Z",
    }
    other = open_session(services, "worker-a", "chat")
    assert action(services, other)["action"] == "wait"
    converse(services, chat.record)
    assert action(services, chat)["delegation"]["delegation_id"] == second.id
    dies(services, chat)
    assert action(services, other)["delegation"]["delegation_id"] == second.id


def test_a_chat_session_answers_or_ends_what_the_task_session_has_read_before_it_began(
    services: Services, clock: Clock, chat: LiveSession
) -> None:
    conversation = converse(services, chat.record)
    read(services, "worker-b")
    clock.advance(1)
    begun = open_session(services, "worker-b", "chat")
    for _ in range(2):
        answer = action(services, begun)
        assert (answer["action"], answer["conversation_ids"], answer["unread_count"]) == (
            "conversation_message",
            [conversation.id],
            0,
        )
        assert "get_conversation_messages" in answer["instruction"]
    say(services, "worker-b", conversation, "here")
    assert action(services, begun)["action"] == "wait"
    clock.advance(1)
    say(services, "worker-a", conversation, "thanks")
    read(services, "worker-b")
    assert action(services, begun)["action"] == "wait", "it has read this itself, and may have nothing to add"
    services.conversations.end(services.agents.get("worker-b"), conversation.id)
    assert action(services, begun)["action"] == "exit"


def test_a_conversation_goes_through_request_message_and_end(
    services: Services, clock: Clock, chat: LiveSession, partner: LiveSession
) -> None:
    conversation = converse(services, chat.record, words="りんご", purpose="shiritori")
    request = action(services, partner)
    assert (request["action"], request["conversation_id"], request["initiator_id"], request["purpose"]) == (
        "conversation_request",
        conversation.id,
        "worker-a",
        "shiritori",
    )
    assert action(services, chat)["action"] == "wait"
    read(services, "worker-b")
    assert action(services, partner)["action"] == "wait"
    say(services, "worker-b", conversation, "ごりら")
    message = action(services, chat)
    assert (message["action"], message["conversation_ids"], message["unread_count"]) == (
        "conversation_message",
        [conversation.id],
        1,
    )
    read(services, "worker-a")
    clock.advance(1)
    services.conversations.end(services.agents.get("worker-a"), conversation.id, "thanks")
    assert action(services, chat)["action"] == "exit"
    ended = action(services, partner)
    assert (ended["action"], ended["conversation_ids"]) == ("conversation_ended", [conversation.id])
    read(services, "worker-b")
    assert action(services, partner)["action"] == "exit"


def test_an_end_without_last_words_is_told_too(services: Services, chat: LiveSession, partner: LiveSession) -> None:
    conversation = converse(services, chat.record)
    read(services, "worker-b")
    services.conversations.end(services.agents.get("worker-a"), conversation.id)
    assert action(services, partner)["action"] == "conversation_ended"


def test_a_session_stays_while_another_conversation_is_open(
    services: Services, clock: Clock, chat: LiveSession
) -> None:
    first, second = converse(services, chat.record), converse(services, chat.record, "admin")
    clock.advance(1)
    worker = services.agents.get("worker-a")
    services.conversations.end(worker, first.id)
    assert action(services, chat)["action"] == "wait"
    services.conversations.end(worker, second.id)
    assert action(services, chat)["action"] == "exit"


def test_a_conversation_that_ended_before_this_session_does_not_send_it_away(
    services: Services, clock: Clock, chat: LiveSession
) -> None:
    conversation = converse(services, chat.record)
    services.conversations.end(services.agents.get("worker-a"), conversation.id)
    clock.advance(1)
    assert action(services, open_session(services, "worker-a", "chat"))["action"] == "wait"


def test_other_mail_comes_last(services: Services, chat: LiveSession, partner: LiveSession) -> None:
    send(services, "admin", "worker-a", "not about a conversation")
    answer = action(services, chat)
    assert (answer["action"], answer["unread_count"]) == ("read_messages", 1)
    converse(services, partner.record, "worker-a")
    assert action(services, chat)["action"] == "conversation_request"


def test_a_conversation_with_nobody_answering_stays_what_it_is(services: Services, chat: LiveSession) -> None:
    conversation = converse(services, chat.record)
    dies(services, chat)
    assert services.conversations.get(conversation.id).status == "pending"
    assert action(services, open_session(services, "worker-a", "chat"))["action"] == "wait"


def test_a_session_whose_window_was_opened_for_it_leaves_when_nothing_is_open_any_more(
    services: Services, clock: Clock, chat: LiveSession
) -> None:
    conversation = converse(services, chat.record)
    services.conversations.end(services.agents.get("worker-a"), conversation.id)
    clock.advance(1)
    late = open_session(services, "worker-a", "chat")
    worker = services.agents.get("worker-a")
    assert services.chat_action.next_action(worker, late.record, leaves=True)["action"] == "exit"
    assert services.chat_action.is_over(worker, late, leaves=True)
    converse(services, late.record)
    assert services.chat_action.next_action(worker, late.record, leaves=True)["action"] == "wait"
    assert not services.chat_action.is_over(worker, late, leaves=True)


def test_nothing_is_to_be_answered_in_a_conversation_that_this_agent_has_ended(
    services: Services, clock: Clock, chat: LiveSession, partner: LiveSession
) -> None:
    conversation = converse(services, chat.record)
    read(services, "worker-b")
    say(services, "worker-b", conversation, "one more thing")
    services.conversations.end(services.agents.get("worker-a"), conversation.id)
    answer = action(services, chat)
    assert (answer["action"], answer["conversation_ids"]) == ("conversation_ended", [conversation.id])
    assert "read_messages" in answer["instruction"]
    assert "send_message" not in answer["instruction"]
    read(services, "worker-a")
    assert action(services, chat)["action"] == "exit"
