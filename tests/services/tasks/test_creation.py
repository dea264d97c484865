"""New tasks: one, or a batch that is made as a whole (docs/protocol.md, Tasks)."""

from __future__ import annotations

import pytest

from multi_agent_mcp.domain.history import Change
from multi_agent_mcp.domain.task import UNASSIGNED, Task
from multi_agent_mcp.errors import AgentNotFound, InvalidArguments, InvalidId, Refusal, TaskNotFound, Unauthorized
from multi_agent_mcp.services.tasks.board import BATCH_MAX, NewTask
from multi_agent_mcp.wiring import Services
from tests.services.tasks_support import UNKNOWN, again, new, path_of, snapshot


class TestBatch:
    """`create_tasks_batch`: all of it or nothing."""

    def make(self, services: Services, *items: NewTask, parent: str | None = None) -> list[Task]:
        return services.task_creation.create(services.agents.get("admin"), items, parent)

    def test_local_ids_become_dependencies_and_assignees_decide_the_first_status(self, services: Services) -> None:
        old = new(services, "old")
        made = self.make(
            services,
            NewTask(title="roof", local_id="roof", dependencies=("walls", old.id, "walls"), assignee_id="worker-b"),
            NewTask(title="walls", local_id="walls", priority="urgent", description="four"),
        )
        roof, walls = made
        assert roof.dependencies == (walls.id, old.id)
        assert (roof.status, walls.status) == ("todo", "backlog")
        assert (walls.priority, walls.description, walls.created_by) == ("urgent", "four", "admin")
        assert [again(services, task) for task in made] == made
        assert path_of(services, roof).parent.name == "worker-b"
        assert path_of(services, walls).parent.name == UNASSIGNED

    def test_parts_know_their_parent(self, services: Services) -> None:
        parent = new(services, "house")
        (part,) = self.make(services, NewTask(title="roof"), parent=parent.id)
        assert part.parent_task_id == parent.id

    @pytest.mark.parametrize(
        ("bad", "refusal"),
        [
            (NewTask(title=" "), InvalidArguments),
            (NewTask(title="x" * 501), InvalidArguments),
            (NewTask(title="lonely \udc80"), InvalidArguments),
            (NewTask(title="bad", description="lonely \udc80"), InvalidArguments),
            (NewTask(title="bad", priority="loud"), InvalidArguments),
            (NewTask(title="bad", assignee_id="nobody"), AgentNotFound),
            (NewTask(title="bad", assignee_id="../x"), InvalidId),
            (NewTask(title="bad", assignee_id="owner"), Unauthorized),
            (NewTask(title="bad", dependencies=("no-such-local-id",)), TaskNotFound),
            (NewTask(title="bad", dependencies=(UNKNOWN,)), TaskNotFound),
            (NewTask(title="bad", dependencies=("../../agents",)), TaskNotFound),
            (NewTask(title="bad", local_id="good"), InvalidArguments),
            (NewTask(title="bad", local_id="bad", dependencies=("bad",)), InvalidArguments),
            (NewTask(title="bad", local_id="bad", dependencies=("waits",)), InvalidArguments),
        ],
    )
    def test_one_bad_item_leaves_nothing_behind(self, services: Services, bad: NewTask, refusal: type[Refusal]) -> None:
        before = snapshot(services)
        with pytest.raises(refusal):
            self.make(
                services,
                NewTask(title="good", local_id="good"),
                NewTask(title="waits", local_id="waits", dependencies=("bad" if bad.local_id == "bad" else "good",)),
                bad,
            )
        assert snapshot(services) == before

    @pytest.mark.parametrize("count", [0, BATCH_MAX + 1])
    def test_it_has_a_size(self, services: Services, count: int) -> None:
        with pytest.raises(InvalidArguments):
            self.make(services, *[NewTask(title="x")] * count)

    def test_local_ids_that_would_not_fit_into_the_answer_are_refused(self, services: Services) -> None:
        before = snapshot(services)
        with pytest.raises(InvalidArguments):
            self.make(services, *[NewTask(title="x", local_id=f"{number:0100}") for number in range(BATCH_MAX)])
        assert snapshot(services) == before

    def test_a_disk_that_refuses_halfway_leaves_nothing_behind(self, services: Services) -> None:
        partition = services.workspace.path / "tasks" / "worker-b"
        partition.parent.mkdir(exist_ok=True)
        partition.write_text("a file where a directory should be")
        before = snapshot(services)
        with pytest.raises(Refusal):
            self.make(services, NewTask(title="good"), NewTask(title="bad", assignee_id="worker-b"))
        assert snapshot(services) == before


@pytest.mark.parametrize("title", ["a\nb", "a\rb", "a\u2028b", "a\x85b", "a\vb", "a\n"])
def test_a_title_is_one_line(services: Services, title: str) -> None:
    task, before = new(services), snapshot(services)
    with pytest.raises(InvalidArguments):
        services.task_creation.create(services.agents.get("admin"), [NewTask(title=title)])
    with pytest.raises(InvalidArguments):
        services.task_changes.edit(task.id, {"title": title}, Change(by="admin", at=services.clock()))
    assert snapshot(services) == before
