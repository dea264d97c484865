"""Notifications that were made superfluous from elsewhere: their agent's home marks them read, and does not ring."""

from __future__ import annotations

from dataclasses import replace

import pytest

from multi_agent_mcp.bootstrap import LocalConsequences
from multi_agent_mcp.domain.notification import Notification
from multi_agent_mcp.doorbell.channel import Recorder
from multi_agent_mcp.services.tasks.board import NewTask
from multi_agent_mcp.store.inbox import file_name
from multi_agent_mcp.wiring import Services
from tests.hub.support import Machine, eventually
from tests.hub.test_machines import task_for


def notices(machine: Machine, agent_id: str, task_id: str) -> list[Notification]:
    return [item for item in machine.services.workspace.notices(agent_id).history() if item.task_id == task_id]


def are_read(machine: Machine, agent_id: str, task_id: str) -> bool:
    found = notices(machine, agent_id, task_id)
    return bool(found) and all(item.read_at is not None for item in found)


def same(desk: Machine, laptop: Machine, agent_id: str, task_id: str) -> bool:
    """Whether both machines have the same; that it was settled is known at its agent's home alone."""
    here, there = (
        [replace(item, settled=None) for item in notices(machine, agent_id, task_id)] for machine in (desk, laptop)
    )
    return here == there


def reassign(machine: Machine, task_id: str, agent_id: str) -> None:
    services = machine.services
    services.task_changes.assign(services.agents.get("admin"), task_id, agent_id)


def move(machine: Machine, task_id: str, status: str) -> None:
    services = machine.services
    services.task_changes.set_status(services.agents.get("admin"), task_id, status)


def test_of_a_task_that_was_given_to_somebody_else(desk: Machine, laptop: Machine) -> None:
    task_id = task_for(desk, "worker-a")
    eventually(lambda: notices(laptop, "worker-a", task_id))
    reassign(desk, task_id, "admin")
    eventually(lambda: are_read(laptop, "worker-a", task_id))
    eventually(lambda: same(desk, laptop, "worker-a", task_id))


def test_of_a_task_that_was_done_by_somebody_else(desk: Machine, laptop: Machine) -> None:
    task_id = task_for(desk, "worker-a")
    eventually(lambda: notices(laptop, "worker-a", task_id))
    move(desk, task_id, "in_progress")
    move(desk, task_id, "done")
    eventually(lambda: are_read(laptop, "worker-a", task_id))
    eventually(lambda: same(desk, laptop, "worker-a", task_id))


@pytest.mark.parametrize("how", ["given away", "done"])
def test_that_came_when_it_was_over_already(desk: Machine, laptop: Machine, how: str) -> None:
    laptop.sharing.stop_relay()
    task_id = task_for(desk, "worker-a")
    if how == "done":
        move(desk, task_id, "in_progress")
        move(desk, task_id, "done")
    else:
        reassign(desk, task_id, "admin")
    laptop.start()
    eventually(lambda: are_read(laptop, "worker-a", task_id))
    eventually(lambda: same(desk, laptop, "worker-a", task_id))


def test_of_an_interrupt_that_was_taken_back(desk: Machine, laptop: Machine) -> None:
    task_id = task_for(desk, "worker-a")
    move(desk, task_id, "in_progress")
    move(desk, task_id, "blocked")
    eventually(lambda: [item for item in notices(laptop, "worker-a", task_id) if item.interrupts])
    move(desk, task_id, "todo")
    eventually(lambda: all(item.read_at for item in notices(laptop, "worker-a", task_id) if item.interrupts))
    eventually(lambda: same(desk, laptop, "worker-a", task_id))


def test_of_a_pause_that_is_over(desk: Machine, laptop: Machine) -> None:
    services = desk.services
    admin = services.agents.get("admin")
    pause = services.interrupting.interrupt(admin, "worker-a", "pause", None, None)
    assert pause is not None

    def at_home(notice: Notification) -> Notification | None:
        found = laptop.services.workspace.notices("worker-a").find(notice.id)
        return None if found is None else found[1]

    eventually(lambda: at_home(pause))
    resumption = services.interrupting.resume(admin, "worker-a")
    eventually(lambda: (found := at_home(pause)) is not None and found.read_at is not None)
    found = at_home(resumption)
    assert found is not None
    assert found.read_at is None


def test_nobody_is_rung_for_what_was_over_when_it_came(services: Services, recorder: Recorder) -> None:
    (task,) = services.task_creation.create(
        services.agents.get("admin"), [NewTask(title="Build", assignee_id="worker-a")]
    )
    ((_, told),) = services.workspace.notices("worker-a").unread()
    services.task_changes.set_status(services.agents.get("admin"), task.id, "cancelled")
    inbox = services.workspace.notices("worker-a")
    with services.workspace.locks.held(inbox.lock):  # as it comes from a machine that did not know yet
        inbox.requeue([inbox.reference(file_name(told))])
    assert recorder.rings != []
    recorder.rings.clear()
    LocalConsequences(services).notified(told)
    assert recorder.rings == []
    assert told.id not in [notice.id for _, notice in inbox.unread()]
