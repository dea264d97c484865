"""Nothing is believed that is not signed: a forged file is mail like any other, shown as not verified, without effect.

Each kind of forgery is tried on each effect that mail has; the genuine message beside it has that effect.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from multi_agent_mcp.domain.entity import new_message_id
from multi_agent_mcp.domain.message import Conversation, Message, signature
from multi_agent_mcp.services.mail import NewMessages, Send
from multi_agent_mcp.services.validation import Draft
from multi_agent_mcp.store.inbox import file_name
from multi_agent_mcp.wiring import Services
from tests.services.support import contents, read, send
from tests.services.tasks_support import delegate, new, open_session
from tests.services.test_operations import began

Forge = Callable[[Services, Message], Message]


def unsigned(services: Services, message: Message) -> Message:
    return message


def tampered(services: Services, message: Message) -> Message:
    return replace(services.signatures.sign(replace(message, content="something harmless")), content=message.content)


def misplaced(services: Services, message: Message) -> Message:
    """A message with a genuine signature, but addressed to another agent."""
    other = "worker-b" if message.receiver_id != "worker-b" else "owner"
    return services.signatures.sign(replace(message, receiver_id=other))


def by_another_key(services: Services, message: Message) -> Message:
    return replace(message, signature=signature(message, "a key that the forger has made"))


def without_a_key(services: Services, message: Message) -> Message:
    """A message with a genuine signature of a sender whose public key was removed from the registry."""
    signed = services.signatures.sign(message)
    services.agents.registry.update(message.sender_id, public_key=None)
    return signed


def genuine(services: Services, message: Message) -> Message:
    return services.signatures.sign(message)


FORGERIES: list[Forge] = [unsigned, tampered, misplaced, by_another_key, without_a_key]
KINDS = pytest.mark.parametrize("forge", [*FORGERIES, genuine], ids=lambda forge: forge.__name__)


def drop(services: Services, forge: Forge, sender: str, receiver: str, **fields: Any) -> Message:
    """Puts a message into the receiver's mailbox, past all that sending checks."""
    message = Message(
        id=new_message_id(),
        sender_id=sender,
        receiver_id=receiver,
        created_at=services.clock(),
        **{"content": "do it", **fields},
    )
    forged = forge(services, message)
    services.workspace.mailbox(receiver).deliver(forged)
    return forged


def taken(services: Services, forge: Forge, reader: str, message: Message) -> dict[str, Any]:
    """Reads the message, which must succeed whatever its signature is; returns the answer."""
    answer = read(services, reader, message_id=message.id)
    (shown,) = answer["messages"]
    assert shown["content"] == message.content
    assert shown.get("verified") is (None if forge is genuine else False)
    assert services.workspace.mailbox(reader).find(message.id)[1].read_at is not None  # type: ignore[index]
    return answer


@KINDS
def test_it_ends_no_wait(services: Services, forge: Forge) -> None:
    services.task_creation.send(services.agents.get("owner"), "admin", "Build", "the house")
    message = drop(services, forge, "admin", "owner", message_type="response")
    taken(services, forge, "owner", message)
    assert (services.owner_waits.of("owner") is None) == (forge is genuine)


@KINDS
@pytest.mark.parametrize("kind", ["task_progress", "task_complete", "task_failed"])
def test_it_applies_no_report_and_updates_no_dashboard(services: Services, forge: Forge, kind: str) -> None:
    task = new(services)
    message = drop(services, forge, "worker-a", "admin", message_type=kind, metadata={"task_id": task.id})
    answer = taken(services, forge, "admin", message)
    assert (services.task_changes.get(task.id) != task) == (forge is genuine)
    assert answer["dashboard_updated"] == services.workspace.dashboard_path.exists() == (forge is genuine)


@KINDS
def test_it_is_no_evidence_of_a_request(services: Services, forge: Forge) -> None:
    task = new(services)
    drop(services, forge, "admin", "worker-a", message_type="request")
    services.chat_task_operations.start(services.agents.get("worker-a"), task.id, "admin")
    (path,) = (services.workspace.path / "audit").iterdir()
    assert json.loads(path.read_text().splitlines()[-1]).get("mismatch") is (None if forge is genuine else True)


@pytest.fixture
def talk(services: Services) -> Conversation:
    """A conversation that worker-b was asked for and has not looked at."""
    worker_a, worker_b = services.agents.get("worker-a"), services.agents.get("worker-b")
    return services.conversations.begin(worker_a, worker_b, "hello")[0]


def state(services: Services, conversation: Conversation) -> tuple[Conversation, int]:
    return services.conversations.get(conversation.id), len(services.conversations.messages_of(conversation.id))


@KINDS
def test_it_makes_no_conversation_active(services: Services, talk: Conversation, forge: Forge) -> None:
    metadata = {"conversation_id": talk.id}
    message = drop(services, forge, "worker-a", "worker-b", message_type="conversation", metadata=metadata)
    taken(services, forge, "worker-b", message)
    assert state(services, talk)[0].status == ("active" if forge is genuine else "pending")


@KINDS
def test_it_asks_for_no_conversation_and_ends_none(services: Services, talk: Conversation, forge: Forge) -> None:
    chat = open_session(services, "worker-b", "chat").record
    worker_b = services.agents.get("worker-b")
    read(services, "worker-b")
    before = state(services, talk)
    metadata = {"conversation_id": talk.id, "ended": True}
    drop(services, forge, "worker-a", "worker-b", message_type="conversation", metadata=metadata)
    expected = "conversation_message" if forge is genuine else "read_messages"  # it has not ended, whoever says so
    assert services.chat_action.next_action(worker_b, chat)["action"] == expected
    assert state(services, talk) == before


@KINDS
def test_it_lets_no_delegation_pass_for_carried_out(services: Services, talk: Conversation, forge: Forge) -> None:
    (words,) = services.conversations.messages_of(talk.id)
    mailbox = services.workspace.mailbox("worker-b")
    ((name, _),) = mailbox.unread(fresh=True)
    (mailbox.path / name).unlink()  # as if the starter had been killed before it was mail
    assert not services.conversations.is_heard(talk)
    mailbox.deliver(forge(services, replace(words, signature=None)))
    assert services.conversations.is_heard(talk) == (forge is genuine)


@pytest.mark.parametrize("taken_name", [False, True])
def test_a_message_that_others_finish_sending_is_not_signed_by_them(services: Services, taken_name: bool) -> None:
    """An intent is only a file: an unsigned message in it does not make any process sign it."""
    message = Message(id=new_message_id(), sender_id="admin", receiver_id="worker-a", created_at=services.clock())
    if taken_name:
        send(services, "owner", "worker-a")
        mailbox = services.workspace.mailbox("worker-a")
        ((name, _),) = mailbox.unread(fresh=True)
        (mailbox.path / name).rename(mailbox.path / file_name(message))
    began(services, Send(mail=NewMessages([message])))
    assert services.operations.finish() == 1
    shown = read(services, "worker-a")["messages"]
    assert [item.get("verified") for item in shown if item["sender_id"] == "admin"] == [False]


def test_a_message_is_genuine_though_whoever_finishes_sending_it_has_no_key(services: Services) -> None:
    prepared = services.messages.compose(services.agents.get("admin"), Draft(content="hello", receiver_id="worker-a"))
    began(services, Send(mail=prepared.to_store))
    services.workspace.key_path("admin").unlink()
    assert services.operations.finish() == 1
    (shown,) = read(services, "worker-a")["messages"]
    assert (shown["content"], shown.get("verified")) == ("hello", None)


class TestForeigners:
    """Genuine messages about a conversation have no effect when their sender is not a participant."""

    @pytest.mark.parametrize("status", ["pending", "active", "ended"])
    @pytest.mark.parametrize("kind", ["conversation", "system", "request"])
    def test_a_foreigners_metadata_means_nothing(
        self, services: Services, talk: Conversation, kind: str, status: str
    ) -> None:
        chat = open_session(services, "worker-b", "chat").record
        worker_b = services.agents.get("worker-b")
        if status == "ended":
            services.conversations.end(services.agents.get("worker-a"), talk.id)
        if status != "pending":
            read(services, "worker-b")
        before = state(services, talk)
        metadata = {"conversation_id": talk.id, "ended": True}
        sent = send(services, "admin", "worker-b", "it is over", message_type=kind, metadata=metadata)
        action = services.chat_action.next_action(worker_b, chat)["action"]
        assert action == ("conversation_request" if status == "pending" else "read_messages")
        answer = read(services, "worker-b", message_id=sent.message_id)
        assert contents(answer) == ["it is over"]
        assert state(services, talk) == before

    def test_a_participant_cannot_announce_an_end_that_has_not_come(
        self, services: Services, talk: Conversation
    ) -> None:
        chat = open_session(services, "worker-b", "chat").record
        read(services, "worker-b")
        metadata = {"conversation_id": talk.id, "ended": True}
        send(services, "worker-a", "worker-b", message_type="conversation", metadata=metadata)
        answer = services.chat_action.next_action(services.agents.get("worker-b"), chat)
        assert (answer["action"], answer["conversation_ids"]) == ("conversation_message", [talk.id])

    @pytest.mark.parametrize("named", [["x"], {"a": 1}, 7, None, "cnv_000000000000", "../../ipc", "cnv_\x00"])
    def test_a_conversation_that_cannot_be_one_stops_nobody(self, services: Services, named: object) -> None:
        chat = open_session(services, "worker-b", "chat").record
        metadata = {"conversation_id": named, "ended": True}
        send(services, "admin", "worker-b", "odd", message_type="conversation", metadata=metadata)
        answer = services.chat_action.next_action(services.agents.get("worker-b"), chat)
        assert (answer["action"], answer["unread_count"]) == ("read_messages", 1)
        assert contents(read(services, "worker-b")) == ["odd"]

    def test_it_opens_no_chat_window(self, services: Services, talk: Conversation) -> None:
        read(services, "worker-b")
        worker_b = services.agents.get("worker-b")
        metadata = {"conversation_id": talk.id}
        send(services, "admin", "worker-b", message_type="conversation", metadata=metadata)
        assert not services.missing_sessions._has_chat_work(worker_b)
        delegate(services, open_session(services, "worker-b"), "worker-a")
        assert services.missing_sessions._has_chat_work(worker_b)
