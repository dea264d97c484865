"""The detection of missing agent sessions, and the windows opened for them."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from multi_agent_mcp.domain.slot import Slot
from multi_agent_mcp.services.overview.missing_sessions import LIVED_LONG_ENOUGH, LONGEST_PAUSE
from multi_agent_mcp.services.questions import Asking
from multi_agent_mcp.wiring import Services
from tests.conftest import Clock
from tests.services import forks
from tests.services.support import read, send
from tests.services.tasks_support import converse, delegate, dies, moved, new, open_session, running

TASK, CHAT = Slot("worker-a", "task"), Slot("worker-a", "chat")
PANE: dict[str, Any] = {"pane_id": "%7", "socket_path": "/nowhere/s", "pane_pid": 4711, "tmux_pid": 4710}


@pytest.fixture(autouse=True)
def command(services: Services) -> None:
    """worker-a can be started."""
    services.workspace.registry.update("worker-a", command="claude")


class TestNeeded:
    """A session is needed while there is work for its agent and no live session to do it."""

    def test_nobody_is_needed_where_there_is_nothing_to_do(self, services: Services) -> None:
        assert services.missing_sessions.needed() == []

    def test_a_task_needs_a_task_session(self, services: Services) -> None:
        task = new(services)
        assert services.missing_sessions.needed() == [TASK]
        session = open_session(services, "worker-a")
        assert services.missing_sessions.needed() == []
        dies(services, session)
        assert services.missing_sessions.needed() == [TASK]
        moved(services, task, "in_progress", "done")
        assert services.missing_sessions.needed() == []

    def test_a_task_that_cannot_be_started_needs_nobody(self, services: Services) -> None:
        new(services, dependencies=(new(services, assignee_id="worker-b").id,))
        moved(services, new(services), "blocked")
        assert services.missing_sessions.needed() == []

    def test_an_answer_that_is_owed_needs_a_session_of_either_purpose(self, services: Services, clock: Clock) -> None:
        question = services.questions.ask(
            services.agents.get("admin"), Asking(question="Which?", to_id="worker-a"), None
        )
        assert services.missing_sessions.needed() == [TASK]
        services.questions.ask(services.agents.get("worker-a"), Asking(question="What do you think?"), None)
        assert services.missing_sessions.needed() == []
        services.questions.answer(services.agents.get("worker-a"), question.id, "this")
        clock.advance(1)
        services.questions.ask(services.agents.get("admin"), Asking(question="And now?", to_id="worker-a"), None)
        assert services.missing_sessions.needed() == [TASK]
        open_session(services, "worker-a", "chat")
        assert services.missing_sessions.needed() == []

    def test_a_delegation_needs_a_chat_session_until_it_is_carried_out(self, services: Services) -> None:
        running(services)
        delegate(services, open_session(services, "worker-a"))
        assert services.missing_sessions.needed() == [CHAT]
        chat = open_session(services, "worker-a", "chat")
        services.delegations.take(chat.record)
        assert services.missing_sessions.needed() == []
        dies(services, chat)
        assert services.missing_sessions.needed() == [CHAT]
        converse(services, open_session(services, "worker-a", "chat").record)
        assert services.missing_sessions.needed() == []

    def test_words_of_a_conversation_need_a_chat_session_other_mail_does_not(self, services: Services) -> None:
        send(services, "admin", "worker-a")
        assert services.missing_sessions.needed() == []
        converse(services, open_session(services, "worker-b", "chat").record, "worker-a")
        assert services.missing_sessions.needed() == [CHAT]
        read(services, "worker-a")
        assert services.missing_sessions.needed() == []

    def test_who_has_no_command_is_not_started(self, services: Services) -> None:
        new(services, assignee_id="worker-b")
        assert services.missing_sessions.needed() == []

    def test_an_expired_session_counts_for_nobody(self, services: Services, clock: Clock) -> None:
        open_session(services, "worker-a")
        new(services)
        clock.advance(3601)
        assert services.missing_sessions.needed() == [TASK]


class TestWindows:
    """Opened windows are recorded in files, from which any other process continues."""

    def test_what_was_opened_is_known_to_the_next_who_looks(self, services: Services, clock: Clock) -> None:
        services.missing_sessions.record(TASK, PANE, 2)
        fresh = forks.context(services.workspace.root)
        (window,) = fresh.missing_sessions.windows().values()
        assert (window.pane, window.opened_at, window.failures) == (PANE, clock(), 2)
        fresh.missing_sessions.forget(TASK)
        fresh.missing_sessions.forget(TASK)
        assert services.missing_sessions.windows() == {}

    @pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"pane": {}}', b'{"opened_at": "x", "failures": "y"}'])
    def test_a_damaged_record_is_as_good_as_none(self, services: Services, content: bytes) -> None:
        services.missing_sessions.record(TASK, PANE, 0)
        path: Path = services.workspace.window("worker-a", "task").path
        path.write_bytes(content)
        assert services.missing_sessions.windows() == {}

    def test_a_window_is_finished_when_its_session_has_logged_out(self, services: Services, clock: Clock) -> None:
        before = open_session(services, "worker-a")
        clock.advance(1)
        services.missing_sessions.record(TASK, PANE, 0)
        window = services.missing_sessions.windows()[TASK]
        before.end()
        assert not services.missing_sessions.finished(TASK, window)
        clock.advance(1)
        session = open_session(services, "worker-a")
        other = open_session(services, "worker-a", "chat")
        assert not services.missing_sessions.finished(TASK, window)
        session.end()
        assert services.missing_sessions.finished(TASK, window)
        assert not services.missing_sessions.finished(CHAT, window)
        other.end()

    def test_a_window_whose_server_has_died_is_not_finished(self, services: Services) -> None:
        """The host may still be working in the window; it makes no difference that other machines are told of the
        server's end."""
        services.missing_sessions.record(TASK, PANE, 0)
        dies(services, open_session(services, "worker-a"))
        services.sessions.recover_dead()
        assert services.workspace.sessions.open("worker-a") == []
        assert not services.missing_sessions.finished(TASK, services.missing_sessions.windows()[TASK])

    def test_failures_in_a_row_double_the_pause(self, services: Services, clock: Clock) -> None:
        for failures, pause in enumerate([0, 1, 2, 4, 8, 16, 32, 60, 60, 60]):
            services.missing_sessions.record(TASK, {}, failures)
            window = services.missing_sessions.windows()[TASK]
            assert window.rests(clock()) == (pause > 0)
            assert window.rests(clock() + timedelta(seconds=pause - 0.1)) == (pause > 0)
            assert not window.rests(clock() + timedelta(seconds=pause))
        assert pause == LONGEST_PAUSE.total_seconds()

    def test_an_attempt_counts_as_failed_when_it_died_at_once_without_a_session(
        self, services: Services, clock: Clock
    ) -> None:
        services.missing_sessions.record(TASK, PANE, 3)
        window = services.missing_sessions.windows()[TASK]
        clock.advance(1)
        assert services.missing_sessions.failures_after(TASK, window) == 4
        open_session(services, "worker-a", "chat")
        assert services.missing_sessions.failures_after(TASK, window) == 4
        open_session(services, "worker-a")
        assert services.missing_sessions.failures_after(TASK, window) == 0

    def test_an_attempt_that_lived_for_a_while_has_not_failed(self, services: Services, clock: Clock) -> None:
        services.missing_sessions.record(TASK, PANE, 3)
        window = services.missing_sessions.windows()[TASK]
        clock.advance(LIVED_LONG_ENOUGH.total_seconds() + 1)
        assert services.missing_sessions.failures_after(TASK, window) == 0

    def test_doctor_shows_a_command_that_dies_at_once(self, services: Services) -> None:
        services.missing_sessions.record(TASK, {}, 3)
        (finding,) = (item for item in services.doctor(lambda _: None).examine() if item.check == "supervisor")
        assert (finding.level, finding.subject) == ("problem", "worker-a")
        assert "task session died at once, 3 times in a row" in finding.finding
