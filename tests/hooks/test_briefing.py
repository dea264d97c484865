"""The briefing through hooks: at each occasion once, at the first event whose answer the host passes on
(docs/protocol.md, Briefing)."""

from __future__ import annotations

import os

import pytest

from multi_agent_mcp.hooks.answers import Event
from multi_agent_mcp.services.sessions.host_conversations import is_anothers
from multi_agent_mcp.wiring import Services
from tests.conftest import Clock
from tests.services.support import send
from tests.services.tasks_support import open_session, running

AGENT = "worker-a"
TOLD = "You are worker-a in the team demo"


def heard(
    services: Services, name: str, source: str | None = None, host: str | None = "claude", session: str = "c-1"
) -> str | None:
    """The context that this event's answer has for the model; None if it is silent."""
    answer = services.hooks.answer(AGENT, "task", Event(name, session, host, source=source))
    return None if answer is None else str(answer["hookSpecificOutput"]["additionalContext"])


def named(services: Services, agent_id: str, conversation: str) -> None:
    services.hooks.answer(agent_id, "task", Event("PostToolUse", conversation, "claude"))


def is_briefed(services: Services, *event: str | None, **where: str | None) -> bool:
    said = heard(services, *event, **where)  # type: ignore[arg-type]
    assert said is None or said.count(TOLD) == 1
    return said is not None and TOLD in said


@pytest.mark.parametrize("host", ["claude", "codex", None])
def test_each_time_the_host_has_forgotten_and_nowhere_else(services: Services, host: str | None) -> None:
    running(services)
    for source in ("resume", "clear", "compact", "compact", *([] if host == "codex" else ["fork"])):
        assert is_briefed(services, "SessionStart", source, host=host)
        for other in ("PostToolUse", "UserPromptSubmit"):
            assert not is_briefed(services, other, host=host)


def test_a_host_that_starts_again_is_told_what_is_held_and_nothing_if_there_is_nothing(services: Services) -> None:
    assert heard(services, "SessionStart", "startup") is None
    running(services)
    assert is_briefed(services, "SessionStart", "startup", session="c-2")
    assert not is_briefed(services, "SessionStart", "startup", session="c-2"), "Codex says so twice after /clear"


@pytest.mark.parametrize(
    ("host", "source"),
    [("gemini", "clear"), ("gemini", "resume"), ("copilot", "resume"), ("opencode", "resume"), ("opencode", "startup")],
)
def test_where_the_model_does_not_hear_the_beginning_it_is_told_at_the_next_event(
    services: Services, host: str, source: str
) -> None:
    running(services)
    send(services, "admin", AGENT)
    assert heard(services, "SessionStart", source, host) is None
    said = heard(services, "PostToolUse", host=host)
    assert said is not None
    assert said.count(TOLD) == 1
    assert "[IPC] New message: request from admin" in said
    assert not is_briefed(services, "UserPromptSubmit", host=host)


@pytest.mark.parametrize("host", ["gemini", "copilot", "opencode"])
def test_a_compaction_that_no_beginning_follows_is_told_after_it(services: Services, host: str) -> None:
    running(services)
    assert heard(services, "PreCompact", host=host) is None
    assert is_briefed(services, "PostToolUse", host=host)
    assert not is_briefed(services, "PostToolUse", host=host)


def test_before_a_compaction_a_hand_off_is_derived_and_nothing_is_said(services: Services) -> None:
    task = running(services)
    assert heard(services, "PreCompact") is None
    assert heard(services, "PostToolUse") is None
    (kept,) = services.hand_offs.all(AGENT)
    assert (kept.hand_off.kind, kept.hand_off.task_id) == ("derived", task.id)
    said = heard(services, "SessionStart", "compact")
    assert said is not None
    assert str(kept.path) in said


def test_a_new_conversation_in_a_host_that_announces_none_is_an_occasion(services: Services) -> None:
    running(services)
    assert not is_briefed(services, "PostToolUse", host="opencode", session="ses_1")
    assert is_briefed(services, "PostToolUse", host="opencode", session="ses_2")
    assert not is_briefed(services, "PostToolUse", host="opencode", session="ses_2")


class TestTheServersFirstAnswer:
    """`needs_briefing`: whether `get_next_action` has to carry it."""

    def test_it_does_where_no_hook_has_told_it(self, services: Services, clock: Clock) -> None:
        assert services.hooks.needs_briefing(AGENT, "task", clock(), first=True, conversation=None)
        assert not services.hooks.needs_briefing(AGENT, "task", clock(), first=False, conversation=None)

    @pytest.mark.parametrize("source", ["startup", "resume"])
    def test_not_after_a_hook_at_the_beginning_but_again_in_the_next_process(
        self, services: Services, clock: Clock, source: str
    ) -> None:
        heard(services, "SessionStart", source)
        assert not services.hooks.needs_briefing(AGENT, "task", clock(), first=True, conversation=None)
        services.hooks.briefed(AGENT, "task")
        assert services.hooks.needs_briefing(AGENT, "task", clock(), first=True, conversation=None)

    def test_what_is_due_is_told_by_whichever_comes_first(self, services: Services, clock: Clock) -> None:
        running(services)
        heard(services, "PreCompact", host="copilot")
        assert services.hooks.needs_briefing(AGENT, "task", clock(), first=False, conversation=None)
        services.hooks.briefed(AGENT, "task")
        assert not is_briefed(services, "PostToolUse", host="copilot")

    def test_a_conversation_that_only_the_server_saw_change(self, services: Services, clock: Clock) -> None:
        heard(services, "SessionStart", "startup", host="codex")
        assert not services.hooks.needs_briefing(AGENT, "task", clock(), first=False, conversation="c-1")
        assert services.hooks.needs_briefing(AGENT, "task", clock(), first=False, conversation="c-2")


def test_the_conversation_is_recorded_in_the_running_session_of_its_purpose(services: Services) -> None:
    task, chat = open_session(services, AGENT), services.sessions.open(AGENT, "chat")
    heard(services, "SessionStart", "startup")
    heard(services, "SessionStart", "clear", session="c-2")
    found = {session.id: (session.host, session.host_session) for session in services.sessions.running(AGENT)}
    assert found == {task.record.id: ("claude", "c-2"), chat.record.id: (None, None)}
    task.touch()
    task.note_conversation(*services.hooks.conversation(AGENT, "task", task.record.created_at))
    task.end()
    ended = services.workspace.sessions.find(task.record.id)
    assert ended is not None
    assert (ended.host, ended.host_session) == ("claude", "c-2")


class TestAConversationThatTwoAgentsHooksNamed:
    """This process is a hook, and a server, below the host of whoever runs the tests."""

    def test_it_is_the_one_s_that_named_it_first(self, services: Services) -> None:
        named(services, "worker-b", "c-b")
        named(services, "worker-a", "c-b")
        assert [source.agent_id for source in services.usage.sources.all()] == ["worker-b"]
        assert not is_anothers(services.workspace, "worker-b", "c-b")
        assert is_anothers(services.workspace, "worker-a", "c-b")

    def test_it_is_the_one_s_whose_server_runs_in_the_host(self, services: Services) -> None:
        named(services, "worker-a", "c-b")
        named(services, "worker-a", "c-a")
        serving = services.sessions.open("worker-b", "task")
        named(services, "worker-b", "c-b")
        named(services, "worker-a", "c-b")
        assert serving.record.pid == os.getpid(), "the host of this process runs it"
        found = {(source.agent_id, source.conversation) for source in services.usage.sources.all()}
        assert found == {("worker-b", "c-b"), ("worker-a", "c-a")}
