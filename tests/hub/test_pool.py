"""Who is free is decided once on several machines, too: a claim at the hub, mail for a role where its sender is."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from threading import Barrier

import pytest

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.errors import AlreadyExists
from multi_agent_mcp.services.tasks.board import NewTask
from multi_agent_mcp.services.validation import Draft
from tests.hub.support import Machine, eventually
from tests.hub.test_machines import task_for

WORKERS = ("worker-a", "worker-d")
ROUNDS = 12


@pytest.fixture
def both(desk: Machine, laptop: Machine) -> tuple[Machine, Machine]:
    """A worker on each machine: worker-d at the desk."""
    if "worker-d" not in desk.services.agents.all():
        desk.services.agents.add(Agent(id="worker-d", parent_id="admin"))
        eventually(lambda: "worker-d" in laptop.services.agents.all())
    return laptop, desk


@contextmanager
def awake(machines: tuple[Machine, Machine]) -> Iterator[None]:
    """Both workers have a session, which each machine knows."""
    sessions = [machine.services.sessions.open(name, "task") for machine, name in zip(machines, WORKERS, strict=True)]
    for machine in machines:
        eventually(lambda machine=machine: all(map(machine.services.sessions.alive, WORKERS)))  # type: ignore[misc]
    try:
        yield
    finally:
        for session in sessions:
            session.end()


def holders(machine: Machine, content: str) -> list[str]:
    """The agents in whose mailboxes this machine has a message with this content."""
    return [name for name in ("admin", "owner", *WORKERS) if machine.has(name, content)]


def has_all(machine: Machine, agent_id: str, task_ids: list[str]) -> bool:
    return {task.id for task in machine.services.workspace.tasks.open(agent_id)} >= {*task_ids}


def test_a_task_that_agents_of_two_machines_claim_at_once_has_one_of_them(both: tuple[Machine, Machine]) -> None:
    admin = both[1].services.agents.get("admin")
    new = [NewTask(title=f"to be claimed {number}") for number in range(ROUNDS)]
    tasks = [task.id for task in both[1].services.task_creation.create(admin, new)]
    eventually(lambda: all(map(both[0].services.workspace.tasks.find, tasks)))
    at_once = Barrier(2)

    def claims(machine: Machine, name: str) -> list[str]:
        services, won = machine.services, []
        for task_id in tasks:
            at_once.wait()
            try:
                won.append(services.claims.claim(services.agents.get(name), task_id).id)
            except AlreadyExists:
                continue
        return won

    with ThreadPoolExecutor(2) as pool:
        wins = list(pool.map(claims, both, WORKERS))
    assert sorted([*wins[0], *wins[1]]) == sorted(tasks)
    for machine in both:
        for name, won in zip(WORKERS, wins, strict=True):
            eventually(partial(has_all, machine, name, won))
    for task_id in tasks:
        services = both[1].services
        services.task_changes.set_status(services.agents.get("admin"), task_id, "cancelled")


def test_what_an_agent_can_do_is_known_on_every_machine_and_decides_what_it_is_given_there(
    both: tuple[Machine, Machine],
) -> None:
    laptop, desk = both
    laptop.services.agents.change("worker-a", skills=["COBOL"])
    eventually(lambda: desk.services.agents.get("worker-a").extra.get("skills") == ["COBOL"])
    new = [NewTask(title="an old program", assignee_id="@worker", needs=("cobol",))]
    with awake(both):
        (task,) = desk.services.task_creation.create(desk.services.agents.get("admin"), new)
        assert desk.services.workspace.tasks.get(task.id).assignee_id == "worker-a"
    desk.services.task_changes.set_status(desk.services.agents.get("admin"), task.id, "cancelled")


def test_mail_for_a_role_is_handed_to_one_agent_of_all_machines_and_to_a_busy_one_elsewhere_when_it_is_done(
    both: tuple[Machine, Machine],
) -> None:
    laptop, desk = both
    services = desk.services
    admin = services.agents.get("admin")
    with awake(both):
        sent = services.messages.send(admin, Draft(content="who has time?", receiver_id="@worker"))
        (chosen,) = sent.delivery
        assert chosen in WORKERS
        for machine in both:
            eventually(lambda machine=machine: holders(machine, "who has time?") == [chosen])  # type: ignore[misc]
        for machine, name in zip(both, WORKERS, strict=True):
            inbox = machine.services.workspace.mailbox(name)
            with machine.services.workspace.locks.held(inbox.lock):
                inbox.read([each for each, _ in inbox.unread()], machine.services.clock())
        busy = [task_for(desk, name) for name in WORKERS]
        for machine, name, task_id in zip(both, WORKERS, busy, strict=True):
            eventually(lambda machine=machine, task_id=task_id: machine.services.workspace.tasks.find(task_id))  # type: ignore[misc]
            there = machine.services
            there.task_changes.start(there.agents.get(name), task_id)
        eventually(lambda: desk.services.workspace.tasks.get(busy[0]).status == "in_progress")
        eventually(lambda: not desk.services.workspace.mailbox("worker-a").unread(fresh=True))
        sent = services.messages.send(admin, Draft(content="and next?", receiver_id="@worker"))
        assert list(sent.delivery) == ["@worker"]
        laptop.services.task_changes.set_status(laptop.services.agents.get("worker-a"), busy[0], "done")
        for machine in both:
            eventually(lambda machine=machine: holders(machine, "and next?") == ["worker-a"])  # type: ignore[misc]
