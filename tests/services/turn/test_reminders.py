"""An idle agent is told again of a task that it knows of and has not begun (docs/protocol.md, When to ring)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from threading import Barrier

import pytest

from multi_agent_mcp.bootstrap import open_session
from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.notification import Notification
from multi_agent_mcp.doorbell.channel import Recorder
from multi_agent_mcp.wiring import Services
from tests.conftest import Clock
from tests.crash.stage import Seat
from tests.services.tasks_support import mailed, moved, new, running

MINUTE = 60
FIRST, SECOND = timedelta(minutes=2), timedelta(minutes=10)


@pytest.fixture
def seat(services: Services) -> Seat:
    return Seat(services, "worker-a")


def bell(seat: Seat) -> timedelta | None:
    """What the thread of the agent's server does when it is woken, until it sleeps; for how long it does."""
    thread = seat.binding._doorbell
    assert thread is not None
    while (pause := thread._attempt(0)[0]) == timedelta(0):
        pass
    return pause


def look(services: Services, screen: str = "idle") -> timedelta | None:
    return services.reminders.look("worker-a", lambda: screen)


def reminder(services: Services) -> Notification:
    """The reminder that is due now."""
    assert look(services) == timedelta(0)
    (notice,) = services.notifications.ringing("worker-a")
    return notice


def test_a_task_that_was_read_and_not_begun_rings_after_two_minutes_then_after_ten_and_no_more(
    services: Services, seat: Seat, recorder: Recorder, clock: Clock
) -> None:
    new(services)
    seat.call("get_notifications")
    recorder.rings.clear()
    assert bell(seat) == FIRST
    for pause in (FIRST, SECOND):
        clock.advance(pause.total_seconds())
        bell(seat)
        assert recorder.rings.pop() == ("worker-a", "[IPC] New notification: task_assigned from admin")
        assert [item["action"] for item in seat.call("get_notifications")["notifications"]] == ["task_assigned"]
        assert bell(seat) in (SECOND, None)
    clock.advance(60 * MINUTE)
    assert bell(seat) is None
    assert recorder.rings == []


def test_a_task_whose_announcement_was_read_before_another_was_taken_rings_when_that_one_is_over(
    services: Services, seat: Seat, clock: Clock
) -> None:
    first, _, later = new(services), clock.advance(1), new(services, "later")
    seat.call("get_notifications")
    assert seat.call("get_next_action")["task"]["task_id"] == first.id
    clock.advance(30 * MINUTE)
    assert look(services) is None
    seat.call("report_completed", result="success")
    assert look(services) == FIRST
    clock.advance(2 * MINUTE)
    assert reminder(services).task_id == later.id
    seat.call("get_next_action")
    assert services.notifications.ringing("worker-a") == []


@pytest.mark.parametrize("former", ["in_progress", "blocked"])
@pytest.mark.parametrize("status", ["todo", "in_progress"])
def test_a_task_that_another_takes_up_again_rings_until_it_is_begun(
    services: Services, owner: Agent, seat: Seat, clock: Clock, former: str, status: str
) -> None:
    if former == status:
        pytest.skip("not a change")
    task = running(services)
    seat.call("get_next_action")
    if former == "blocked":
        seat.call("update_task_status", task_id=task.id, status="blocked", blocked_reason="x")
    services.task_changes.set_status(owner, task.id, status)
    seat.call("get_notifications")
    clock.advance(2 * MINUTE)
    assert reminder(services).action == "task_assigned"
    seat.call("get_next_action")
    assert look(services) is None


def test_work_that_a_reviewer_gave_back_rings_again(services: Services, admin: Agent, seat: Seat, clock: Clock) -> None:
    task = running(services, done_when=["review"])
    seat.call("get_next_action")
    seat.call("report_completed", result="success")
    services.task_changes.set_status(admin, task.id, "in_progress", "not yet")
    seat.call("get_notifications")
    clock.advance(2 * MINUTE)
    notice = reminder(services)
    assert (notice.action, notice.reason) == ("review_rejected", "not yet")


def test_a_task_that_came_by_mail_or_that_the_agent_gave_itself_rings_too(
    services: Services, seat: Seat, clock: Clock
) -> None:
    task = mailed(services)
    assert seat.call("read_messages")["count"] == 1
    clock.advance(2 * MINUTE)
    assert reminder(services).sender_id == "admin"
    moved(services, task, "in_progress", "todo")
    seat.call("get_notifications")
    clock.advance(2 * MINUTE)
    assert reminder(services).sender_id is None


def test_of_several_tasks_the_first_rings_and_each_call_begins_the_time_again(
    services: Services, seat: Seat, clock: Clock
) -> None:
    first, _, _ = new(services), clock.advance(1), new(services, "later")
    seat.call("get_notifications")
    clock.advance(MINUTE)
    seat.call("get_my_tasks")
    clock.advance(MINUTE)
    assert look(services) == timedelta(minutes=1)
    clock.advance(MINUTE)
    assert reminder(services).task_id == first.id
    seat.call("get_notifications")
    assert look(services) == SECOND


def test_who_works_waits_for_others_is_paused_or_has_met_a_limit_is_not_reminded(
    services: Services, owner: Agent, seat: Seat, clock: Clock
) -> None:
    needed = new(services, "needed", "worker-b")
    new(services, dependencies=(needed.id,))
    clock.advance(60 * MINUTE)
    assert look(services) is None
    moved(services, needed, "in_progress", "done")
    seat.call("get_notifications")
    clock.advance(2 * MINUTE)
    assert look(services, "busy") == FIRST
    assert services.notifications.ringing("worker-a") == []
    services.interrupts.pause("worker-a", None, sender_id="owner")
    assert look(services) is None
    clock.advance(MINUTE)
    services.interrupting.resume(owner, "worker-a")
    assert look(services) == FIRST


def test_of_two_processes_that_look_at_once_one_writes_and_the_next_goes_on_from_its_file(
    services: Services, seat: Seat, clock: Clock
) -> None:
    new(services)
    seat.call("get_notifications")
    clock.advance(2 * MINUTE)
    others = [open_session(services.root, "demo", clock=clock, notifier=Recorder()) for _ in range(2)]
    both = Barrier(2, timeout=30)

    def screen() -> str:
        both.wait()
        return "idle"

    with ThreadPoolExecutor() as pool:
        found = list(pool.map(lambda other: other.reminders.look("worker-a", screen), others))
    assert found == [timedelta(0)] * 2
    assert len(services.notifications.ringing("worker-a")) == 1
    seat.call("get_notifications")
    late = open_session(services.root, "demo", clock=clock, notifier=Recorder())
    assert late.reminders.look("worker-a", lambda: "idle") == SECOND


def test_a_clock_that_was_set_back_holds_no_reminder_up(services: Services, seat: Seat, clock: Clock) -> None:
    new(services)
    seat.call("get_notifications")
    clock.advance(-24 * 60 * MINUTE)
    assert reminder(services).action == "task_assigned"
