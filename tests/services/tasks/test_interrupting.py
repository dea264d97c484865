"""Interrupting an agent with a reason, and letting it go on (docs/protocol.md, Interrupts)."""

from __future__ import annotations

import pytest

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.errors import AgentNotFound, InvalidStatusTransition, Refusal, Unauthorized
from multi_agent_mcp.services.tasks.interrupting import ResumeAgent
from multi_agent_mcp.wiring import Services
from tests.conftest import Clock
from tests.services import forks
from tests.services.tasks_support import (
    again,
    forked,
    mailed,
    moved,
    new,
    notices,
    open_session,
    running,
    shown,
    snapshot,
)


@pytest.mark.parametrize("action", ["blocked", "cancel", "pause"])
@pytest.mark.parametrize("working", [True, False])
def test_the_agent_reads_why_it_is_stopped(services: Services, owner: Agent, action: str, *, working: bool) -> None:
    if working:
        running(services)
    services.interrupting.interrupt(owner, "worker-a", action, None, "the plan has changed")
    (notice,) = notices(services, "worker-a")
    assert (notice.sender_id, notice.reason) == ("owner", "the plan has changed")
    (seen,) = shown(services, "worker-a")
    assert (seen["action"], seen["reason"]) == (action, "the plan has changed")
    (mark,) = services.timeline.of().marks
    assert (mark.by, mark.reason) == ("owner", "the plan has changed")


@pytest.mark.parametrize("reason", [None, "", " \n"])
@pytest.mark.parametrize("action", ["blocked", "pause"])
def test_without_a_reason_none_is_shown(services: Services, owner: Agent, action: str, reason: str | None) -> None:
    task = running(services)
    services.interrupting.interrupt(owner, "worker-a", action, None, reason)
    (seen,) = shown(services, "worker-a")
    assert "reason" not in seen
    (mark,) = services.timeline.of().marks
    assert mark.reason is None
    assert again(services, task).blocked_reason is None


@pytest.mark.parametrize("action", ["blocked", "pause"])
def test_a_reason_that_is_too_long_to_be_shown_says_so(services: Services, owner: Agent, action: str) -> None:
    running(services)
    services.interrupting.interrupt(owner, "worker-a", action, None, "why " * 1_000)
    (seen,) = shown(services, "worker-a")
    assert seen["reason"].startswith("why why ")
    assert seen["reason"].endswith("… (4000)")


def test_of_all_who_end_a_pause_at_once_one_does(services: Services, owner: Agent) -> None:
    for _ in range(2):
        services.interrupting.interrupt(owner, "worker-a", "pause", None, None)
        said = forked("resume", services.root, "8")
        (resumed,) = [word for word in said if word != "invalid_status_transition"]
        assert len(said) == 8
        assert [notice.id for notice in notices(services, "worker-a")] == [resumed]


def test_who_decided_to_end_a_pause_that_is_over_ends_nothing(
    services: Services, owner: Agent, admin: Agent, clock: Clock
) -> None:
    pause = services.interrupting.interrupt(owner, "worker-a", "pause", None, None)
    assert pause is not None
    late = services.interrupts.resumption(pause, admin.id)
    clock.advance(1)
    resumed = services.interrupting.resume(owner, "worker-a")
    services.notifications.read("worker-a", "task")
    with pytest.raises(InvalidStatusTransition):
        services.operations.run(ResumeAgent(notice=late))
    assert services.operations.finish() == 0
    assert notices(services, "worker-a") == []
    assert late.id == resumed.id


@pytest.mark.parametrize("was_read", [True, False])
def test_resuming_tells_the_agent_and_ends_its_pauses(services: Services, owner: Agent, *, was_read: bool) -> None:
    task = running(services)
    for _ in range(2):
        services.interrupting.interrupt(owner, "worker-a", "pause", None, "lunch")
    if was_read:
        assert len(services.notifications.read("worker-a", "task")) == 2
    resumed = services.interrupting.resume(owner, "worker-a")
    assert (resumed.type, resumed.action, resumed.sender_id, resumed.task_id) == (
        "status_change", "resume", "owner", task.id,
    )  # fmt: skip
    assert [notice.id for notice in notices(services, "worker-a")] == [resumed.id]
    assert not services.notifications.refresh("worker-a", "task").interrupts
    assert [notice["action"] for notice in services.notifications.read("worker-a", "task")] == ["resume"]


def test_a_pause_after_that_is_a_pause_again(services: Services, owner: Agent) -> None:
    for _ in range(3):
        services.interrupting.interrupt(owner, "worker-a", "pause", None, None)
        assert [notice["action"] for notice in shown(services, "worker-a")] == ["pause"]
        assert services.snapshots.agents()[2].pause is not None
        services.interrupting.resume(owner, "worker-a")
        assert [notice["action"] for notice in shown(services, "worker-a")] == ["resume"]
        assert services.snapshots.agents()[2].pause is None


def test_only_who_is_paused_can_go_on(services: Services, owner: Agent, worker_a: Agent) -> None:
    def refuses(actor: Agent, agent_id: str, error: type[Refusal]) -> None:
        before = snapshot(services)
        with pytest.raises(error):
            services.interrupting.resume(actor, agent_id)
        assert snapshot(services) == before

    task = running(services)
    refuses(owner, "worker-a", InvalidStatusTransition)
    refuses(owner, "nobody", AgentNotFound)
    services.interrupting.interrupt(owner, "worker-a", "pause", None, None)
    for agent_id in ("worker-a", "worker-b"):
        refuses(services.agents.get(agent_id), "worker-a", Unauthorized)
    services.task_changes.set_status(worker_a, task.id, "done")
    services.interrupting.resume(owner, "worker-a")
    refuses(owner, "worker-a", InvalidStatusTransition)


@pytest.mark.parametrize("was_read", [False, True])
@pytest.mark.parametrize("path", [["cancelled"], ["blocked", "cancelled"], ["blocked", "todo"]])
def test_a_pause_ends_by_nothing_but_resume(
    services: Services, owner: Agent, admin: Agent, clock: Clock, path: list[str], *, was_read: bool
) -> None:
    task, session = running(services), open_session(services, "worker-a")
    new(services, "next")
    services.interrupting.interrupt(owner, "worker-a", "pause", None, None)
    if was_read:
        services.notifications.read("worker-a", "task")
    for status in path:
        clock.advance(1)
        services.task_changes.set_status(admin, task.id, status)
    worker = services.agents.get("worker-a")
    assert services.next_action.next_action(worker, session)["action"] == "wait"
    services.notifications.read("worker-a", "task")
    assert forks.context(services.workspace.root).next_action.next_action(worker, session)["action"] == "wait"
    services.interrupting.resume(owner, "worker-a")
    assert services.next_action.next_action(worker, session)["action"] == "work"


def test_a_pause_that_is_handed_out_again_after_a_death_is_over_all_the_same(services: Services, owner: Agent) -> None:
    services.interrupting.interrupt(owner, "worker-a", "pause", None, None)
    session = open_session(services, "worker-a")
    ((name, _),) = services.workspace.notices("worker-a").unread()
    session.lease((services.workspace.notices("worker-a").reference(name),))
    services.notifications.read("worker-a", "task")
    services.interrupting.resume(owner, "worker-a")
    services.workspace.notices("worker-a").mark_read([name], None)  # its reader died
    assert [notice["action"] for notice in shown(services, "worker-a")] == ["resume"]


def test_reopening_a_task_ends_the_blocks_before_it(services: Services, owner: Agent, clock: Clock) -> None:
    task = moved(services, mailed(services), "in_progress")
    for status in ("blocked", "in_progress"):
        clock.advance(1)
        services.task_changes.set_status(owner, task.id, status, "first")
    assert not any(notice.interrupts for notice in notices(services, "worker-a"))
    clock.advance(1)
    services.task_changes.set_status(owner, task.id, "blocked", "second")
    assert [notice.reason for notice in notices(services, "worker-a") if notice.interrupts] == ["second"]


def test_a_reason_that_cannot_be_stored_stops_nobody(services: Services, owner: Agent) -> None:
    new(services)
    before = snapshot(services)
    for action in ("pause", "blocked"):
        with pytest.raises(Refusal):
            services.interrupting.interrupt(owner, "worker-a", action, None, "\ud800")
    assert snapshot(services) == before


def test_the_interrupt_that_a_killed_process_left_out_says_why_too(services: Services, owner: Agent) -> None:
    services.task_changes.set_status(owner, running(services).id, "cancelled", "too dear")
    ((name, _),) = services.workspace.notices("worker-a").unread()
    path = services.workspace.notices("worker-a").path / name
    original = path.read_bytes()
    path.unlink()
    late = forks.context(services.workspace.root)
    assert late.notifications.refresh("worker-a", "task").interrupts
    assert path.read_bytes() == original
    assert b"reason: too dear" in original
