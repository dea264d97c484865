"""Tasks: made, handed over, moved, requested, approved (docs/protocol.md, Tasks, Requests, Interrupts)."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.history import Change
from multi_agent_mcp.domain.task import TASK_STATUSES, TRANSITIONS, Task
from multi_agent_mcp.errors import (
    AgentNotFound,
    InvalidArguments,
    InvalidId,
    InvalidStatusTransition,
    NotProven,
    Refusal,
    TaskNotFound,
    Unauthorized,
)
from multi_agent_mcp.features import Feature, Features
from multi_agent_mcp.services.operations import Operations, Run
from multi_agent_mcp.services.tasks.board import NewTask
from multi_agent_mcp.services.tasks.changes import MoveTask, TaskChanges
from multi_agent_mcp.wiring import Services
from tests.conftest import Clock
from tests.services.tasks_support import UNKNOWN, again, forked, moved, new, notices, path_of, running, snapshot

WAYS: dict[str, tuple[str, ...]] = {
    "backlog": ("backlog",),
    "todo": (),
    "in_progress": ("in_progress",),
    "blocked": ("blocked",),
    "review": ("in_progress", "review"),
    "done": ("in_progress", "done"),
    "cancelled": ("cancelled",),
}
"""Status → the steps by which the assignee moves a task from `todo` to it."""


@pytest.mark.parametrize("status", TASK_STATUSES)
@pytest.mark.parametrize("target", TASK_STATUSES)
def test_every_move_is_allowed_or_refused_by_the_table_and_the_allowed_ones_are_named(
    services: Services, worker_a: Agent, status: str, target: str
) -> None:
    task = moved(services, new(services), *WAYS[status])
    assert task.status == status
    if (status, target) == ("review", "done"):
        with pytest.raises(NotProven):  # that is a reviewer's decision
            services.task_changes.set_status(worker_a, task.id, target)
    elif target in TRANSITIONS[status]:
        after, previous = services.task_changes.set_status(worker_a, task.id, target)
        assert (after.status, previous) == (target, status)
        assert again(services, task) == after
    else:
        with pytest.raises(InvalidStatusTransition) as refused:
            services.task_changes.set_status(worker_a, task.id, target)
        assert refused.value.values["allowed"] == (", ".join(TRANSITIONS[status]) or "-")
        assert again(services, task) == task


def test_an_unknown_status_names_the_known_ones(services: Services, worker_a: Agent) -> None:
    task = new(services)
    with pytest.raises(InvalidArguments) as refused:
        services.task_changes.set_status(worker_a, task.id, "sleeping")
    assert all(status in refused.value.values["allowed"] for status in TASK_STATUSES)


@pytest.mark.parametrize(
    ("task_id", "refusal"),
    [(UNKNOWN, TaskNotFound), ("../../agents", InvalidId), ("exec_000000000000", InvalidId), ("", InvalidId)],
)
def test_an_id_of_no_task_is_refused_everywhere(
    services: Services, owner: Agent, task_id: str, refusal: type[Refusal]
) -> None:
    board = services.task_changes
    before = snapshot(services)
    attempts: list[Any] = [
        lambda: board.get(task_id),
        lambda: board.set_status(owner, task_id, "blocked"),
        lambda: board.assign(owner, task_id, "worker-a"),
        lambda: services.task_changes.decide(owner, task_id, approve=True),
        lambda: services.interrupting.interrupt(owner, "worker-a", "cancel", task_id, None),
        lambda: services.task_creation.create(owner, [NewTask(title="child")], task_id),
    ]
    for attempt in attempts:
        with pytest.raises(refusal):
            attempt()
    assert snapshot(services) == before


@pytest.mark.parametrize("agent_id", ["worker-a", "admin", "owner"])
def test_the_assignee_the_creator_and_superiors_of_the_assignee_may_move_and_hand_over(
    services: Services, agent_id: str
) -> None:
    task = new(services, by="admin")
    actor = services.agents.get(agent_id)
    assert services.task_changes.set_status(actor, task.id, "blocked")[0].status_changed_by == agent_id
    assert services.task_changes.assign(actor, task.id, None)[0].assignee_id is None


def test_a_task_of_nobody_is_given_out_by_superiors_of_its_creator_and_by_no_one_else(services: Services) -> None:
    task = new(services, by="admin", assignee_id=None)
    for agent_id in ("worker-a", "worker-b"):
        with pytest.raises(Unauthorized):
            services.task_changes.set_status(services.agents.get(agent_id), task.id, "cancelled")
    assert services.task_changes.assign(services.agents.get("owner"), task.id, "worker-a")[0].assignee_id == "worker-a"


def test_a_colleague_may_neither_move_nor_hand_over_nor_add_a_part(services: Services, worker_b: Agent) -> None:
    task = new(services)
    before = snapshot(services)
    with pytest.raises(Unauthorized):
        services.task_changes.set_status(worker_b, task.id, "in_progress")
    with pytest.raises(Unauthorized):
        services.task_changes.assign(worker_b, task.id, "worker-b")
    with pytest.raises(Unauthorized):
        services.task_creation.create(worker_b, [NewTask(title="part")], task.id)
    assert snapshot(services) == before


def test_work_is_not_handed_up(services: Services, admin: Agent, worker_a: Agent) -> None:
    task = new(services, by="worker-a")
    for superior in ("admin", "owner"):
        with pytest.raises(Unauthorized):
            services.task_changes.assign(worker_a, task.id, superior)
    with pytest.raises(Unauthorized):
        services.task_creation.create(admin, [NewTask(title="up", assignee_id="owner")])
    with pytest.raises(AgentNotFound):
        services.task_changes.assign(admin, task.id, "nobody")


class TestStarting:
    """The preconditions of `in_progress`; each refusal names the missing one."""

    def refusal(self, services: Services, task: Task) -> str:
        before = snapshot(services)
        with pytest.raises(InvalidStatusTransition) as refused:
            services.task_changes.set_status(services.agents.get(task.assignee_id or "admin"), task.id, "in_progress")
        assert snapshot(services) == before
        return services.texts.sentence(refused.value)

    def test_an_assignee(self, services: Services, admin: Agent) -> None:
        task = new(services, assignee_id=None)
        services.task_changes.set_status(admin, task.id, "todo")
        assert "no assignee" in self.refusal(services, task)

    def test_dependencies_that_are_all_done(self, services: Services) -> None:
        first = new(services, "first")
        second = moved(services, new(services, "second"), "cancelled")
        task = new(services, "third", dependencies=(first.id, second.id))
        said = self.refusal(services, task)
        assert first.id in said
        assert second.id in said
        moved(services, first, "in_progress", "done")
        assert first.id not in self.refusal(services, task)

    @pytest.mark.parametrize("written", ["status: done", "status: 'done'"])
    def test_dependencies_that_somebody_has_finished_by_hand_count(self, services: Services, written: str) -> None:
        first = new(services, "first", "worker-b")
        second = new(services, "second", dependencies=(first.id,))
        assert services.task_changes.startable("worker-a") == []
        path = path_of(services, first)
        path.with_suffix(".new").write_text(path.read_text().replace("status: todo", written))
        path.with_suffix(".new").replace(path)
        assert services.task_changes.startable("worker-a") == [second]

    def test_dependencies_that_have_been_done_let_it_begin(self, services: Services) -> None:
        first = moved(services, new(services, "first"), "in_progress", "done")
        assert running(services, "second", dependencies=(first.id,)).status == "in_progress"

    def test_an_approved_request(self, services: Services, worker_a: Agent) -> None:
        task, _ = services.task_creation.request(worker_a, NewTask(title="mine"))
        services.task_changes.set_status(worker_a, task.id, "todo")
        assert "not approved (pending)" in self.refusal(services, task)


class TestHandingOver:
    """`assign_task`."""

    def test_the_file_moves_with_the_task(self, services: Services, admin: Agent) -> None:
        task = new(services, assignee_id=None)
        for assignee, status in (("worker-a", "backlog"), ("worker-b", "backlog"), (None, "backlog")):
            before = again(services, task)
            after, previous = services.task_changes.assign(admin, task.id, assignee)
            assert (after.assignee_id, previous, after.status) == (assignee, before.assignee_id, status)
            assert path_of(services, after).is_file()
            if before.assignee_id != assignee:
                assert not path_of(services, before).exists()

    def test_work_that_had_begun_waits_again(self, services: Services, admin: Agent) -> None:
        task = running(services)
        after, _ = services.task_changes.assign(admin, task.id, "worker-b")
        assert (after.status, after.assignee_id) == ("todo", "worker-b")
        assert [entry.get("status") for entry in after.history][-2:] == [["in_progress", "todo"], None]
        assert after.history[-1]["assignee_id"] == ["worker-a", "worker-b"]

    def test_to_whom_has_it_already_nothing_changes(self, services: Services, admin: Agent) -> None:
        task = running(services)
        assert services.task_changes.assign(admin, task.id, "worker-a") == (task, "worker-a")

    @pytest.mark.parametrize("status", ["done", "cancelled"])
    def test_what_is_over_stays_where_it_is(self, services: Services, admin: Agent, status: str) -> None:
        task = moved(services, new(services), *WAYS[status])
        with pytest.raises(InvalidStatusTransition):
            services.task_changes.assign(admin, task.id, "worker-b")

    def test_the_new_assignee_of_a_blocked_task_is_not_interrupted_in_other_work(
        self, services: Services, admin: Agent
    ) -> None:
        task = running(services)
        services.task_changes.set_status(admin, task.id, "blocked")
        services.task_changes.assign(admin, task.id, "worker-b")
        services.notifications.refresh("worker-b", "task")
        assert notices(services, "worker-b") == []
        assert [notice.task_id for notice in notices(services, "worker-a")] == [task.id]


class TestBlocking:
    """The interrupt that comes with `blocked` and `cancelled`."""

    @pytest.mark.parametrize(
        ("status", "action", "message"),
        [
            ("blocked", "blocked", "The task's status was changed to blocked"),
            ("cancelled", "cancel", "The task's status was changed to cancelled"),
        ],
    )
    def test_who_is_stopped_by_somebody_else_is_interrupted(
        self, services: Services, owner: Agent, status: str, action: str, message: str
    ) -> None:
        task = running(services)
        after, _ = services.task_changes.set_status(owner, task.id, status, "new plan")
        (notice,) = notices(services, "worker-a")
        assert (after.interrupt_id, notice.message) == (notice.id, message)
        assert (notice.type, notice.action, notice.task_id, notice.target_purpose) == (
            "interrupt",
            action,
            task.id,
            "task",
        )
        assert notice.created_at == after.status_changed_at
        assert after.blocked_reason == ("new plan" if status == "blocked" else None)

    @pytest.mark.parametrize("status", ["blocked", "cancelled"])
    def test_who_stops_is_not_interrupted(self, services: Services, worker_a: Agent, status: str) -> None:
        task = running(services)
        after, _ = services.task_changes.set_status(worker_a, task.id, status)
        assert after.interrupt_id is None
        assert notices(services, "worker-a") == []

    def test_nobody_is_interrupted_about_a_task_of_nobody(self, services: Services, admin: Agent) -> None:
        task = new(services, assignee_id=None)
        services.task_changes.set_status(admin, task.id, "todo")
        assert services.task_changes.set_status(admin, task.id, "blocked")[0].interrupt_id is None

    def test_blocking_a_parent_blocks_its_open_parts_at_every_depth_and_interrupts_who_works_on_one(
        self, services: Services, owner: Agent
    ) -> None:
        top = new(services, "top", "admin", by="owner")
        part = running(services, "part", "worker-a", parent=top.id)
        waiting = new(services, "waiting part", "worker-b", parent=top.id)
        deep = running(services, "deep", "worker-b", parent=part.id)
        deeper = new(services, "deeper", "worker-a", parent=deep.id)
        untouched = [
            new(services, "later", None, parent=top.id),
            moved(services, new(services, "finished", parent=part.id), "in_progress", "done"),
            moved(services, new(services, "given up", parent=part.id), "cancelled"),
            running(services, "no part of it"),
        ]
        services.task_changes.set_status(owner, top.id, "blocked", "stop")
        blocked = [again(services, task) for task in (top, part, waiting, deep, deeper)]
        assert {(task.status, task.blocked_reason, task.status_changed_by) for task in blocked} == {
            ("blocked", "stop", "owner")
        }
        assert [again(services, task) for task in untouched] == untouched
        stopped = {
            agent_id: {notice.task_id for notice in notices(services, agent_id)}
            for agent_id in ("owner", "admin", "worker-a", "worker-b")
        }
        assert stopped == {
            "owner": set(),
            "admin": set(),  # nobody has begun the parent, and nobody has read of it
            "worker-a": {part.id},
            "worker-b": {deep.id},
        }

    def test_parts_that_are_their_own_ancestors_end_the_cascade_all_the_same(
        self, services: Services, owner: Agent
    ) -> None:
        top = new(services, "top")
        part = new(services, "part", "worker-b", parent=top.id)
        services.workspace.tasks.update(top.id, lambda found: replace(found, parent_task_id=part.id))
        services.task_changes.set_status(owner, top.id, "blocked")
        assert [again(services, task).status for task in (top, part)] == ["blocked", "blocked"]

    def test_a_part_that_is_finished_meanwhile_does_not_keep_the_parent_from_being_blocked(
        self, services: Services, owner: Agent, worker_b: Agent
    ) -> None:
        top = new(services, "top")
        part = running(services, "part", "worker-b", parent=top.id)

        class Late(TaskChanges):
            """Makes worker-b finish the subtask just before the block is applied."""

            def apply_move(self, operation: MoveTask, run: Run) -> tuple[Task, str]:
                services.task_changes.set_status(worker_b, part.id, "done")
                return super().apply_move(operation, run)

        asked = services.task_changes
        given = {each.name: getattr(asked, each.name) for each in fields(asked) if each.init}
        made: list[Late] = []
        names = Features((Feature("late", operations=("late",)),))
        alone = replace(services.session, features=names)
        alone.contributions.service = lambda _: made[0]
        made.append(late := Late(**given | {"operations": Operations(alone)}))
        assert late.set_status(owner, top.id, "blocked")[0].status == "blocked"
        assert again(services, part).status == "done"
        assert notices(services, "worker-b") == []

    def test_a_block_that_is_refused_blocks_no_part(self, services: Services, owner: Agent) -> None:
        top = moved(services, new(services, "top"), "in_progress", "done")
        part = new(services, "part", "worker-b", parent=top.id)
        with pytest.raises(InvalidStatusTransition):
            services.task_changes.set_status(owner, top.id, "blocked")
        assert again(services, part) == part

    def test_a_block_from_a_chat_reaches_the_parts_too(self, services: Services, clock: Clock) -> None:
        top = running(services, "top", "worker-a")
        part = running(services, "part", "worker-b", parent=top.id)
        change = Change(by="admin", at=clock(), reason="stop", requester_id="owner")
        services.task_changes.edit(top.id, {"status": "blocked"}, change)
        assert [again(services, task).status for task in (top, part)] == ["blocked", "blocked"]
        assert [notice.task_id for notice in notices(services, "worker-b")] == [part.id]


class TestInterruptCommand:
    """`interrupt AGENT`."""

    @pytest.mark.parametrize(("action", "status"), [("blocked", "blocked"), ("cancel", "cancelled")])
    def test_it_stops_what_the_agent_works_on(self, services: Services, owner: Agent, action: str, status: str) -> None:
        running(services, "small", priority="low")
        task = running(services, "big", priority="high")
        notice = services.interrupting.interrupt(owner, "worker-a", action, None, "stop")
        assert notice is not None
        assert (notice.action, notice.task_id) == (action, task.id)
        assert again(services, task).status == status
        assert [item.id for item in notices(services, "worker-a")] == [notice.id]

    def test_a_pause_leaves_the_task_as_it_is(self, services: Services, admin: Agent) -> None:
        task = running(services)
        notice = services.interrupting.interrupt(admin, "worker-a", "pause", None, None)
        assert notice is not None
        assert (notice.action, notice.task_id) == ("pause", task.id)
        assert again(services, task) == task

    @pytest.mark.parametrize("action", ["blocked", "cancel", "pause"])
    def test_an_agent_without_work_is_interrupted_all_the_same(
        self, services: Services, owner: Agent, action: str
    ) -> None:
        notice = services.interrupting.interrupt(owner, "worker-a", action, None, None)
        assert notice is not None
        assert (notice.action, notice.task_id, notice.type) == (action, None, "interrupt")
        assert [item.id for item in notices(services, "worker-a")] == [notice.id]

    @pytest.mark.parametrize("agent_id", ["worker-a", "worker-b"])
    @pytest.mark.parametrize("action", ["blocked", "cancel", "pause"])
    def test_only_a_superior_or_the_owner_may(self, services: Services, agent_id: str, action: str) -> None:
        running(services)
        before = snapshot(services)
        with pytest.raises(Unauthorized):
            services.interrupting.interrupt(services.agents.get(agent_id), "worker-a", action, None, None)
        assert snapshot(services) == before

    def test_a_task_of_somebody_else_is_not_stopped_by_mistake(self, services: Services, owner: Agent) -> None:
        task = running(services, assignee_id="worker-b")
        with pytest.raises(InvalidArguments):
            services.interrupting.interrupt(owner, "worker-a", "blocked", task.id, None)
        with pytest.raises(AgentNotFound):
            services.interrupting.interrupt(owner, "nobody", "pause", None, None)
        assert again(services, task) == task


class TestLists:
    """`get_my_tasks`."""

    def test_open_ones_come_first_and_finished_ones_are_counted(self, services: Services) -> None:
        done = [moved(services, new(services, f"done {number}"), "in_progress", "done") for number in range(3)]
        low, high = new(services, "low", priority="low"), new(services, "high", priority="high")
        current = running(services, "current")
        new(services, "not mine", "worker-b")
        tasks, total = services.board.of("worker-a", None, 20)
        assert [task.id for task in tasks[:3]] == [current.id, high.id, low.id]
        assert {task.id for task in tasks[3:]} == {task.id for task in done}
        assert total == 6
        assert [task.id for task in services.board.of("worker-a", None, 2)[0]] == [current.id, high.id]
        assert services.board.of("worker-a", None, 4)[1] == 6
        assert services.board.of("worker-a", "done", 2)[1] == 3
        assert {task.status for task in services.board.of("worker-a", "done", 2)[0]} == {"done"}
        assert services.board.of("worker-a", "todo", 20) == ([high, low], 2)
        with pytest.raises(InvalidArguments):
            services.board.of("worker-a", "sleeping", 20)

    def test_a_cancelled_task_is_counted_once_with_and_without_an_interrupt(
        self, services: Services, owner: Agent, worker_a: Agent
    ) -> None:
        interrupted, _ = services.task_changes.set_status(owner, new(services).id, "cancelled")
        given_up, _ = services.task_changes.set_status(worker_a, new(services).id, "cancelled")
        tasks, total = services.board.of("worker-a", "cancelled", 20)
        assert ({task.id for task in tasks}, total) == ({interrupted.id, given_up.id}, 2)

    @pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00", b"---\nstatus: [\n---\n\n", b"no front matter"])
    def test_a_corrupt_task_file_empties_no_list(self, services: Services, content: bytes) -> None:
        task = new(services)
        (path_of(services, task).parent / "tsk_00000000dead.md").write_bytes(content)
        assert services.board.of("worker-a", None, 20) == ([task], 1)
        assert services.workspace.tasks.all() == [task]
        assert services.task_changes.startable("worker-a") == [task]


def test_an_edit_without_a_new_status_is_in_the_history_with_who_asked_for_it(
    services: Services, worker_a: Agent, clock: Clock
) -> None:
    task = moved(services, new(services), "blocked")
    change = Change(by="worker-a", at=clock.advance(5), reason="no key", requester_id="admin")
    after, _ = services.task_changes.edit(task.id, {}, change)
    assert after.blocked_reason == "no key"
    assert after.history[-1]["requester_id"] == "admin"
    assert after.updated_at == clock()


@pytest.mark.parametrize("updates", [{"title": " "}, {"priority": "loud"}, {"status": "sleeping"}, {"status": "done"}])
def test_an_edit_is_made_as_a_whole_or_not_at_all(
    services: Services, worker_a: Agent, clock: Clock, updates: dict[str, str]
) -> None:
    task = new(services)
    change = Change(by="worker-a", at=clock())
    with pytest.raises(Refusal):
        services.task_changes.edit(task.id, {"description": "new", **updates}, change)
    assert again(services, task) == task


def test_of_those_who_finish_a_task_at_once_one_wins_and_the_others_are_told(services: Services, root: Path) -> None:
    task = running(services)
    told = forked("finish", root, "6", task.id)
    assert sorted(told) == ["done", *["invalid_status_transition"] * 5]
    after = again(services, task)
    assert [entry.get("status") for entry in after.history].count(["in_progress", "done"]) == 1


def test_eight_processes_claiming_forty_tasks_win_each_of_them_once(services: Services, root: Path) -> None:
    tasks = services.task_creation.create(
        services.agents.get("admin"), [NewTask(title=f"{n}", assignee_id="worker-a") for n in range(40)]
    )
    won = forked("claim", root, "8", *(task.id for task in tasks))
    assert sorted(won) == sorted(task.id for task in tasks)
    assert {task.status for task in services.workspace.tasks.all("worker-a")} == {"in_progress"}


def test_who_loses_a_task_that_runs_is_told_and_not_interrupted(services: Services) -> None:
    task = running(services)
    services.task_changes.assign(services.agents.get("admin"), task.id, "worker-b")
    pending = services.notifications.refresh("worker-a", "task")
    (notice,) = services.notifications.read("worker-a", "task")
    assert pending.some
    assert not pending.interrupts
    assert (notice["type"], notice["task_id"]) == ("status_change", task.id)
    assert [notice["action"] for notice in services.notifications.read("worker-b", "task")] == ["task_assigned"]
