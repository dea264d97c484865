"""Operations on tasks: create, move, stop, assign, request, approve."""

from __future__ import annotations

from collections.abc import Iterator

from multi_agent_mcp.domain.history import KEPT, Change
from multi_agent_mcp.domain.task import Task
from multi_agent_mcp.services.tasks.board import NewTask
from multi_agent_mcp.store.codec import codec
from multi_agent_mcp.wiring import Services
from tests.crash.invariants import mail, notices
from tests.crash.operations.judging import whole
from tests.crash.operations.reports import task, with_work
from tests.crash.stage import Aftermath, Deed, Facts, Operation
from tests.store.support import NOON


def stopped(after: Aftermath, agent_id: str, task_id: str) -> int:
    found = [notice for notice in notices(after.services, agent_id) if notice.task_id == task_id]
    return sum(notice.type == "interrupt" and notice.action == "blocked" for notice in found)


def block(deed: Deed) -> None:
    arguments = {"task_id": deed.told["task_id"], "status": "blocked", "blocked_reason": "stop"}
    deed.acknowledge(deed.seat("admin").call("update_task_status", **arguments))


def blocked(after: Aftermath) -> Iterator[str]:
    found = task(after)
    yield from whole(
        after, status=int(found.status == "blocked"), interrupt=stopped(after, "worker-a", after.told["task_id"])
    )


def cancel(deed: Deed) -> None:
    deed.acknowledge(deed.seat("admin").call("update_task_status", task_id=deed.told["task_id"], status="cancelled"))


def cancelled(after: Aftermath) -> Iterator[str]:
    found = [notice for notice in notices(after.services, "worker-a") if notice.action == "cancel"]
    yield from whole(after, status=int(task(after).status == "cancelled"), interrupt=len(found))


def with_what_waits(services: Services) -> Facts:
    """A task that waits for worker-a, which has read of it and works on another one."""
    facts = with_work(services)
    (waiting,) = services.task_creation.create(
        services.agents.get("admin"), [NewTask(title="Wait", assignee_id="worker-a")]
    )
    services.notifications.read("worker-a", "task")
    return {"task_id": waiting.id, "in_hand": facts["task_id"]}


def withdrawn(after: Aftermath) -> Iterator[str]:
    """Nobody is stopped, and who has read of the task hears of it."""
    told = [notice for notice in notices(after.services, "worker-a") if notice.action == "task_withdrawn"]
    yield from whole(after, status=int(task(after).status == "cancelled"), told=len(told))
    if any(notice.type == "interrupt" for notice in notices(after.services, "worker-a")):
        yield "an interrupt about a task that only waited"
    if after.services.task_changes.get(after.told["in_hand"]).status != "in_progress":
        yield "the task in hand was stopped"


def with_two_at_once(services: Services) -> Facts:
    """A task of worker-a's that was stopped, which it has not read yet, beside the one in hand, begun last."""
    facts, worker = with_work(services), services.agents.get("worker-a")
    (other,) = services.task_creation.create(
        services.agents.get("admin"), [NewTask(title="Beside", assignee_id="worker-a", priority="low")]
    )
    services.task_changes.start(worker, other.id)
    services.task_changes.set_status(services.agents.get("admin"), other.id, "blocked")
    return {"task_id": other.id, "in_hand": facts["task_id"]}


def obey(deed: Deed) -> None:
    seat = deed.seat("worker-a")
    seat.call("get_notifications")
    deed.acknowledge(seat.call("report_completed", result="blocked"))


def obeyed(after: Aftermath) -> Iterator[str]:
    """The one that was stopped is reported, once; the one in hand goes on."""
    found = [message for message in mail(after.services, "admin") if message.message_type == "status_update"]
    yield from whole(after, reported=int(task(after).completion_result == "blocked"), told=len(found))
    if after.services.task_changes.get(after.told["in_hand"]).status != "in_progress":
        yield "the task in hand was stopped"


def with_a_family(services: Services) -> Facts:
    """A parent of nobody's with two subtasks, one of which has a subtask of its own; two are being worked on."""
    admin = services.agents.get("admin")
    (parent,) = services.task_creation.create(admin, [NewTask(title="House", assignee_id="admin")])
    children = services.task_creation.create(
        admin,
        [NewTask(title="Wall", assignee_id="worker-a"), NewTask(title="Roof", assignee_id="worker-b")],
        parent.id,
    )
    (grandchild,) = services.task_creation.create(
        admin, [NewTask(title="Brick", assignee_id="worker-b")], children[0].id
    )
    for child in (*children, grandchild):
        services.task_changes.start(services.agents.get(str(child.assignee_id)), child.id)
    return {"task_id": parent.id, "children": {item.id: item.assignee_id for item in (*children, grandchild)}}


def block_family(deed: Deed) -> None:
    arguments = {"task_id": deed.told["task_id"], "status": "blocked", "blocked_reason": "stop"}
    deed.acknowledge(deed.seat("owner").call("update_task_status", **arguments))


def family_blocked(after: Aftermath) -> Iterator[str]:
    parts = {"parent": int(task(after).status == "blocked")}
    for child, assignee in after.told["children"].items():
        found = after.services.task_changes.get(child)
        parts[f"{found.title} blocked"] = int(found.status == "blocked")
        parts[f"{found.title} interrupt"] = stopped(after, assignee, child)
        if sum(entry.get("status", [""])[-1] == "blocked" for entry in found.history) > 1:
            yield f"{found.title} was blocked more than once"
    yield from whole(after, **parts)


def reassign(deed: Deed) -> None:
    deed.acknowledge(deed.seat("owner").call("assign_task", task_id=deed.told["task_id"], assignee_id="worker-b"))


def reassigned(after: Aftermath) -> Iterator[str]:
    told = [notice for notice in notices(after.services, "worker-a") if notice.type == "status_change"]
    theirs = [item for item in after.services.workspace.tasks.all("worker-b") if item.id == after.told["task_id"]]
    mine = [item for item in after.services.workspace.tasks.all("worker-a") if item.id == after.told["task_id"]]
    moved = task(after).assignee_id == "worker-b"
    yield from whole(after, assigned=int(moved), partition=len(theirs), off_shelf=1 - len(mine), told=len(told))


BATCH = ("dig", "pour", "build", "paint")


def create_batch(deed: Deed) -> None:
    tasks = [{"title": title, "local_id": title, "assignee_id": "worker-a"} for title in BATCH]
    tasks[1]["dependencies"] = ["dig"]  # type: ignore[assignment]
    deed.acknowledge(deed.seat("admin").call("create_tasks_batch", tasks=tasks))


def batch_created(after: Aftermath) -> Iterator[str]:
    titles = [item.title for item in after.services.workspace.tasks.all("worker-a")]
    yield from whole(after, **{title: titles.count(title) for title in BATCH})


def request(deed: Deed) -> None:
    deed.acknowledge(deed.seat("worker-a").call("request_task", title="Test", description="please"))


def requested(after: Aftermath) -> Iterator[str]:
    messages = [message for message in mail(after.services, "admin") if message.content == "please"]
    yield from whole(after, task=len(after.services.workspace.tasks.all("worker-a")), told=len(messages))


def with_a_request(services: Services) -> Facts:
    worker = services.agents.get("worker-a")
    return {"task_id": services.task_creation.request(worker, NewTask(title="Test"))[0].id}


def approve(deed: Deed) -> None:
    deed.acknowledge(deed.seat("admin").call("approve_task_request", task_id=deed.told["task_id"], approve=True))


def approved(after: Aftermath) -> Iterator[str]:
    messages = [message for message in mail(after.services, "worker-a") if message.message_type == "task_approved"]
    after.services.derived_notices.repair("worker-a")
    work = [notice for notice in notices(after.services, "worker-a") if notice.action == "task_assigned"]
    yield from whole(after, approved=int(task(after).approval_status == "approved"), told=len(messages), work=len(work))


def pause(deed: Deed) -> None:
    admin = deed.services.agents.get("admin")
    paused = deed.services.interrupting.interrupt(admin, "worker-a", "pause", None, None)
    deed.acknowledge({"id": paused.id if paused else None})


def paused(after: Aftermath) -> Iterator[str]:
    yield from whole(after, pause=sum(notice.action == "pause" for notice in notices(after.services, "worker-a")))


def with_a_pause(services: Services) -> Facts:
    facts = with_work(services)
    services.interrupting.interrupt(services.agents.get("admin"), "worker-a", "pause", None, None)
    return facts


def resume(deed: Deed) -> None:
    deed.acknowledge({"id": deed.services.interrupting.resume(deed.services.agents.get("admin"), "worker-a").id})


def resumed(after: Aftermath) -> Iterator[str]:
    after.services.derived_notices.repair("worker-a")
    unread = [notice.action for _, notice in after.services.workspace.notices("worker-a").unread()]
    yield from whole(after, told=unread.count("resume"), pause_over=1 - unread.count("pause"))


def block_ones_own(deed: Deed) -> None:
    arguments = {"task_id": deed.told["task_id"], "status": "blocked", "blocked_reason": "no key"}
    deed.acknowledge(deed.seat("worker-a").call("update_task_status", **arguments))


def own_blocked(after: Aftermath) -> Iterator[str]:
    told = [notice for notice in notices(after.services, "admin") if notice.action == "task_blocked"]
    yield from whole(after, status=int(task(after).status == "blocked"), told=len(told))


OVER = 8


def with_much_behind_it(services: Services) -> Facts:
    """A task with as many lines in its file as may be there, beside finished ones that nobody has archived."""
    facts = with_work(services)
    tasks = services.workspace.tasks
    for number in range(KEPT):
        change = Change(by="worker-a", at=NOON, reason=str(number))
        tasks.update(facts["task_id"], lambda found, change=change: found.recorded(change))  # type: ignore[misc]
    mine = tasks.directory("worker-a")
    for number in range(OVER):
        done = Task(id=f"tsk_{number:012x}", status="done", assignee_id="worker-a")
        (mine.path / f"{done.id}.md").write_bytes(codec(Task).encode(done))
    return {**facts, "lines": len(tasks.get(facts["task_id"]).history)}


def finish(deed: Deed) -> None:
    arguments = {"task_id": deed.told["task_id"], "status": "done"}
    deed.acknowledge(deed.seat("worker-a").call("update_task_status", **arguments))


def finished(after: Aftermath) -> Iterator[str]:
    tasks = after.services.workspace.tasks
    found = task(after)
    yield from whole(after, done=int(found.status == "done"), line=len(found.history) - after.told["lines"])
    if [line["reason"] for line in found.history if "reason" in line] != [str(number) for number in range(KEPT)]:
        yield f"lines of the history are lost: {list(found.history)}"
    if (count := len(tasks.all("worker-a"))) != OVER + 1:
        yield f"{count} tasks are left of {OVER + 1}"
    if any(tasks.find(f"tsk_{number:012x}") is None for number in range(OVER)):
        yield "a finished task is not found any more"


ADMIN = (("admin", "task"),)
OWNER = (("owner", "task"),)

OPERATIONS = (
    Operation("block", block, blocked, with_work, ADMIN),
    Operation("cancel", cancel, cancelled, with_work, ADMIN),
    Operation("withdraw", cancel, withdrawn, with_what_waits, ADMIN),
    Operation("obey_about_another", obey, obeyed, with_two_at_once, (("worker-a", "task"),)),
    Operation("block_cascade", block_family, family_blocked, with_a_family, OWNER),
    Operation("reassign", reassign, reassigned, with_work, OWNER),
    Operation("create_tasks_batch", create_batch, batch_created, seats=ADMIN),
    Operation("request_task", request, requested, seats=(("worker-a", "task"),)),
    Operation("approve_task_request", approve, approved, with_a_request, ADMIN),
    Operation("interrupt_pause", pause, paused, with_work),
    Operation("resume", resume, resumed, with_a_pause),
    Operation("finish_and_archive", finish, finished, with_much_behind_it, (("worker-a", "task"),)),
    Operation("block_ones_own", block_ones_own, own_blocked, with_work, (("worker-a", "task"),)),
)
