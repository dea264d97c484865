"""A clock that is set back and forth under a running team: nothing waits until it has caught up, nothing is lost."""

from __future__ import annotations

import os
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.slot import Slot
from multi_agent_mcp.domain.times import is_recent
from multi_agent_mcp.web.security import Auth
from multi_agent_mcp.wiring import Services
from tests.conftest import Clock
from tests.services.support import by_hand, contents, read, send, unread
from tests.services.tasks_support import converse, moved, new, open_session
from tests.store.support import confirm_read

HOUR, DAY, YEAR = 3_600.0, 86_400.0, 365 * 86_400.0
LEAPS = (-HOUR, -YEAR, HOUR, YEAR)
PANE: dict[str, Any] = {"pane_id": "%7", "socket_path": "/nowhere/s", "pane_pid": 4711, "tmux_pid": 4710}


@pytest.mark.parametrize("leap", LEAPS)
def test_a_session_in_use_is_live_again_at_its_next_call_and_says_so_to_others(
    services: Services, clock: Clock, leap: float
) -> None:
    session = open_session(services, "worker-a")
    clock.advance(leap)
    session.touch()
    assert session.is_live()
    (seen,) = services.workspace.sessions.open("worker-a")
    assert seen.last_activity_at == clock()
    clock.advance(HOUR - 1)
    assert session.is_live()
    clock.advance(2)
    assert not session.is_live()


@pytest.mark.parametrize("leap", LEAPS)
def test_mail_is_read_archived_and_found_in_whatever_order_its_times_are(
    services: Services, clock: Clock, leap: float
) -> None:
    sent = []
    for number in range(4):
        sent.append(send(services, "admin", "worker-a", f"text {number}").message_id)
        clock.advance(leap if number % 2 else -leap / 2)
    assert sorted(contents(read(services, "worker-a"))) == [f"text {number}" for number in range(4)]
    mailbox = services.workspace.mailbox("worker-a")
    confirm_read(mailbox)
    assert {message.id for message in mailbox.history()} == set(sent)
    assert all(mailbox.find(message_id) for message_id in sent)


@pytest.mark.parametrize("leap", LEAPS)
def test_a_dead_readers_mail_comes_back(services: Services, clock: Clock, leap: float) -> None:
    sent = send(services, "admin", "worker-a")
    session = open_session(services, "worker-a")
    read(services, "worker-a", session.lease)
    clock.advance(leap)
    services.sessions.requeue("worker-a", session.record.unconfirmed)
    assert unread(services, "worker-a") == 1
    assert contents(read(services, "worker-a")) == ["hello"]
    assert services.workspace.mailbox("worker-a").find(sent.message_id) is not None


def test_the_owner_waits_again_though_an_earlier_wait_bears_a_later_time(
    services: Services, clock: Clock, owner: Agent
) -> None:
    services.task_creation.send(owner, "admin", "First", "x")
    services.owner_waits.release("owner", by="some-earlier-message")
    clock.advance(-HOUR)
    services.task_creation.send(owner, "admin", "Second", "x")
    services.owner_waits.release("owner", by="the-answer")
    services.owner_waits.restore("owner", ["the-answer"])
    wait = services.owner_waits.of("owner")
    assert wait is not None
    assert services.workspace.tasks.get(wait.task_id).title == "Second"


@pytest.mark.parametrize("leap", LEAPS)
def test_a_window_is_closed_when_its_session_has_logged_out(services: Services, clock: Clock, leap: float) -> None:
    post = Slot("worker-a", "task")
    open_session(services, "worker-a").end()
    services.missing_sessions.record(post, PANE, 0)
    window = services.missing_sessions.windows()[post]
    clock.advance(leap)
    assert not services.missing_sessions.finished(post, window)
    session = open_session(services, "worker-a")
    assert services.missing_sessions.failures_after(post, window) == 0
    session.end()
    assert services.missing_sessions.finished(post, window)


def test_a_post_whose_command_died_does_not_rest_until_the_clock_has_caught_up(
    services: Services, clock: Clock
) -> None:
    post = Slot("worker-a", "task")
    services.missing_sessions.record(post, {}, 9)
    clock.advance(-YEAR)
    assert not services.missing_sessions.windows()[post].rests(clock())


def test_a_chat_session_exits_though_its_conversation_ended_before_it_began(services: Services, clock: Clock) -> None:
    chat = open_session(services, "worker-a", "chat")
    clock.advance(-HOUR)
    conversation = converse(services, chat.record, "worker-b")
    services.conversations.end(services.agents.get("worker-a"), conversation.id)
    chat.touch()
    assert services.chat_action.next_action(services.agents.get("worker-a"), chat.record)["action"] == "exit"


def test_a_report_begins_a_task_that_was_made_by_a_clock_ahead(services: Services, clock: Clock) -> None:
    clock.advance(YEAR)
    waiting, blocked, stopped = new(services), new(services), new(services)
    moved(services, blocked, "in_progress", "blocked")
    moved(services, stopped, "in_progress")
    worker = services.agents.get("worker-a")
    clock.advance(-YEAR)
    for task in (waiting, blocked, stopped):
        services.task_reports.report_progress(worker, task.id, progress=50)
    moved(services, stopped, "blocked")
    read(services, "admin")
    tasks = services.workspace.tasks
    assert tasks.get(waiting.id).status == "in_progress"
    assert tasks.get(blocked.id).status == "in_progress", "its history says that the report came after the block"
    assert tasks.get(stopped.id).status == "blocked", "a report that came before takes no interrupt back"


def test_a_waiter_rings_once_and_rests_though_an_earlier_ring_is_in_the_future(
    services: Services, clock: Clock
) -> None:
    send(services, "admin", "worker-a")
    clock.advance(YEAR)
    assert services.hooks.wake("worker-a", "task")[0] is not None
    entry = next(services.workspace.delivery_log("worker-a").newest_first())
    services.workspace.delivery_log("worker-a").append(**{**entry, "reason": None})
    clock.advance(-YEAR)
    assert services.hooks.wake("worker-a", "task")[0] is not None
    line, decision = services.hooks.wake("worker-a", "task")
    assert line is None
    assert decision.after is not None
    clock.advance(decision.after.total_seconds())
    assert services.hooks.wake("worker-a", "task")[0] is not None


@pytest.mark.parametrize(("leap", "admitted"), [(-DAY, True), (-YEAR, False), (DAY, True), (YEAR, False)])
def test_a_cookie_outlives_small_leaps_and_never_counts_for_years(
    tmp_path: Path, leap: float, *, admitted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    access = Auth(b"key", tmp_path)
    cookie = access.redeem(access.issue_ticket())
    present = time.time()
    monkeypatch.setattr(time, "time", lambda: present + leap)
    assert access.admits(cookie) == admitted


def test_an_empty_file_dated_in_the_future_is_set_aside(services: Services) -> None:
    path = by_hand(services, "worker-a", "empty.md", "")
    os.utime(path, (time.time() + HOUR,) * 2)
    assert unread(services, "worker-a") == 0
    assert (path.parent / "quarantine" / "empty.md").exists()


def test_a_file_in_a_directory_dated_in_the_future_is_seen(services: Services) -> None:
    inbox: Path = services.workspace.mailbox("worker-a").path
    send(services, "admin", "worker-a", "first")
    os.utime(inbox, (time.time() + YEAR,) * 2)
    assert len(services.workspace.mailbox("worker-a").unread()) == 1
    send(services, "admin", "worker-a", "second")
    assert len(services.workspace.mailbox("worker-a").unread()) == 2


@pytest.mark.parametrize("leap", LEAPS)
def test_everything_can_be_looked_at(services: Services, clock: Clock, owner: Agent, leap: float) -> None:
    services.task_creation.send(owner, "admin", "Build", "x")
    session = open_session(services, "worker-a")
    moved(services, new(services), "in_progress")
    converse(services, session.record, "worker-b")
    clock.advance(leap)
    session.end()
    services.timeline.of(None, None)
    services.snapshots.take().as_answer()
    problems = [item for item in services.doctor(lambda _: None).examine() if item.level == "problem"]
    assert {item.check for item in problems} <= {"stuck"}  # nobody has done anything for all that time


def test_the_future_is_not_recent(clock: Clock) -> None:
    minute = timedelta(minutes=1)
    assert is_recent(clock(), clock(), minute)
    assert not is_recent(clock() + timedelta(microseconds=1), clock(), minute)
    assert not is_recent(clock() - minute, clock(), minute)
