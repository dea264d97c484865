"""Work that comes back from agents that are gone (docs/protocol.md, Whoever is free)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from multi_agent_mcp.bootstrap import open_session
from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.task import Task
from multi_agent_mcp.doorbell.channel import Recorder
from multi_agent_mcp.pool.returns import covered
from multi_agent_mcp.services.tasks.board import NewTask
from multi_agent_mcp.wiring import Services
from tests.conftest import Clock
from tests.server.seat import Seat


@pytest.fixture
def returning(services: Services, clock: Clock) -> Services:
    """The session with work that comes back after half a minute."""
    path = services.path / "session.yaml"
    path.write_text(path.read_text().replace("limits: {}", "limits: {return_minutes: 0.5}"))
    found = open_session(services.root, "demo", clock=clock, notifier=Recorder())
    found.awake.uptime = lambda: clock.now.timestamp()
    return found


@pytest.fixture
def gone(returning: Services, admin: Agent) -> Task:
    """A task of worker-a in progress, whose server has ended."""
    (task,) = returning.task_creation.create(admin, [NewTask(title="part", assignee_id="worker-a")])
    seat = Seat(returning, "worker-a")
    seat.call("get_notifications")
    seat.call("get_next_action")
    seat.call("hand_off", content="half of it is done")
    seat.binding.close()
    return task


def now(services: Services, task: Task) -> tuple[str, str | None]:
    found = services.workspace.tasks.get(task.id)
    return found.status, found.assignee_id


def test_a_task_comes_back_once_its_agent_is_gone_for_too_long(returning: Services, gone: Task, clock: Clock) -> None:
    admin = Seat(returning, "admin")
    clock.advance(29)
    returning.returns.look()
    assert now(returning, gone) == ("in_progress", "worker-a")
    clock.advance(10)
    for _ in range(2):
        returning.returns.look()
        clock.advance(10)
    assert now(returning, gone) == ("todo", None)
    (told,) = admin.call("get_notifications")["notifications"]
    assert (told["action"], told["task_id"]) == ("work_returned", gone.id)
    assert "worker-a" in told["reason"]
    assert "handoffs/worker-a" in told["reason"]
    (told,) = Seat(returning, "worker-a").call("get_notifications")["notifications"]
    assert (told["action"], told["task_id"]) == ("work_returned", gone.id)
    assert Seat(returning, "worker-a").call("get_next_action")["action"] == "wait"


def test_a_colleague_that_calls_brings_it_back_although_no_file_changes(
    returning: Services, gone: Task, clock: Clock
) -> None:
    admin = Seat(returning, "admin")
    clock.advance(60)
    admin.call("get_unread_count")
    assert now(returning, gone) == ("todo", None)


def put_down(services: Services) -> None:
    services.missing_sessions.put_down("worker-a")


def alone(services: Services) -> None:
    for session in services.sessions.everywhere():
        services.workspace.sessions.update(session.id, lambda found: found.end(services.clock()))


def back(services: Services) -> None:
    Seat(services, "worker-a")


@pytest.mark.parametrize("what", [put_down, alone, back], ids=lambda what: what.__name__)
def test_a_down_and_time_in_which_nobody_runs_do_not_count(
    returning: Services, gone: Task, clock: Clock, what: Callable[[Services], None]
) -> None:
    Seat(returning, "admin")
    what(returning)
    clock.advance(3600)
    returning.returns.look()
    assert now(returning, gone) == ("in_progress", "worker-a")


def test_without_the_setting_nothing_comes_back(services: Services, admin: Agent, clock: Clock) -> None:
    (task,) = services.task_creation.create(admin, [NewTask(title="part", assignee_id="worker-a")])
    Seat(services, "worker-a").call("get_next_action")
    alone(services)
    Seat(services, "admin")
    clock.advance(86_400)
    services.returns.look()
    assert services.workspace.tasks.get(task.id).assignee_id == "worker-a"


def test_time_is_counted_once_however_many_run() -> None:
    assert covered([(0, 3), (1, 2), (5, 9)], 2) == 5


@pytest.mark.parametrize("step", [-7200, -30, 30, 7200, 40_000_000, -40_000_000])
def test_a_clock_that_is_set_and_a_machine_that_sleeps_neither_bring_it_back_too_early_nor_never(
    returning: Services, gone: Task, clock: Clock, step: int
) -> None:
    admin, start = Seat(returning, "admin"), clock.now
    uptime = [0.0]
    returning.awake.uptime = lambda: uptime[0]

    def seconds(passed: int) -> tuple[str, str | None]:
        clock.advance(passed)
        uptime[0] += passed
        returning.returns.look()
        return now(returning, gone)

    assert seconds(10) == ("in_progress", "worker-a")
    clock.advance(step)
    assert seconds(8) == ("in_progress", "worker-a")
    clock.advance(-step)  # it is set right, or falls asleep once more
    clock.advance(abs(step))
    assert seconds(8) == ("in_progress", "worker-a")
    assert seconds(12) == ("todo", None), clock.now - start
    assert [told["action"] for told in admin.call("get_notifications")["notifications"]] == ["work_returned"]


def test_an_end_that_the_clock_shows_before_an_earlier_one_counts(
    returning: Services, gone: Task, clock: Clock
) -> None:
    uptime = [0.0]
    returning.awake.uptime = lambda: uptime[0]
    Seat(returning, "admin")
    returning.returns.look()
    clock.advance(-3600)
    seat = Seat(returning, "worker-a")
    returning.returns.look()
    clock.advance(600)
    uptime[0] += 600
    seat.binding.close()  # by the clock long before the end of the session before
    returning.returns.look()
    clock.advance(20)
    uptime[0] += 20
    returning.returns.look()
    assert now(returning, gone) == ("in_progress", "worker-a")
    clock.advance(20)
    uptime[0] += 20
    returning.returns.look()
    assert now(returning, gone) == ("todo", None)
