"""What was not written by its sender, or not as it stands there, is flagged and still read."""

from __future__ import annotations

import shutil
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from multi_agent_mcp.bootstrap import Services
from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.message import Message
from multi_agent_mcp.services.drafts import ENVELOPE_CHARACTERS
from multi_agent_mcp.store.frontmatter import codec
from tests.services.support import by_hand, mail, read, send, size


def flags(answer: dict[str, Any]) -> list[object]:
    return [message.get("verified") for message in answer["messages"]]


def test_a_genuine_message_carries_no_flag_and_costs_its_reader_no_token(services: Services) -> None:
    send(services, "admin", "worker-a")
    assert flags(read(services, "worker-a")) == [None]
    assert flags(read(services, "worker-a", unread_only=False)) == [None]  # read_at was written meanwhile


def test_the_copies_of_a_broadcast_are_signed_each_for_its_receiver(services: Services) -> None:
    send(services, "owner", None)
    assert [flags(read(services, agent)) for agent in ("admin", "worker-a", "worker-b")] == [[None]] * 3


@pytest.mark.parametrize("number", range(3))
def test_a_message_whose_claim_was_used_twice_is_signed(services: Services, number: int) -> None:
    for _ in range(number + 1):
        send(services, "admin", "worker-a", idempotency_key="k")
    assert flags(read(services, "worker-a")) == [None]


def test_a_hand_written_message_is_read_and_flagged(services: Services) -> None:
    by_hand(services, "worker-a", "note.md", "---\nsender_id: owner\n---\n\nhello\n")
    assert flags(read(services, "worker-a")) == [False]
    (path,) = mail(services)
    assert b"signature" not in path.read_bytes()  # marking it read makes it no promise


@pytest.mark.parametrize(
    ("before", "after"),
    [("hello", "goodbye"), ("priority: normal", "priority: urgent"), ("sender_id: admin", "sender_id: owner")],
)
def test_a_message_changed_by_hand_is_flagged(services: Services, before: str, after: str) -> None:
    send(services, "admin", "worker-a")
    (path,) = mail(services)
    path.write_text(path.read_text().replace(before, after))
    assert flags(read(services, "worker-a")) == [False]


def test_a_message_copied_into_another_mailbox_is_flagged(services: Services) -> None:
    send(services, "admin", "worker-a")
    (path,) = mail(services)
    shutil.copy(path, services.workspace.mailbox("worker-b").path / path.name)
    assert flags(read(services, "worker-b")) == [False]
    assert flags(read(services, "worker-a")) == [None]


@pytest.mark.parametrize("sender", ["nobody", "../../secrets/owner", "", "worker-b"])
def test_a_signature_of_a_sender_without_a_key_is_flagged(services: Services, sender: str) -> None:
    services.workspace.key_path("worker-b").unlink()
    by_hand(services, "worker-a", "note.md", f"---\nsender_id: {sender!r}\nsignature: v1:00\n---\n\nhello\n")
    assert flags(read(services, "worker-a")) == [False]


def test_an_empty_key_file_signs_nothing(services: Services) -> None:
    services.workspace.key_path("admin").write_text("\n")
    send(services, "admin", "worker-a")
    assert flags(read(services, "worker-a")) == [False]


def test_a_key_that_was_restored_is_taken_up_by_a_reader_that_knew_another(services: Services) -> None:
    path = services.workspace.key_path("admin")
    right = path.read_text()
    path.write_text("wrong\n")
    by_hand(services, "worker-a", "note.md", "---\nsender_id: admin\nsignature: v1:00\n---\n\nhello\n")
    assert flags(read(services, "worker-a")) == [False]  # the reader has read the wrong key
    path.write_text(right)
    sender = services.signatures.__class__(services.agents)
    message = Message(id="m1", sender_id="admin", receiver_id="worker-a")
    assert services.signatures.verifies(sender.sign(message))


def test_an_unverified_answer_stays_within_its_budget(services: Services) -> None:
    text = "---\nsender_id: owner\n---\n\n" + "x" * ENVELOPE_CHARACTERS
    for number in range(9):
        by_hand(services, "worker-a", f"note-{number}.md", text)
    answer = read(services, "worker-a")
    assert set(flags(answer)) == {False}
    assert size(answer) <= services.settings.limits.answer_characters


def test_conversations_flag_what_was_changed_by_hand(services: Services, admin: Agent, worker_a: Agent) -> None:
    conversation, _ = services.conversations.begin(admin, worker_a, "first words")
    (words,) = services.conversations.messages_of(conversation.id)
    assert "verified" not in services.conversations.spoken(words)
    folder = services.workspace.conversation_messages(conversation.id)
    (path,) = [path for path in folder.path.glob("*.md") if path.name != "conversation.md"]
    path.write_text(path.read_text().replace("first words", "other words"))
    (changed,) = services.conversations.messages_of(conversation.id)
    assert services.conversations.spoken(changed)["verified"] is False


ANY = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | ANY,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANY, inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(subject=ANY, content=ANY, metadata=st.dictionaries(ANY, JSON, max_size=3))
def test_whatever_is_sent_verifies_after_it_was_written_and_read(
    services: Services, subject: str, content: str, metadata: dict[str, Any]
) -> None:
    message = Message(
        id="m1", sender_id="admin", receiver_id="worker-a", subject=subject, metadata=metadata, content=content
    )
    text = codec(Message)
    again = text.decode(text.encode(services.signatures.sign(message)))
    assert services.signatures.verdict(again) == "signed"
