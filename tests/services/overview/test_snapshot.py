"""One look at a session: who works, what is open, what was written last."""

from __future__ import annotations

from multi_agent_mcp.wiring import Services
from tests.conftest import Clock
from tests.services.support import read, send
from tests.services.tasks_support import dies, moved, new, open_session, running, snapshot


def test_agents_are_in_tree_order_with_what_they_do(services: Services, clock: Clock) -> None:
    task = running(services, "Build")
    session = open_session(services, "worker-a")
    send(services, "admin", "worker-b")
    owner, admin, worker_a, worker_b = services.snapshots.take().agents
    assert [owner.depth, admin.depth, worker_a.depth] == [0, 1, 2]
    assert (worker_a.alive, worker_a.task) == (True, task)
    assert worker_a.active_at == clock.now
    assert (worker_b.alive, worker_b.unread, worker_b.task) == (False, 1, None)
    dies(services, session)
    assert not services.snapshots.take().agents[2].alive


def test_open_tasks_come_first_by_what_is_done_and_closed_ones_are_counted(services: Services) -> None:
    waiting = new(services, "waiting")
    urgent = new(services, "urgent", priority="urgent")
    active = running(services, "active", "worker-b")
    moved(services, running(services, "over", "worker-b"), "done")
    look = services.snapshots.take()
    assert [task.id for task in look.tasks] == [active.id, urgent.id, waiting.id]
    counted = {status: count for status, count in look.counts.items() if count}
    assert counted == {"todo": 2, "in_progress": 1, "done": 1}


def test_an_interrupt_shows_until_it_is_read_or_its_task_goes_on(services: Services) -> None:
    task = running(services)
    services.task_changes.set_status(services.agents.get("owner"), task.id, "blocked", reason="wait")
    assert services.snapshots.take().agents[2].interrupts
    services.notifications.read("worker-a", "task")
    assert not services.snapshots.take().agents[2].interrupts


def test_a_waiting_owner_is_seen(services: Services) -> None:
    services.task_creation.send(services.agents.get("owner"), "admin", "Plan", "Do it.")
    assert services.snapshots.take().agents[0].waiting_for == "admin"


def test_messages_come_newest_first_with_the_step_they_have_reached(services: Services, clock: Clock) -> None:
    send(services, "admin", "worker-a", "first words\nof many", message_type="request")
    clock.advance(1)
    read(services, "worker-a")
    send(services, "admin", "worker-b", subject="second")
    newest, oldest = services.snapshots.take().messages
    assert (oldest.subject, oldest.state) == ("first words of many", "read")
    assert (newest.subject, newest.receiver_id, newest.state) == ("second", "worker-b", "submitted")
    assert services.snapshots.take(messages=1).messages == (newest,)


def test_looking_changes_nothing(services: Services) -> None:
    task = running(services)
    send(services, "admin", "worker-a")
    services.task_changes.set_status(services.agents.get("owner"), task.id, "blocked", reason="wait")
    before = snapshot(services)
    services.snapshots.take()
    assert snapshot(services) == before
