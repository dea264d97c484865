"""The upkeep of every call: remembered while nothing changes, done again for whatever may need it
(docs/protocol.md, Order of checks)."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from multi_agent_mcp.bootstrap import open_session
from multi_agent_mcp.doorbell.channel import Recorder
from multi_agent_mcp.server.calls import Answer, Call
from multi_agent_mcp.services.questions import Asking
from multi_agent_mcp.usage.limit import LimitSeen
from multi_agent_mcp.wiring import Services
from tests.conftest import Clock
from tests.server.seat import Seat
from tests.services.support import send
from tests.services.tasks_support import agent, delegate, new, running
from tests.services.tasks_support import open_session as opened

ME = "worker-a"
LONG_AGO = (1.0, 1.0)


def other(services: Services) -> Services:
    """Another process, at the same time."""
    return open_session(services.root, "demo", clock=services.clock, notifier=Recorder())


def settled(services: Services) -> None:
    """Lets every last change lie in the past, as what was looked at needs it to be trusted."""
    for path in [services.path / "agents.json", *filter(Path.is_dir, services.path.rglob("*"))]:
        os.utime(path, LONG_AGO)


def stilled(services: Services, *tools: Callable[..., Answer]) -> Seat:
    """The worker's server, with these further tools, after a call that found nothing to do."""
    seat = Seat(services, ME, *tools)
    settled(services)
    assert seat.call("get_unread_count")["success"]
    known = services.upkeep.still(ME, "task")
    assert known is not None
    assert known.empty is not None
    return seat


def pauses(services: Services) -> None:
    services.interrupts.pause(ME, None)


def assigns(services: Services) -> None:
    new(services)


def asks(services: Services) -> None:
    services.questions.ask(agent(services, "worker-b"), Asking(question="Which?"), None)


def delegates(services: Services) -> None:
    delegate(services, opened(services, ME))


def reserves(services: Services) -> None:
    services.reservations.reserve(agent(services, "worker-b"), ["src/"])


def changes_an_agent(services: Services) -> None:
    services.agents.change("worker-b", name="B")


@pytest.mark.parametrize(
    "happens",
    [
        pauses,
        assigns,
        asks,
        delegates,
        reserves,
        changes_an_agent,
    ],
)
def test_whatever_may_need_it_ends_the_stillness(services: Services, happens: Callable[[Services], None]) -> None:
    stilled(services)
    happens(other(services))
    assert services.upkeep.still(ME, "task") is None


def test_mail_does_not(services: Services) -> None:
    """It is counted and read by itself."""
    seat = stilled(services)
    send(other(services), "admin", ME)
    assert services.upkeep.still(ME, "task") is not None
    assert seat.call("get_message_status", message_id="")["unread_messages"] == 1


def test_an_interrupt_replaces_the_next_call(services: Services) -> None:
    seat = stilled(services)
    pauses(other(services))
    assert seat.call("get_unread_count") == {}


def test_an_interrupt_that_comes_while_the_tool_runs_replaces_its_answer(services: Services) -> None:
    ran = []

    def pause_me(call: Call) -> Answer:
        ran.append(call.still)
        pauses(other(call.services))
        return {}

    assert stilled(services, pause_me).call("pause_me") == {}
    assert ran != [None]


def test_a_change_of_this_moment_is_not_trusted(services: Services) -> None:
    """A second one of the same moment would leave the modification time as it is."""
    seat = stilled(services)
    os.utime(services.workspace.notices(ME).path, (time.time() + 60,) * 2)  # however long the call takes
    assert seat.call("get_unread_count")["success"]
    assert services.upkeep.still(ME, "task") is None


def test_a_deadline_ends_it(services: Services, clock: Clock) -> None:
    services.questions.ask(agent(services, "worker-b"), Asking(question="Which?", minutes=5), None)
    stilled(services)
    clock.advance(timedelta(minutes=4).total_seconds())
    assert services.upkeep.still(ME, "task") is not None
    clock.advance(timedelta(minutes=2).total_seconds())
    assert services.upkeep.still(ME, "task") is None


def test_an_operation_that_another_process_has_left_is_finished_by_the_next_call(services: Services) -> None:
    seat = stilled(services)
    intents = other(services).workspace.intents
    intents.rest(intents.write("send", {"mail": None}))
    assert seat.call("get_unread_count")["success"]
    assert intents.left_behind() == []


def test_an_operation_under_way_is_looked_at_until_it_is_over(services: Services) -> None:
    """Its process may die without changing the directory."""
    seat = stilled(services)
    intents = services.workspace.intents
    intent = intents.write("send", {"mail": None})
    settled(services)
    assert seat.call("get_unread_count")["success"]
    assert len(list(intents.path.iterdir())) == 1
    intents.rest(intent)
    settled(services)
    assert seat.call("get_unread_count")["success"]
    assert list(intents.path.iterdir()) == []


def test_a_limit_is_over_with_the_next_call(services: Services) -> None:
    seat = stilled(services)
    other(services).limits.saw(ME, "claude", LimitSeen(services.clock(), "hook"))
    assert services.limits.now(ME) is not None
    assert seat.call("get_unread_count")["success"]
    assert services.limits.now(ME) is None


@pytest.mark.parametrize("left", [pauses, reserves])
def test_what_waits_is_looked_at_each_time(services: Services, left: Callable[[Services], None]) -> None:
    """A process that works on it may die, and its time may come, without a change of any directory."""
    seat = Seat(services, ME)
    left(other(services))
    settled(services)
    seat.call("get_unread_count")
    assert services.upkeep.still(ME, "task") is None


def test_an_unread_notification_is_remembered_until_what_it_follows_from_changes(services: Services) -> None:
    seat, task = Seat(services, ME), new(other(services))
    settled(services)
    for _ in range(2):
        assert seat.call("get_unread_count")["notification"] == services.texts("notification.some")
        known = services.upkeep.still(ME, "task")
        assert known is not None
        assert (known.pending.some, known.pending.interrupts) == (True, False)
    assert services.upkeep.still(ME, "chat") is None, "it is for the other session"
    other(services).task_changes.set_status(agent(services, "admin"), task.id, "backlog")
    assert services.upkeep.still(ME, "task") is None
    assert seat.call("get_unread_count")["notification"] == services.texts("notification.none")


def test_what_another_thread_has_found_meanwhile_is_not_taken_for_judged(services: Services) -> None:
    tasks = services.workspace.tasks.directory(ME)
    version = tasks.looked()
    settled(services)
    tasks.looked()
    assert tasks.good_for(version) is not None
    new(other(services))
    settled(services)
    tasks.looked()
    assert tasks.good_for(version) is None


def test_calls_are_logged_while_all_is_still(services: Services) -> None:
    task = running(services)
    seat = Seat(services, ME)
    (execution,) = services.executions.all(ME)
    services.notifications.read(ME, "task")
    settled(services)
    seat.call("get_unread_count")
    seat.call("get_unread_count")
    known = services.upkeep.still(ME, "task")
    assert known is not None
    assert known.works
    assert services.executions.read_log(execution).total >= 4
    assert task.id == execution.task_id
