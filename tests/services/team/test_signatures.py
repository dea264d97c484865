"""Messages that were not written by their sender, or were changed afterwards, are flagged but still read."""

from __future__ import annotations

import hashlib
import hmac
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.message import Message, signed_bytes
from multi_agent_mcp.services.answer_budget import ENVELOPE_CHARACTERS
from multi_agent_mcp.store.codec import codec
from multi_agent_mcp.wiring import Services
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
    assert b"signature" not in path.read_bytes()  # marking it read does not sign it


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


def test_a_key_that_was_restored_is_taken_up_by_a_process_that_knew_another(services: Services) -> None:
    path = services.workspace.key_path("admin")
    right = path.read_text()
    path.write_text("wrong\n")
    send(services, "admin", "worker-a")
    assert flags(read(services, "worker-a")) == [False]
    path.write_text(right)
    send(services, "admin", "worker-a")
    assert flags(read(services, "worker-a")) == [None]


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
    assert "verified" not in services.conversations.spoken(conversation, words)
    directory = services.workspace.conversation_messages(conversation.id)
    (path,) = [path for path in directory.path.glob("*.md") if path.name != "conversation.md"]
    path.write_text(path.read_text().replace("first words", "other words"))
    (changed,) = services.conversations.messages_of(conversation.id)
    assert services.conversations.spoken(conversation, changed)["verified"] is False


def test_a_genuine_word_in_the_folder_of_another_conversation_is_flagged(
    services: Services, admin: Agent, worker_a: Agent
) -> None:
    first, _ = services.conversations.begin(admin, worker_a, "in the first")
    second, _ = services.conversations.begin(admin, worker_a, "in the second")
    (path,) = (path for path in folder_of(services, first.id).glob("*.md") if path.name != "conversation.md")
    shutil.copy(path, folder_of(services, second.id) / "copied.md")
    shown = [services.conversations.spoken(second, item) for item in services.conversations.messages_of(second.id)]
    assert {item["content"]: item.get("verified") for item in shown} == {"in the first": False, "in the second": None}


def folder_of(services: Services, conversation_id: str) -> Path:
    return services.workspace.conversation_messages(conversation_id).path


class TestKeys:
    """The public key is in the registry; verifying needs nothing else."""

    def test_a_reader_without_any_key_verifies_what_others_have_signed(self, services: Services) -> None:
        send(services, "admin", "worker-a")
        shutil.rmtree(services.workspace.key_path("admin").parent)
        assert flags(read(services, "worker-a")) == [None]

    def test_a_message_of_old_still_verifies(self, services: Services) -> None:
        message = Message(id="m1", sender_id="admin", receiver_id="worker-a", created_at=services.clock())
        key = services.agents.stored_key("admin").encode()
        digest = hmac.new(key, signed_bytes(message, "v1"), hashlib.sha256).hexdigest()
        services.workspace.mailbox("worker-a").deliver(replace(message, signature=f"v1:{digest}"))
        assert flags(read(services, "worker-a")) == [None]

    def test_a_message_of_old_whose_key_was_lost_is_not_called_forged(self, services: Services) -> None:
        message = Message(id="m1", sender_id="admin", receiver_id="worker-a", created_at=services.clock())
        key = services.agents.stored_key("admin").encode()
        digest = hmac.new(key, signed_bytes(message, "v1"), hashlib.sha256).hexdigest()
        signed = replace(message, signature=f"v1:{digest}")
        assert services.signatures.verdict(signed) == "signed"
        services.agents.key_file("admin").unlink()
        assert services.agents.without_key() == ["admin"]
        services.agents.renew_key("admin")
        assert services.signatures.verdict(signed) == "no_key"
        assert services.signatures.verdict(replace(message, signature="v1:00")) == "no_key"

    def test_a_sender_who_is_not_registered_is_not_verified_whatever_key_there_is(self, services: Services) -> None:
        services.workspace.key_path("ghost").write_text("k" * 43 + "\n")
        message = Message(id="m1", sender_id="ghost", receiver_id="worker-a", created_at=services.clock())
        signed = services.signatures.sign(message)
        assert signed.signature is not None
        services.workspace.mailbox("worker-a").deliver(signed)
        assert flags(read(services, "worker-a")) == [False]

    def test_what_a_removed_agent_has_signed_stays_signed(self, services: Services) -> None:
        send(services, "worker-b", "worker-a")
        services.agents.remove("worker-b")
        assert flags(read(services, "worker-a")) == [None]

    def test_agents_of_old_get_their_public_keys_from_whoever_can_prove_their_keys(self, services: Services) -> None:
        before = {agent.id: agent.public_key for agent in services.agents.all().values()}
        assert None not in before.values()
        for agent_id in before:
            services.agents.registry.update(agent_id, public_key=None)
        services.workspace.key_path("worker-a").write_text("another key\n")  # it is not the one that is registered
        services.workspace.key_path("worker-b").unlink()
        services.agents.publish_keys()
        after = {agent.id: agent.public_key for agent in services.agents.all().values()}
        assert after == {**before, "worker-a": None, "worker-b": None}

    def test_who_was_proved_by_its_passkey_alone_signs_with_it(self, services: Services) -> None:
        passkey = services.agents.stored_key("admin")
        services.workspace.key_path("admin").unlink()
        send(services, "admin", "worker-a", "nobody can sign this")
        services.agents.authenticate("admin", passkey)
        send(services, "admin", "worker-b", "I can")
        assert (flags(read(services, "worker-a")), flags(read(services, "worker-b"))) == ([False], [None])

    def test_a_public_key_that_was_put_in_by_another_is_a_problem_and_is_said_by_its_owner(
        self, services: Services, caplog: pytest.LogCaptureFixture
    ) -> None:
        own = services.agents.get("admin").public_key
        services.agents.registry.update("admin", public_key=services.agents.get("owner").public_key)
        send(services, "admin", "worker-a")
        assert flags(read(services, "worker-a", mark_as_read=False)) == [False]
        services.agents.authenticate("admin", services.agents.stored_key("admin"))
        assert "not its key's" in caplog.text
        (finding,) = (item for item in services.doctor(lambda _: None).examine() if item.check == "keys")
        assert (finding.level, finding.subject) == ("problem", "admin")
        assert finding.fix is not None
        finding.fix()
        assert services.agents.get("admin").public_key == own
        assert flags(read(services, "worker-a")) == [None]


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
