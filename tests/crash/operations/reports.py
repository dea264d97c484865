"""Operations that hand over, report and finish work, and the Owner's wait for it."""

from __future__ import annotations

from collections.abc import Iterator

from multi_agent_mcp.domain.task import Task
from multi_agent_mcp.services.turn.reading import Query
from multi_agent_mcp.wiring import Services
from tests.crash.invariants import mail
from tests.crash.operations.judging import whole
from tests.crash.stage import Aftermath, Deed, Facts, Operation


def with_work(services: Services) -> Facts:
    """A task that worker-a works on."""
    task = services.task_creation.send(services.agents.get("admin"), "worker-a", "Build", "the house").task
    services.task_changes.start(services.agents.get("worker-a"), task.id)
    services.reading.read(services.agents.get("worker-a"), Query())
    return {"task_id": task.id}


def task(after: Aftermath) -> Task:
    return after.services.task_changes.get(after.told["task_id"])


def count(after: Aftermath, agent_id: str, message_type: str) -> int:
    return sum(message.message_type == message_type for message in mail(after.services, agent_id))


def report_progress(deed: Deed) -> None:
    answer = deed.seat("worker-a").call("report_task_progress", task_id=deed.told["task_id"], progress=40)
    deed.acknowledge(answer)


def progress_reported(after: Aftermath) -> Iterator[str]:
    yield from whole(after, report=count(after, "admin", "task_progress"))


def report_completion(deed: Deed) -> None:
    """The worker takes its task up, which opens the execution, and reports its end."""
    deed.seat("worker-a").call("get_next_action")
    arguments = {"task_id": deed.told["task_id"], "status": "completed", "message": "built"}
    deed.acknowledge(deed.seat("worker-a").call("report_task_completion", **arguments))


def completion_reported(after: Aftermath) -> Iterator[str]:
    runs, _ = after.services.executions.history("worker-a")
    yield from whole(
        after,
        report=count(after, "admin", "task_complete"),
        ended=int(task(after).reported_at is not None),
        execution=sum(run.status == "completed" for run in runs),
    )
    if any(run.running for run in runs):
        yield "an execution of a dead session still runs"


def with_reports(services: Services) -> Facts:
    facts = with_work(services)
    worker = services.agents.get("worker-a")
    services.task_reports.report_progress(worker, facts["task_id"], 40)
    services.task_reports.report_completion(worker, facts["task_id"], "completed", "built")
    return facts


def read_reports(deed: Deed) -> None:
    deed.acknowledge(deed.seat("admin").call("read_messages"))


def reports_applied(after: Aftermath) -> Iterator[str]:
    """The reader died without confirming: its mail is unread again, and reading it once more applies nothing twice."""
    admin = after.services.agents.get("admin")
    again = after.services.reading.read(admin, Query(whole=True))
    types = [message["message_type"] for message in again["messages"]]
    if types.count("task_progress") != 1 or types.count("task_complete") != 1:
        yield f"the reports are not handed out again, but {types}"
    found = task(after)
    applied = [entry["message_id"] for entry in found.history if "message_id" in entry]
    if found.status != "done" or found.progress != 100:
        yield f"the reports were not applied: {found.status} {found.progress}"
    if len(set(applied)) != 2 or sum("progress" in entry for entry in found.history) != 1:
        yield f"applied more than once: {found.history}"


def complete(deed: Deed) -> None:
    deed.acknowledge(deed.seat("worker-a").call("report_completed", result="success", summary="built"))


def completed(after: Aftermath) -> Iterator[str]:
    runs, _ = after.services.executions.history("worker-a")
    yield from whole(
        after,
        task=int(task(after).status == "done"),
        told=count(after, "admin", "task_complete"),
        execution=sum(run.status == "completed" for run in runs),
    )
    if any(run.running for run in runs):
        yield "an execution of a dead session still runs"


def hand_over(deed: Deed) -> None:
    deed.acknowledge(deed.seat("owner").call("send_task", agent_id="admin", title="Plan", content="the house"))


def handed_over(after: Aftermath) -> Iterator[str]:
    wait = after.services.owner_waits.of("owner")
    tasks = after.services.workspace.tasks.all("admin")
    yield from whole(after, task=len(tasks), message=count(after, "admin", "task_assign"), wait=int(wait is not None))


def with_an_answer(services: Services) -> Facts:
    owner, admin = services.agents.get("owner"), services.agents.get("admin")
    task_id = services.task_creation.send(owner, "admin", "Plan", "the house").task.id
    services.task_reports.report_progress(admin, task_id, 10)
    return {"task_id": task_id}


def hear(deed: Deed) -> None:
    deed.acknowledge(deed.seat("owner").call("read_messages"))


def heard(after: Aftermath) -> Iterator[str]:
    """The Owner's next server is handed the answer again, and is then free."""
    answer = after.services.reading.read(after.services.agents.get("owner"), Query())
    if [message["message_type"] for message in answer["messages"]] != ["task_progress"]:
        yield f"the answer is not handed out again: {answer['messages']}"
    if after.services.owner_waits.of("owner") is not None:
        yield "the Owner still waits for an answer that was read"


def hear_in_terminal(deed: Deed) -> None:
    reading = deed.services.reading
    handover = reading.select(deed.services.agents.get("owner"), Query(whole=True, polling=False))
    deed.acknowledge(reading.preview(handover))
    reading.complete(handover)


def free(after: Aftermath) -> Iterator[str]:
    """Yields a complaint when an Owner who has read the answer is still waiting for it."""
    unread = [message for _, message in after.services.workspace.mailbox("owner").unread(fresh=True)]
    if not unread and after.services.owner_waits.of("owner") is not None:
        yield "the Owner waits for an answer that was read"


def unlock(deed: Deed) -> None:
    deed.acknowledge(deed.seat("owner").call("unlock_owner_wait", reason="enough"))


def unlocked(after: Aftermath) -> Iterator[str]:
    if after.answer is not None and after.services.owner_waits.of("owner") is not None:
        yield "acknowledged, and the lock is still there"


WORKER = (("worker-a", "task"),)
OWNER = (("owner", "task"),)

OPERATIONS = (
    Operation("report_task_progress", report_progress, progress_reported, with_work, WORKER),
    Operation("report_task_completion", report_completion, completion_reported, with_work, WORKER),
    Operation("read_reports", read_reports, reports_applied, with_reports, (("admin", "task"),)),
    Operation("report_completed", complete, completed, with_work, WORKER),
    Operation("send_task", hand_over, handed_over, seats=OWNER),
    Operation("read_awaited_answer", hear, heard, with_an_answer, OWNER),
    Operation("cli_read_awaited_answer", hear_in_terminal, free, with_an_answer),
    Operation("unlock_owner_wait", unlock, unlocked, with_an_answer, OWNER),
)
