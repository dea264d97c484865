"""Tasks that agents propose for themselves, and their superiors' word on them."""

from __future__ import annotations

import pytest

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.errors import InvalidStatusTransition, Unauthorized
from multi_agent_mcp.services.tasks.board import NewTask
from multi_agent_mcp.wiring import Services
from tests.services.tasks_support import again, inbox, moved, new


class TestRequests:
    """`request_task` and `approve_task_request`."""

    def test_a_request_waits_for_approval_and_the_nearest_superior_is_told(
        self, services: Services, worker_a: Agent
    ) -> None:
        task, approvers = services.task_creation.request(worker_a, NewTask(title="Tidy up", description="the attic"))
        assert approvers == ["admin", "owner"]
        assert (task.status, task.approval_status, task.requester_id) == ("backlog", "pending", "worker-a")
        assert (task.assignee_id, task.created_by, task.approved_by) == ("worker-a", "worker-a", None)
        assert inbox(services, "admin") == [("request", "worker-a", "the attic")]
        assert [item.id for item in services.task_changes.requests_for("admin")] == [task.id]
        assert services.task_changes.requests_for("worker-b") == []

    @pytest.mark.parametrize("agent_id", ["admin", "owner"])
    def test_a_superior_approves_and_it_may_begin(self, services: Services, worker_a: Agent, agent_id: str) -> None:
        task, _ = services.task_creation.request(worker_a, NewTask(title="Tidy up"))
        decided = services.task_changes.decide(services.agents.get(agent_id), task.id, approve=True, reason="go on")
        assert (decided.approval_status, decided.approved_by, decided.status) == ("approved", agent_id, "todo")
        assert inbox(services, "worker-a") == [("task_approved", agent_id, "go on")]
        assert services.task_changes.requests_for("admin") == []
        assert moved(services, decided, "in_progress").status == "in_progress"

    def test_a_superior_rejects_and_says_why(self, services: Services, worker_a: Agent, admin: Agent) -> None:
        task, _ = services.task_creation.request(worker_a, NewTask(title="Tidy up"))
        decided = services.task_changes.decide(admin, task.id, approve=False, reason="not now")
        assert (decided.approval_status, decided.approved_by, decided.status) == ("rejected", None, "backlog")
        assert inbox(services, "worker-a") == [("status_update", "admin", "not now")]
        assert services.task_changes.startable("worker-a") == []

    @pytest.mark.parametrize("before", ["backlog", "blocked"])
    def test_a_rejected_request_does_not_go_to_todo(
        self, services: Services, worker_a: Agent, admin: Agent, before: str
    ) -> None:
        task, _ = services.task_creation.request(worker_a, NewTask(title="Tidy up"))
        if before == "blocked":
            moved(services, task, "todo", "blocked")
        services.task_changes.decide(admin, task.id, approve=False)
        for actor in (worker_a, admin):
            with pytest.raises(InvalidStatusTransition) as refusal:
                services.task_changes.set_status(actor, task.id, "todo")
            assert refusal.value.key == "error.request_rejected"
        assert again(services, task).status == before
        assert isinstance(services.task_changes.targets(admin, again(services, task))["todo"], InvalidStatusTransition)
        assert services.task_changes.targets(admin, again(services, task))["cancelled"] is None

    @pytest.mark.parametrize("agent_id", ["worker-a", "worker-b"])
    def test_nobody_approves_their_own_or_a_colleagues_request(
        self, services: Services, worker_a: Agent, agent_id: str
    ) -> None:
        task, _ = services.task_creation.request(worker_a, NewTask(title="Tidy up"))
        with pytest.raises(Unauthorized):
            services.task_changes.decide(services.agents.get(agent_id), task.id, approve=True)
        assert again(services, task).approval_status == "pending"

    def test_a_decision_is_taken_once(self, services: Services, worker_a: Agent, admin: Agent) -> None:
        task, _ = services.task_creation.request(worker_a, NewTask(title="Tidy up"))
        services.task_changes.decide(admin, task.id, approve=False)
        with pytest.raises(InvalidStatusTransition):
            services.task_changes.decide(admin, task.id, approve=True)
        with pytest.raises(InvalidStatusTransition):
            services.task_changes.decide(admin, new(services, by="worker-a").id, approve=True)

    def test_who_has_nobody_above_needs_no_approval_and_may_begin(self, services: Services, owner: Agent) -> None:
        task, approvers = services.task_creation.request(owner, NewTask(title="Rest"))
        assert (approvers, task.approval_status) == ([], "approved")
        assert services.task_changes.startable("owner") == [task]
