"""Operations on tasks with conditions: say that they are done, check them, review them. What a killed process has left
is examined by the next server, as `server/binding.py` does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from multi_agent_mcp.domain.task import Task
from multi_agent_mcp.services.tasks.board import NewTask
from multi_agent_mcp.wiring import Services
from tests.crash.invariants import notices
from tests.crash.operations.judging import whole
from tests.crash.operations.reports import count, task
from tests.crash.stage import Aftermath, Deed, Facts, Operation


def _begun(services: Services, *conditions: str) -> Task:
    new = NewTask(title="Build", assignee_id="worker-a", done_when=conditions)
    (made,) = services.task_creation.create(services.agents.get("admin"), [new])
    return services.task_changes.start(services.agents.get("worker-a"), made.id)[0]


def with_a_review(services: Services) -> Facts:
    """A task that worker-a works on and its superior is to review."""
    return {"task_id": _begun(services, "review").id}


def with_a_delivery(services: Services) -> Facts:
    """A task that waits for its review."""
    begun = _begun(services, "review")
    services.deliveries.conclude(services.deliveries.deliver(services.agents.get("worker-a"), begun.id, "built"))
    return {"task_id": begun.id}


def with_a_check(services: Services) -> Facts:
    """A task with a check that passes."""
    path = services.workspace.settings_path
    path.write_text(f"{path.read_text()}checks: {{tests: 'echo tested'}}\n")
    services.approvals.approve()
    return {"task_id": _begun(services, "tests").id}


def examined_again(services: Services) -> None:
    for found in services.deliveries.pending("worker-a"):
        services.deliveries.examine(found.id, _place(services), lambda: False)


def _place(services: Services) -> Path:
    """The directory in which checks run."""
    place = services.root / "work"
    place.mkdir(exist_ok=True)
    return place


def deliver(deed: Deed) -> None:
    deed.acknowledge(deed.seat("worker-a").call("report_completed", result="success", summary="built"))


def delivered(after: Aftermath) -> Iterator[str]:
    examined_again(after.services)
    asked = [notice for notice in notices(after.services, "admin") if notice.action == "review_requested"]
    yield from whole(after, status=int(task(after).status == "review"), asked=len(asked))


def approve(deed: Deed) -> None:
    deed.acknowledge(deed.seat("admin").call("approve_task_request", task_id=deed.told["task_id"], approve=True))


def approved(after: Aftermath) -> Iterator[str]:
    examined_again(after.services)
    found = task(after)
    yield from whole(after, status=int(found.status == "done"), told=count(after, "admin", "task_complete"))
    if found.status == "done" and found.proof != "proven":
        yield f"it is done, and only {found.proof}"


def reject(deed: Deed) -> None:
    arguments = {"task_id": deed.told["task_id"], "approve": False, "reason": "no tests"}
    deed.acknowledge(deed.seat("admin").call("approve_task_request", **arguments))


def rejected(after: Aftermath) -> Iterator[str]:
    told = [notice for notice in notices(after.services, "worker-a") if notice.action == "review_rejected"]
    yield from whole(after, status=int(task(after).status == "in_progress"), told=len(told))


def check(deed: Deed) -> None:
    services, worker = deed.services, deed.services.agents.get("worker-a")
    services.deliveries.deliver(worker, deed.told["task_id"], "built")
    examined = services.deliveries.examine(deed.told["task_id"], _place(services), lambda: False)
    deed.acknowledge({"check": examined and examined.check})


def checked(after: Aftermath) -> Iterator[str]:
    examined_again(after.services)
    found, receipts = task(after), {item.id for item in after.services.checks.receipts_of(after.told["task_id"])}
    yield from whole(after, status=int(found.status == "done"), told=count(after, "admin", "task_complete"))
    if found.status == "done" and not (found.receipts and receipts.issuperset(found.receipts)):
        yield f"it is done by the receipts {found.receipts}, and there are {receipts}"


OPERATIONS = (
    Operation("deliver", deliver, delivered, with_a_review),
    Operation("approve_delivery", approve, approved, with_a_delivery),
    Operation("reject_delivery", reject, rejected, with_a_delivery),
    Operation("check", check, checked, with_a_check),
)
