"""Operations on what waits for whoever is free: offers, and work that comes back."""

from __future__ import annotations

from collections.abc import Iterator

from tests.crash.invariants import mail, notices
from tests.crash.operations.judging import whole
from tests.crash.operations.reports import task, with_work
from tests.crash.stage import Aftermath, Deed, Operation

WORKERS = ("worker-a", "worker-b")
AWAKE = (("admin", "task"), ("worker-a", "task"), ("worker-b", "task"))


def offer(deed: Deed) -> None:
    deed.acknowledge(deed.seat("admin").call("send_message", receiver_id="@worker", content="who?"))


def offered(after: Aftermath) -> Iterator[str]:
    """Yields a complaint unless one worker has the message, or it waits, once."""
    after.services.offers.hand_out()
    copies = [message for name in WORKERS for message in mail(after.services, name) if message.content == "who?"]
    waiting = [one for one in after.services.offers.open.open() if one.id not in {copy.id for copy in copies}]
    yield from whole(after, message=len(copies) + len(waiting))


def offer_task(deed: Deed) -> None:
    tasks = [{"title": "part", "assignee_id": "@any"}]
    deed.acknowledge(deed.seat("admin").call("create_tasks_batch", tasks=tasks))


def offered_task(after: Aftermath) -> Iterator[str]:
    """Yields a complaint unless the task has one winner, who alone is told of it, or waits with its offer."""
    after.services.offers.hand_out()
    tasks = [one for one in after.services.workspace.tasks.open() if one.title == "part"]
    yield from whole(after, task=len(tasks))
    for one in tasks:
        told = [name for name in WORKERS for notice in notices(after.services, name) if notice.task_id == one.id]
        waiting = sum(offer.about == one.id for offer in after.services.offers.open.open())
        if told != [one.assignee_id] * (one.assignee_id is not None) or waiting != (one.assignee_id is None):
            yield f"{one.assignee_id} has it, {told} are told, {waiting} offers wait"


def give_back(deed: Deed) -> None:
    services = deed.services
    found = services.workspace.tasks.get(deed.told["task_id"])
    services.returns._take_back(services.agents.get("worker-a"), found)
    deed.acknowledge({})


def given_back(after: Aftermath) -> Iterator[str]:
    parts = {
        name: sum(notice.action == "work_returned" for notice in notices(after.services, name))
        for name in ("admin", "worker-a")
    }
    yield from whole(after, **parts, unassigned=int(task(after).assignee_id is None))


OPERATIONS = (
    Operation("offer_message", offer, offered, seats=AWAKE),
    Operation("offer_task", offer_task, offered_task, seats=AWAKE),
    Operation("return_task", give_back, given_back, with_work),
)
