"""A person takes part in a conversation without a session: starts it, answers a message (docs/protocol.md,
Conversations)."""

from __future__ import annotations

import pytest

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.message import Conversation, Message
from multi_agent_mcp.errors import (
    AgentNotFound,
    ConversationNotActive,
    InvalidArguments,
    InvalidId,
    MessageNotFound,
    TaskNotFound,
    Unauthorized,
)
from multi_agent_mcp.wiring import Services
from tests.services.support import by_hand, read, send
from tests.services.tasks_support import new, snapshot


@pytest.fixture
def asked(services: Services, admin: Agent, owner: Agent) -> Conversation:
    """The Admin has asked the Owner something in a conversation."""
    return services.conversations.begin(admin, owner, "Which database?", purpose="storage")[0]


def newest(services: Services, agent_id: str) -> Message:
    return next(services.workspace.mailbox(agent_id).history())


def test_an_answer_goes_into_the_conversation_of_the_message_and_makes_it_active(
    services: Services, asked: Conversation, owner: Agent
) -> None:
    question = newest(services, "owner")
    sent, conversation = services.human_conversations.reply(owner, question.id, "Postgres.")
    answer = newest(services, "admin")
    assert conversation is not None
    assert (conversation.id, sent.message_id) == (asked.id, answer.id)
    assert answer.metadata == {"conversation_id": asked.id, "in_reply_to": question.id}
    assert (answer.message_type, answer.subject) == ("conversation", "storage")
    assert services.signatures.verifies(answer, "admin")
    assert services.conversations.get(asked.id).status == "active"
    assert answer in services.conversations.messages_of(asked.id)
    assert read(services, "owner")["count"] == 1, "answering is not reading"


@pytest.mark.parametrize(
    ("subject", "answered"),
    [("", ""), ("Login", "Re: Login"), ("Re: Login", "Re: Login"), ("x" * 3000, "Re: " + "x" * 496)],
)
def test_an_answer_to_plain_mail_is_plain_mail_to_its_sender(
    services: Services, owner: Agent, subject: str, answered: str
) -> None:
    sent = send(services, "admin", "owner", "Which database?", subject=subject, metadata={"task_id": "x"})
    _, conversation = services.human_conversations.reply(owner, sent.message_id, "Postgres.")
    answer = newest(services, "admin")
    assert conversation is None
    assert (answer.message_type, answer.subject, answer.content) == ("response", answered, "Postgres.")
    assert answer.metadata == {"in_reply_to": sent.message_id}


def test_a_copy_of_a_broadcast_is_answered_to_its_sender_alone(services: Services, worker_a: Agent) -> None:
    send(services, "admin", None, "Lunch?")
    sent, _ = services.human_conversations.reply(worker_a, newest(services, "worker-a").id, "Yes.")
    assert sent.receiver_ids == ["admin"]


def test_a_message_that_only_claims_a_conversation_is_answered_as_mail(
    services: Services, asked: Conversation, owner: Agent
) -> None:
    claim = send(services, "worker-a", "owner", "me too", metadata={"conversation_id": asked.id}).message_id
    by_hand(
        services,
        "owner",
        "note.md",
        f"---\nid: x\nsender_id: admin\nmetadata: {{conversation_id: {asked.id}}}\n---\n\n?",
    )
    for message_id in (claim, "note.md"):
        assert services.human_conversations.reply(owner, message_id, "What?")[1] is None
    assert services.conversations.get(asked.id).status == "pending"
    assert len(services.conversations.messages_of(asked.id)) == 1


def test_the_beginning_of_an_id_is_enough_if_no_other_has_it(services: Services, owner: Agent) -> None:
    find = services.human_conversations.message_to
    sent = send(services, "admin", "owner").message_id
    assert find(owner, sent[:4]).id == find(owner, sent[:13]).id == sent
    with pytest.raises(MessageNotFound):
        find(owner, sent[:3])
    with pytest.raises(MessageNotFound):
        find(owner, "")
    by_hand(services, "owner", "copy.md", f"---\nid: {sent[:8]}-of-another\nsender_id: admin\n---\n\nhello")
    with pytest.raises(InvalidArguments) as refused:
        find(owner, sent[:8])
    assert refused.value.key == "error.ambiguous_id"
    assert find(owner, sent).id == sent


def test_what_cannot_be_answered_changes_nothing(services: Services, asked: Conversation, owner: Agent) -> None:
    reply = services.human_conversations.reply
    question = newest(services, "owner")
    others = send(services, "admin", "worker-a").message_id
    by_hand(services, "owner", "stranger.md", "---\nid: stranger\nsender_id: nobody\n---\n\nhello")
    by_hand(services, "owner", "nameless.md", "---\nid: nameless\nsender_id: ../admin\n---\n\nhello")
    before = snapshot(services)
    for message_id, words, refusal in (
        (question.id, "", InvalidArguments),
        (question.id, " \n\t", InvalidArguments),
        (question.id, "\udc80", InvalidArguments),
        (others, "mine?", Unauthorized),
        ("00000000-0000-4000-8000-000000000000", "who?", MessageNotFound),
        ("../../outside.md", "who?", MessageNotFound),
        ("stranger", "who?", AgentNotFound),
        ("nameless", "who?", InvalidId),
    ):
        with pytest.raises(refusal):
            reply(owner, message_id, words)
    assert snapshot(services) == before
    services.conversations.end(services.agents.get("admin"), asked.id, "Never mind.")
    (last,) = [item for item in services.workspace.mailbox("owner").history() if item.content == "Never mind."]
    before = snapshot(services)
    for message_id in (question.id, last.id):
        with pytest.raises(ConversationNotActive):
            reply(owner, message_id, "Too late?")
    assert snapshot(services) == before


def test_a_conversation_about_a_task_is_among_the_tasks_own(services: Services, owner: Agent) -> None:
    task = new(services)
    conversation, sent = services.human_conversations.start(owner, "worker-a", "How far?", "progress", task.id)
    assert services.conversations.of_task(task.id) == [conversation]
    assert (conversation.initiator_id, conversation.status, conversation.purpose) == ("owner", "pending", "progress")
    assert newest(services, "worker-a").id == sent.message_id


def test_a_conversation_that_cannot_begin_leaves_nothing(services: Services, owner: Agent, worker_b: Agent) -> None:
    task = new(services)
    before = snapshot(services)
    start = services.human_conversations.start
    for initiator, target, words, task_id, refusal in (
        (owner, "owner", "hello", None, InvalidArguments),
        (owner, "nobody", "hello", None, AgentNotFound),
        (owner, "../x", "hello", None, InvalidId),
        (owner, "worker-a", "  ", None, InvalidArguments),
        (owner, "worker-a", "hello", "tsk_000000000000", TaskNotFound),
        (owner, "worker-a", "hello", "../x", InvalidId),
        (worker_b, "admin", "hello", task.id, Unauthorized),
    ):
        with pytest.raises(refusal):
            start(initiator, target, words, None, task_id)
    assert snapshot(services) == before
