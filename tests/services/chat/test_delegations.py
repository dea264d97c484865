"""A task session hands a conversation to the same agent's chat session (docs/protocol.md, Delegation)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from multi_agent_mcp.bootstrap import open_session
from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.errors import (
    AgentNotAssignedToProject,
    AgentNotFound,
    AlreadyExists,
    DelegationNotFound,
    InvalidArguments,
    InvalidId,
    Refusal,
    Unauthorized,
)
from multi_agent_mcp.services.sessions.agent_sessions import LiveSession
from multi_agent_mcp.services.team.setup import TeamFile, add_missing, create_session
from multi_agent_mcp.wiring import Services
from tests.conftest import Clock
from tests.services import forks
from tests.services import tasks_support as desk
from tests.services.tasks_support import converse, delegate, dies, forked, inbox, running, snapshot

AI = """会話を Worker-B（AI）に移譲しました。確認方法：get_task_conversations()

【確認頻度】
タスク内に他の作業があれば、作業を進めつつ区切りで確認してください。
他の作業がなければ、確認の頻度を上げてください。
相手はAIのため、人間より応答が速い傾向があります。

【中断判断】
相手のタイプ、会話の進捗状況、応答の見込みを考慮して判断してください。
見込みがないと判断したら、タスクを blocked に変更し理由を記録して退出。"""


@pytest.fixture
def task_session(services: Services) -> LiveSession:
    """A task session of worker-a, at work."""
    running(services)
    return desk.open_session(services, "worker-a")


@pytest.fixture
def chat(services: Services) -> LiveSession:
    return desk.open_session(services, "worker-a", "chat")


@pytest.fixture
def elsewhere(services: Services) -> str:
    """An agent of another session directory under the same root."""
    team = TeamFile(agents=(Agent(id="stranger", role="owner"),))
    create_session(services.workspace.root, "elsewhere", team, "en")
    add_missing(open_session(services.workspace.root, "elsewhere").agents, team)
    return "stranger"


def test_a_delegation_is_bound_to_the_sessions_task(services: Services, task_session: LiveSession) -> None:
    made = delegate(services, task_session, context="six rounds")
    assert services.workspace.delegations.get(made.id) == made
    assert (made.agent_id, made.target_agent_id, made.purpose, made.context) == (
        "worker-a",
        "worker-b",
        "play",
        "six rounds",
    )
    assert made.task_id == task_session.record.task_id is not None
    assert (made.status, made.taken_by, made.conversation_id) == ("pending", None, None)


def test_the_instruction_has_the_documented_words_for_an_ai_and_others_for_a_human(
    services: Services, worker_a: Agent, task_session: LiveSession
) -> None:
    japanese = open_session(services.workspace.root, "demo", language="ja")
    services.workspace.registry.update("worker-b", name="Worker-B")
    told = {
        target: japanese.delegations.delegate(worker_a, task_session.record, target, "play", None)[1]
        for target in ("worker-b", "owner")
    }
    assert told["worker-b"] == AI
    assert told["owner"].startswith(
        "会話を owner（人間）に移譲しました。確認方法：get_task_conversations()\n\n【確認頻度】"
    )
    assert "応答に時間がかかる可能性" in told["owner"]
    assert "応答が速い傾向" not in told["owner"]
    assert told["owner"].partition("【中断判断】")[2] == AI.partition("【中断判断】")[2]


@pytest.mark.parametrize(
    ("target", "refusal"),
    [
        ("worker-a", InvalidArguments),
        ("nobody", AgentNotFound),
        ("../x", InvalidId),
        ("", InvalidId),
        ("stranger", AgentNotAssignedToProject),
    ],
)
def test_only_another_agent_of_this_session_is_talked_to(
    services: Services,
    worker_a: Agent,
    task_session: LiveSession,
    chat: LiveSession,
    elsewhere: str,
    target: str,
    refusal: type[Refusal],
) -> None:
    before = snapshot(services)
    with pytest.raises(refusal):
        services.delegations.delegate(worker_a, task_session.record, target, "play", None)
    with pytest.raises(refusal):
        services.delegations.start_conversation(worker_a, chat.record, target, "hello")
    assert snapshot(services) == before


@pytest.mark.parametrize(
    ("purpose", "context"), [(" ", None), ("x" * 1001, None), ("\udc80", None), ("x", "\udc80"), ("x", "x" * 4001)]
)
def test_a_delegation_has_a_purpose_that_is_a_short_text(
    services: Services, worker_a: Agent, task_session: LiveSession, purpose: str, context: str | None
) -> None:
    with pytest.raises(InvalidArguments):
        services.delegations.delegate(worker_a, task_session.record, "worker-b", purpose, context)
    assert services.workspace.delegations.all() == []


def test_what_was_delegated_is_taken_once_oldest_first(
    services: Services, clock: Clock, task_session: LiveSession, chat: LiveSession
) -> None:
    made = []
    for _ in range(3):
        clock.advance(1)
        made.append(delegate(services, task_session).id)
    assert [item.id for item in services.delegations.offered("worker-a")] == made
    assert [item.id for item in services.delegations.take(chat.record)] == made
    assert [item.id for item in services.delegations.take(chat.record)] == made
    assert services.delegations.offered("worker-a") == []
    second = desk.open_session(services, "worker-a", "chat")
    assert services.delegations.take(second.record) == []
    assert [item.id for item in services.delegations.unstarted("worker-a")] == made


def test_a_delegation_about_a_task_is_seen_by_whoever_looks_at_the_task(
    services: Services, task_session: LiveSession, chat: LiveSession, admin: Agent
) -> None:
    about = str(task_session.record.task_id)
    delegation, other = delegate(services, task_session), desk.new(services)
    services.task_changes.assign(admin, about, "worker-b")
    assert [item.id for item in services.delegations.talks_about(about)] == [delegation.id]
    assert services.delegations.talks_about(other.id) == []
    begun = converse(services, chat.record)
    assert services.delegations.talks_about(about) == [begun]


def test_an_agent_takes_only_its_own(services: Services, task_session: LiveSession) -> None:
    delegation = delegate(services, task_session)
    other = desk.open_session(services, "worker-b", "chat")
    assert services.delegations.take(other.record) == []
    with pytest.raises(Unauthorized):
        converse(services, other.record, "worker-b", delegation_id=delegation.id)


@pytest.mark.parametrize("end", ["dies", "logs out"])
def test_what_a_chat_session_took_and_did_not_start_is_offered_again_when_it_is_gone(
    services: Services, task_session: LiveSession, chat: LiveSession, end: str
) -> None:
    delegation = delegate(services, task_session)
    services.delegations.take(chat.record)
    if end == "dies":
        dies(services, chat)
    else:
        chat.end()
    assert [item.id for item in services.delegations.offered("worker-a")] == [delegation.id]
    fresh = desk.open_session(services, "worker-a", "chat")
    assert [item.id for item in services.delegations.take(fresh.record)] == [delegation.id]
    conversation = converse(services, fresh.record, delegation_id=delegation.id)
    assert conversation.task_id == task_session.record.task_id


def test_an_expired_chat_session_keeps_nothing(
    services: Services, clock: Clock, task_session: LiveSession, chat: LiveSession
) -> None:
    delegation = delegate(services, task_session)
    services.delegations.take(chat.record)
    clock.advance(3601)
    assert [item.id for item in services.delegations.offered("worker-a")] == [delegation.id]


class TestStarting:
    """`start_conversation`."""

    @pytest.mark.parametrize("named", [True, False])
    def test_a_pending_delegation_to_that_target_is_carried_out_by_it(
        self, services: Services, task_session: LiveSession, chat: LiveSession, named: bool
    ) -> None:
        delegation = delegate(services, task_session)
        options = {"delegation_id": delegation.id} if named else {}
        conversation = converse(services, chat.record, words="りんご", **options)
        assert (conversation.task_id, conversation.delegation_id, conversation.purpose) == (
            task_session.record.task_id,
            delegation.id,
            "play",
        )
        started = services.workspace.delegations.get(delegation.id)
        assert (started.status, started.taken_by, started.conversation_id) == (
            "started",
            chat.record.id,
            conversation.id,
        )
        assert services.delegations.unstarted("worker-a") == []
        assert services.delegations.take(chat.record) == []
        assert inbox(services, "worker-b") == [("conversation", "worker-a", "りんご")]

    def test_the_oldest_of_several_to_the_same_target_goes_first(
        self, services: Services, clock: Clock, task_session: LiveSession, chat: LiveSession
    ) -> None:
        made = []
        for _ in range(2):
            clock.advance(1)
            made.append(delegate(services, task_session).id)
        assert [converse(services, chat.record).delegation_id for _ in range(3)] == [*made, None]

    def test_without_a_delegation_it_belongs_to_no_task(
        self, services: Services, task_session: LiveSession, chat: LiveSession
    ) -> None:
        delegate(services, task_session, "admin")
        conversation = converse(services, chat.record, purpose="hello")
        assert (conversation.task_id, conversation.delegation_id, conversation.purpose) == (None, None, "hello")

    def test_a_delegation_has_one_conversation(
        self, services: Services, task_session: LiveSession, chat: LiveSession
    ) -> None:
        delegation = delegate(services, task_session)
        converse(services, chat.record)
        before = snapshot(services)
        with pytest.raises(AlreadyExists):
            converse(services, chat.record, delegation_id=delegation.id)
        assert snapshot(services) == before

    def test_what_another_living_session_carries_out_is_left_to_it(
        self, services: Services, task_session: LiveSession, chat: LiveSession
    ) -> None:
        delegation = delegate(services, task_session)
        services.delegations.take(chat.record)
        second = desk.open_session(services, "worker-a", "chat")
        with pytest.raises(AlreadyExists):
            converse(services, second.record, delegation_id=delegation.id)
        assert converse(services, second.record).delegation_id is None

    @pytest.mark.parametrize(
        ("delegation_id", "refusal"), [("dlg_000000000000", DelegationNotFound), ("../x", InvalidId), ("", InvalidId)]
    )
    def test_an_id_of_no_delegation(
        self, services: Services, chat: LiveSession, delegation_id: str, refusal: type[Refusal]
    ) -> None:
        with pytest.raises(refusal):
            converse(services, chat.record, delegation_id=delegation_id)

    def test_a_delegation_is_for_its_target(
        self, services: Services, task_session: LiveSession, chat: LiveSession
    ) -> None:
        delegation = delegate(services, task_session)
        with pytest.raises(InvalidArguments):
            converse(services, chat.record, "admin", delegation_id=delegation.id)

    def test_first_words_that_cannot_be_sent_leave_the_delegation_to_be_started(
        self, services: Services, task_session: LiveSession, chat: LiveSession
    ) -> None:
        delegation = delegate(services, task_session)
        with pytest.raises(Refusal):
            converse(services, chat.record, words="\udc80")
        assert [item.id for item in services.delegations.take(chat.record)] == [delegation.id]
        assert converse(services, chat.record).delegation_id == delegation.id


@pytest.mark.parametrize("odd", ["not yet", "2026-11-22", "7", "../conversations", "CNV_1"])
def test_a_delegation_with_an_id_that_cannot_be_a_conversations_has_none_yet(
    services: Services, task_session: LiveSession, chat: LiveSession, odd: str
) -> None:
    delegation = delegate(services, task_session)
    services.workspace.delegations.update(delegation.id, lambda found: replace(found, conversation_id=odd))
    assert [item.id for item in services.delegations.unstarted("worker-a")] == [delegation.id]
    assert [item.conversation_id for item in services.delegations.take(chat.record)] == [odd]
    assert converse(services, chat.record).delegation_id == delegation.id


def test_a_start_killed_at_any_write_is_resumed_as_the_same_conversation_and_heard_once(tmp_path: Path) -> None:
    told = forked("start_a_conversation", tmp_path)
    assert len(told) > 4
    for number, delegation_id in enumerate(told):
        services = forks.context(tmp_path / str(number))
        reserved = services.workspace.delegations.get(delegation_id).conversation_id
        heard = bool(inbox(services, "worker-b"))
        offered = [item.id for item in services.delegations.offered("worker-a")]
        assert offered == ([] if heard else [delegation_id])
        if not heard:
            fresh = desk.open_session(services, "worker-a", "chat")
            resumed = converse(services, fresh.record, words="りんご", delegation_id=delegation_id)
            assert reserved in (None, resumed.id)
        (conversation,) = services.conversations.of_agent("worker-a")
        assert conversation.delegation_id == delegation_id
        assert inbox(services, "worker-b") == [("conversation", "worker-a", "りんご")]
        assert [item.content for item in services.conversations.messages_of(conversation.id)] == ["りんご"]
        assert services.delegations.offered("worker-a") == []


def test_of_sessions_that_take_a_delegation_at_once_one_gets_it(
    services: Services, root: Path, task_session: LiveSession
) -> None:
    made = sorted(delegate(services, task_session).id for _ in range(5))
    assert sorted(forked("take", root, "6")) == made


def test_of_sessions_that_start_a_delegation_at_once_one_does_and_the_others_are_told(
    services: Services, root: Path, task_session: LiveSession
) -> None:
    delegation = delegate(services, task_session)
    told = forked("start_conversation", root, "6", delegation.id)
    (conversation,) = services.conversations.of_agent("worker-a")
    assert sorted(told) == sorted([conversation.id, *["already_exists"] * 5])
    assert len(inbox(services, "worker-b")) == 1
