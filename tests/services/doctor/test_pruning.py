"""`prune` deletes only what is over, old and asked for."""

from __future__ import annotations

import os
import threading
from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.entity import new_id
from multi_agent_mcp.domain.proof import Receipt
from multi_agent_mcp.services.doctor.pruning import Prunable
from multi_agent_mcp.services.tasks.board import NewTask
from multi_agent_mcp.wiring import Services
from tests.conftest import Clock
from tests.services.support import read, send, unread
from tests.services.tasks_support import moved, running
from tests.store.support import confirm_read

MONTH = timedelta(days=30)
LATER = datetime.now(UTC) + timedelta(days=900)


def prunable(services: Services, now: datetime = LATER) -> list[Prunable]:
    return list(services.pruning.prunable(now, MONTH))


def kinds(services: Services) -> Counter[str]:
    return Counter(item.kind for item in prunable(services))


def prune(services: Services) -> set[str]:
    """Prunes, and tells which files have gone."""
    before = _files(services)
    for item in services.pruning.prunable(LATER, MONTH):
        services.pruning.delete(item)
    return {str(path.relative_to(services.workspace.path)) for path in before - _files(services)}


def _files(services: Services) -> set[Path]:
    return {path for path in services.workspace.path.rglob("*") if path.is_file()}


@pytest.fixture
def lived_in(services: Services, owner: Agent, clock: Clock) -> Services:
    """A session with some of everything: archived, read and unread mail, tasks, sessions, a released lock."""
    send(services, "admin", "worker-a", "archived", idempotency_key="k")
    read(services, "worker-a")
    confirm_read(services.workspace.mailbox("worker-a"))
    clock.advance(1)
    send(services, "admin", "worker-a", "read")
    read(services, "worker-a")
    clock.advance(1)
    send(services, "admin", "worker-a", "unread")
    services.task_creation.send(owner, "admin", "Build", "x")
    services.owner_waits.release("owner")
    services.sessions.open("worker-a").end()
    services.sessions.open("worker-b")
    return services


def test_what_is_over_and_old_can_be_pruned_and_nothing_else(lived_in: Services) -> None:
    scratch = lived_in.workspace.path / ".tmp" / "1.abc.tmp"
    scratch.write_text("half writ")
    os.utime(scratch, (0, 0))
    lived_in.audit("start_task_from_chat")
    found = kinds(lived_in)
    assert found.pop("locks") > 5
    assert found == Counter({"claims": 1, "ipc": 2, "owner_wait": 1, "scratch": 1, "sessions": 1, "audit": 1})


def test_what_is_recent_is_not_prunable(lived_in: Services) -> None:
    assert prunable(lived_in, datetime.now(UTC)) == []


def test_pruning_looks_while_others_send(services: Services) -> None:
    """Their scratch files appear for a moment and may be gone by the time they are examined."""
    done, scratch = threading.Event(), services.workspace.files.scratch

    def sending() -> None:
        while not done.is_set():
            paths = [scratch / f"{number}.tmp" for number in range(200)]
            for path in paths:
                path.touch()
            for path in paths:
                path.unlink()

    sender = threading.Thread(target=sending)
    sender.start()
    try:
        for _ in range(100):
            assert [item for item in prunable(services) if item.kind == "scratch"] == []
    finally:
        done.set()
        sender.join()


def test_pruning_deletes_just_what_was_found(lived_in: Services) -> None:
    found = {item.name for item in prunable(lived_in)}
    assert prune(lived_in) == found
    assert prunable(lived_in) == []
    assert unread(lived_in, "worker-a") == 1
    assert len(lived_in.workspace.tasks.all()) == 1


def test_only_a_dry_run_believes_that_what_is_in_an_archive_is_over(lived_in: Services) -> None:
    inbox = lived_in.workspace.mailbox("worker-a")
    [(unread_name, _)] = inbox.unread()
    moved = next(inbox.path.glob("archive/*/")) / unread_name
    (inbox.path / unread_name).rename(moved)
    name = str(moved.relative_to(lived_in.workspace.path))
    quick = {item.name for item in lived_in.pruning.prunable(LATER, MONTH, reads_archives=False)}
    assert quick - {item.name for item in prunable(lived_in)} == {name}
    prune(lived_in)
    assert moved.exists()


def test_an_execution_goes_with_its_log_once_it_is_over(services: Services, owner: Agent) -> None:
    sessions = [services.sessions.open(agent_id, "task") for agent_id in ("worker-a", "worker-b")]
    over, running = (services.executions.begin(session.record, "tsk_0123456789ab") for session in sessions)
    services.executions.finish(over)
    gone = {name for name in prune(services) if name.startswith("executions/")}
    assert gone == {f"executions/worker-a/archive/2026-11/{over.id}.md", over.log_file_path}
    assert services.executions.read_log(running).total > 0


def test_a_conversation_goes_as_a_whole_and_its_delegation_before_it(services: Services, admin: Agent) -> None:
    session, worker = services.sessions.open("admin", "chat"), services.agents.get("worker-a")
    delegations = [services.delegations.delegate(admin, session.record, worker.id, "ask", None)[0] for _ in range(2)]
    started = [
        services.delegations.start_conversation(admin, session.record, worker.id, "hello", delegation_id=delegation.id)[
            0
        ]
        for delegation in delegations
    ]
    over, going_on = started
    services.conversations.end(admin, over.id)
    read(services, "worker-a")
    order = [item.name for item in prunable(services) if item.kind in ("conversations", "delegations")]
    assert order[0] == f"delegations/admin/archive/2026-11/{delegations[0].id}.md"
    assert order[-1] == f"conversations/archive/2026-11/{over.id}/conversation.md"
    prune(services)
    assert not (services.workspace.path / "conversations" / over.id).exists()
    assert [item.id for item in services.conversations.all()] == [going_on.id]
    assert services.delegations.unstarted("admin") == []


def test_a_lock_that_is_held_keeps_its_file(services: Services) -> None:
    locks = services.workspace.locks
    with locks.held("agents"):
        assert ".locks/agents.lock" in {item.name for item in prunable(services)}
        assert ".locks/agents.lock" not in prune(services)
        assert locks.is_held("agents")
    assert ".locks/agents.lock" in prune(services)


def test_a_finished_task_that_an_unfinished_one_waits_for_stays(services: Services, admin: Agent) -> None:
    first, second, third = services.task_creation.create(
        admin,
        [
            NewTask(title="Plan", local_id="plan", assignee_id="worker-a"),
            NewTask(title="Build", dependencies=["plan"]),
            NewTask(title="Rest", assignee_id="worker-a"),
        ],
    )
    for task in (first, third):
        services.task_changes.set_status(admin, task.id, "cancelled")
    archive(services, first.id, third.id)
    histories = [services.workspace.tasks.history_path(task.id) for task in (first, third)]
    for path in histories:
        services.workspace.files.append(path, "{}")
    found = [item.name for item in prunable(services) if item.kind in ("tasks", "histories")]
    assert found == [archived(third.id), f"tasks/_history/{third.id}.jsonl"]
    prune(services)
    assert [path.exists() for path in histories] == [True, False]
    assert second.dependencies == (first.id,)


def archived(task_id: str) -> str:
    return f"tasks/worker-a/archive/2026-11/{task_id}.md"


def archive(services: Services, *task_ids: str) -> None:
    base = services.workspace.path
    for task_id in task_ids:
        (base / archived(task_id)).parent.mkdir(parents=True, exist_ok=True)
        (base / "tasks" / "worker-a" / f"{task_id}.md").rename(base / archived(task_id))


@pytest.mark.parametrize(
    ("place", "text"),
    [
        ("ipc/worker-a/archive/2025-01/x.md", "---\nread_at: null\n---\n\nunread"),
        ("ipc/worker-a/archive/2025-01/x.md", "no header at all"),
        ("tasks/worker-a/archive/2025-01/tsk_0000000000ee.md", "---\nstatus: in_progress\n---\n"),
    ],
)
def test_what_somebody_put_into_an_archive_goes_only_if_it_says_that_it_is_over(
    services: Services, place: str, text: str
) -> None:
    path = services.path / place
    path.parent.mkdir(parents=True)
    path.write_text(text)
    os.utime(path, (0, 0))
    prune(services)
    assert path.exists()


def test_a_conversation_that_unread_mail_belongs_to_stays(services: Services, admin: Agent) -> None:
    conversation, _ = services.conversations.begin(admin, services.agents.get("worker-a"), "hello")
    services.conversations.end(admin, conversation.id, "bye")
    prune(services)
    assert services.conversations.get(conversation.id).status == "ended"
    read(services, "worker-a")
    prune(services)
    assert services.workspace.conversations.find(conversation.id) is None


def test_receipts_of_tasks_that_are_over_and_ended_reservations_can_be_pruned(services: Services) -> None:
    done, going = moved(services, running(services), "cancelled"), running(services)
    for task in (done, going):
        services.workspace.receipts.add(Receipt(id=new_id("rcp"), task_id=task.id, output="x"))
    ended, _ = services.reservations.reserve(services.agents.get("admin"), ["a"])
    services.reservations.reserve(services.agents.get("admin"), ["b"], minutes=60 * 24 * 365)
    services.reservations.release(services.agents.get("admin"), ended.id)
    found = [item for item in prunable(services) if item.kind in ("receipts", "reservations")]
    assert sorted((item.kind, done.id in item.name or ended.id in item.name) for item in found) == [
        ("receipts", True),
        ("reservations", True),
    ]
