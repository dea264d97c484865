"""Two agents talk; every word is mail, and a copy is with the conversation (docs/protocol.md, Conversations)."""

from __future__ import annotations

import shutil
from collections.abc import Callable

import pytest

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.message import Conversation
from multi_agent_mcp.errors import (
    AgentNotFound,
    ContentTooLarge,
    ConversationNotActive,
    ConversationNotFound,
    InvalidArguments,
    InvalidId,
    NotParticipant,
    Refusal,
)
from multi_agent_mcp.services.validation import Draft
from multi_agent_mcp.wiring import Services
from tests.conftest import Clock
from tests.services.support import contents, read, send
from tests.services.tasks_support import inbox, snapshot


@pytest.fixture
def conversation(services: Services, worker_a: Agent, worker_b: Agent) -> Conversation:
    return services.conversations.begin(worker_a, worker_b, "りんご", purpose="shiritori")[0]


def say(services: Services, sender: str, conversation: Conversation, words: str) -> None:
    services.conversations.say(services.agents.get(sender), conversation.id, Draft(content=words))


def spoken(services: Services, conversation: Conversation) -> list[tuple[str, str]]:
    return [(item.sender_id, item.content) for item in services.conversations.messages_of(conversation.id)]


def status(services: Services, conversation: Conversation) -> str:
    return services.conversations.get(conversation.id).status


def test_the_first_words_are_mail_and_the_conversation_is_pending(
    services: Services, conversation: Conversation
) -> None:
    assert services.conversations.get(conversation.id) == conversation
    assert (conversation.status, conversation.purpose, conversation.ended_at) == ("pending", "shiritori", None)
    assert inbox(services, "worker-b") == [("conversation", "worker-a", "りんご")]
    ((_, mail),) = services.workspace.mailbox("worker-b").unread()
    assert (mail.metadata, mail.subject) == ({"conversation_id": conversation.id}, "shiritori")
    assert services.conversations.messages_of(conversation.id) == [mail]


def test_reading_makes_it_active(services: Services, conversation: Conversation) -> None:
    read(services, "worker-b", mark_as_read=False)
    assert status(services, conversation) == "pending"
    read(services, "worker-b")
    assert status(services, conversation) == "active"


def test_answering_makes_it_active_and_going_on_alone_does_not(services: Services, conversation: Conversation) -> None:
    say(services, "worker-a", conversation, "are you there?")
    assert status(services, conversation) == "pending"
    say(services, "worker-b", conversation, "ごりら")
    assert status(services, conversation) == "active"


def test_words_go_to_and_fro_in_order_and_in_every_state(
    services: Services, clock: Clock, conversation: Conversation, worker_b: Agent
) -> None:
    for sender, words in (("worker-b", "ごりら"), ("worker-a", "らっぱ"), ("worker-b", "ぱんだ")):
        clock.advance(0.001)
        say(services, sender, conversation, words)
    clock.advance(0.001)
    services.conversations.end(worker_b, conversation.id, "thanks")
    assert spoken(services, conversation) == [
        ("worker-a", "りんご"),
        ("worker-b", "ごりら"),
        ("worker-a", "らっぱ"),
        ("worker-b", "ぱんだ"),
        ("worker-b", "thanks"),
    ]
    assert contents(read(services, "worker-a")) == ["ごりら", "ぱんだ", "thanks"]


@pytest.mark.parametrize("by", ["worker-a", "worker-b"])
def test_either_side_ends_it_and_the_other_is_told(services: Services, conversation: Conversation, by: str) -> None:
    read(services, "worker-b")
    ended = services.conversations.end(services.agents.get(by), conversation.id)
    assert (ended.status, ended.ended_by) == ("ended", by)
    other = conversation.other(by)
    ((_, mail),) = services.workspace.mailbox(other).unread(fresh=True)
    assert (mail.message_type, mail.sender_id) == ("system", by)
    assert mail.metadata == {"conversation_id": conversation.id, "ended": True}
    assert spoken(services, conversation) == [("worker-a", "りんご")]


class TestRefusals:
    """Refused calls, which change nothing."""

    @pytest.fixture
    def unchanged(self, services: Services, conversation: Conversation) -> Callable[[], None]:
        """Returns a function that asserts that no file has changed since this one conversation began."""
        assert services.conversations.of_agent("worker-a") == [conversation]
        before = snapshot(services)

        def check() -> None:
            assert snapshot(services) == before

        return check

    def test_nobody_talks_to_themselves(
        self, services: Services, worker_a: Agent, unchanged: Callable[[], None]
    ) -> None:
        with pytest.raises(InvalidArguments):
            services.conversations.begin(worker_a, worker_a, "hello")
        unchanged()

    @pytest.mark.parametrize("agent_id", ["admin", "owner"])
    def test_nobody_else_joins_in(
        self, services: Services, conversation: Conversation, unchanged: Callable[[], None], agent_id: str
    ) -> None:
        stranger = services.agents.get(agent_id)
        with pytest.raises(NotParticipant):
            services.conversations.say(stranger, conversation.id, Draft(content="me too"))
        with pytest.raises(NotParticipant):
            services.conversations.end(stranger, conversation.id, "over")
        unchanged()

    @pytest.mark.parametrize("receiver", ["admin", "worker-a"])
    def test_words_go_to_the_other_participant_and_nobody_else(
        self,
        services: Services,
        conversation: Conversation,
        worker_a: Agent,
        unchanged: Callable[[], None],
        receiver: str,
    ) -> None:
        with pytest.raises(InvalidArguments):
            services.conversations.say(worker_a, conversation.id, Draft(content="x", receiver_id=receiver))
        unchanged()

    @pytest.mark.parametrize(
        ("conversation_id", "refusal"),
        [("cnv_000000000000", ConversationNotFound), ("../../agents", InvalidId), ("", InvalidId)],
    )
    def test_an_id_of_no_conversation(
        self,
        services: Services,
        worker_a: Agent,
        unchanged: Callable[[], None],
        conversation_id: str,
        refusal: type[Refusal],
    ) -> None:
        with pytest.raises(refusal):
            services.conversations.get(conversation_id)
        with pytest.raises(refusal):
            services.conversations.say(worker_a, conversation_id, Draft(content="x"))
        with pytest.raises(refusal):
            services.conversations.end(worker_a, conversation_id)
        unchanged()

    def test_first_words_that_cannot_be_sent_leave_no_conversation(
        self, services: Services, worker_a: Agent, worker_b: Agent, unchanged: Callable[[], None]
    ) -> None:
        with pytest.raises(ContentTooLarge):
            services.conversations.begin(worker_a, worker_b, "x" * ((1 << 20) + 1))
        unchanged()
        assert len(services.conversations.of_agent("worker-a")) == 1

    def test_last_words_that_cannot_be_sent_end_nothing(
        self, services: Services, worker_a: Agent, conversation: Conversation, unchanged: Callable[[], None]
    ) -> None:
        for words, refusal in (("x" * ((1 << 20) + 1), ContentTooLarge), ("\udc80", InvalidArguments)):
            with pytest.raises(refusal):
                services.conversations.end(worker_a, conversation.id, words)
        unchanged()

    @pytest.mark.parametrize("purpose", ["x" * 1001, "\udc80"])
    def test_a_purpose_is_a_short_text(
        self, services: Services, worker_a: Agent, worker_b: Agent, unchanged: Callable[[], None], purpose: str
    ) -> None:
        with pytest.raises(InvalidArguments):
            services.conversations.begin(worker_a, worker_b, "hello", purpose=purpose)
        unchanged()


@pytest.mark.parametrize("agent_id", ["worker-a", "worker-b"])
def test_an_ended_conversation_refuses_every_word(
    services: Services, conversation: Conversation, worker_a: Agent, agent_id: str
) -> None:
    services.conversations.end(worker_a, conversation.id)
    before = snapshot(services)
    with pytest.raises(ConversationNotActive):
        say(services, agent_id, conversation, "one more thing")
    with pytest.raises(ConversationNotActive):
        services.conversations.end(services.agents.get(agent_id), conversation.id, "over")
    assert snapshot(services) == before


def test_a_word_in_a_conversation_cannot_pretend_to_be_its_end(
    services: Services, conversation: Conversation, worker_b: Agent
) -> None:
    services.conversations.say(worker_b, conversation.id, Draft(content="no", metadata={"ended": True, "mood": "gay"}))
    ((_, mail),) = services.workspace.mailbox("worker-a").unread(fresh=True)
    assert mail.metadata == {"conversation_id": conversation.id, "mood": "gay"}


@pytest.mark.parametrize("forged", ["../../outside", "cnv_000000000000", "", 7, None, {"a": 1}])
def test_mail_that_names_a_conversation_it_does_not_belong_to_touches_none(
    services: Services, conversation: Conversation, worker_b: Agent, forged: object
) -> None:
    outside = services.workspace.path.parent / "outside"
    shutil.copytree(services.workspace.path / "conversations" / conversation.id, outside)
    original = (outside / "conversation.md").read_bytes()
    send(services, "admin", "worker-b", "x", message_type="conversation", metadata={"conversation_id": forged})
    assert len(contents(read(services, "worker-b"))) == 2
    assert (outside / "conversation.md").read_bytes() == original


def test_the_conversation_two_agents_had_last_is_found(
    services: Services, clock: Clock, worker_a: Agent, worker_b: Agent, admin: Agent
) -> None:
    assert services.conversations.latest_with("worker-a", "admin") is None
    made = []
    for first, second in ((worker_a, admin), (admin, worker_a), (worker_a, worker_b)):
        clock.advance(1)
        made.append(services.conversations.begin(first, second, "hello")[0].id)
    latest = services.conversations.latest_with("worker-a", "admin")
    assert latest is not None
    assert latest.id == made[1]
    assert [item.id for item in services.conversations.of_agent("worker-a")] == made
    assert [item.id for item in services.conversations.of_agent("worker-b")] == made[2:]


@pytest.mark.parametrize("content", [b"", b"\xff", b"---\nid: [\n---\n\n"])
def test_a_corrupt_conversation_empties_no_list(services: Services, conversation: Conversation, content: bytes) -> None:
    broken = services.workspace.path / "conversations" / "cnv_00000000dead" / "conversation.md"
    broken.parent.mkdir()
    broken.write_bytes(content)
    assert services.conversations.of_agent("worker-a") == [conversation]


def test_a_conversation_whose_other_side_was_removed_can_be_ended_without_words(
    services: Services, conversation: Conversation, worker_a: Agent
) -> None:
    services.agents.remove("worker-b")
    with pytest.raises(AgentNotFound):
        services.conversations.end(worker_a, conversation.id, "goodbye")
    assert status(services, conversation) == "pending"
    services.conversations.end(worker_a, conversation.id)
    assert status(services, conversation) == "ended"
