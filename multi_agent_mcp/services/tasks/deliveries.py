"""What happens when an assignee says that a task with conditions is done (docs/protocol.md, Done means proven).

The saying is written into the task first (`delivery`), so that whoever dies meanwhile, the next server of the assignee
goes on. A task becomes `done` only by `SettleDelivery`, with the receipts and reviews that prove it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from multi_agent_mcp.domain.entity import plain_value
from multi_agent_mcp.domain.ids import entity_id
from multi_agent_mcp.domain.proof import reviews_in
from multi_agent_mcp.domain.task import open_reviews, reviews_by, reviews_given
from multi_agent_mcp.domain.task_history import Change
from multi_agent_mcp.errors import InvalidArguments, NotProven, Unauthorized
from multi_agent_mcp.services.tasks.changes import TaskChange, TaskChanges
from multi_agent_mcp.services.validation import require_text, words_or_none

if TYPE_CHECKING:
    from multi_agent_mcp.domain.agent import Agent
    from multi_agent_mcp.domain.task import Task
    from multi_agent_mcp.services.mail.sending import Sent
    from multi_agent_mcp.services.notifications.derived import DerivedNotices
    from multi_agent_mcp.services.operations import Apply, Operation, Operations, Run
    from multi_agent_mcp.services.sessions.executions import Executions
    from multi_agent_mcp.services.sessions.owner_waits import OwnerWaits
    from multi_agent_mcp.services.tasks.reports import TaskReports
    from multi_agent_mcp.store.workspace import Workspace


@dataclass(frozen=True, kw_only=True)
class SettleDelivery(TaskChange):
    """A delivered task goes on to `review` or `done`, which `change.proof` justifies. `delivered_at` names the
    delivery: another one needs another proof."""

    KIND = "settle_delivery"

    status: str
    delivered_at: str | None


@dataclass(frozen=True)
class Settled:
    """A delivered task after an attempt to settle it; `sent` is the mail about its end, if it was sent now."""

    task: Task
    sent: Sent | None = None


@dataclass(eq=False)
class Deliveries:
    """Deliveries of tasks with conditions, and the reviews of them."""

    workspace: Workspace
    task_changes: TaskChanges
    task_reports: TaskReports
    executions: Executions
    owner_waits: OwnerWaits
    derived: DerivedNotices
    operations: Operations
    clock: Callable[[], datetime]

    def deliver(self, assignee: Agent, task_id: str, summary: str | None, next_steps: str | None = None) -> Task:
        """Writes down that the assignee calls its task done; what its conditions say of that is examined afterwards.
        Raises `Unauthorized`, `InvalidStatusTransition`, and as `require_sendable`."""
        self.task_reports.require_sendable(summary)
        require_text("next_steps", next_steps)
        change = Change(by=assignee.id, at=self.clock())

        def deliver(task: Task) -> Task:
            task.require_assignee(assignee.id)
            return task if task.status == "review" else task.delivered(change, summary, next_steps)

        return self.workspace.tasks.update(entity_id("tsk", task_id), deliver)

    def settle(self, task: Task, by: str | None = None) -> Settled:
        """Moves a delivered task on as far as its conditions are met: to `review`, or to `done`. Raises `NotProven` if
        its checks have not passed for what is there now."""
        status = _next_status(task)
        if status is None:
            return Settled(task)
        proof = {"receipts": self._receipts(task), "reviews": dict(reviews_given(task))}
        change = Change(by=by or str(task.assignee_id), at=self.clock(), proof=proof)
        operation = SettleDelivery(task_id=task.id, change=change, status=status, delivered_at=_delivered_at(task))
        settled: Settled = self.operations.run(operation)
        return settled

    def review(self, reviewer: Agent, task_id: str, *, approve: bool, reason: str | None = None) -> Task:
        """Decides on a task in `review`: it becomes `done` once nobody else has to review it and its checks have passed
        for what is there now (until then it stays), or goes back to its assignee. Raises `Unauthorized`."""
        reason = words_or_none("reason", reason)
        agents = self.workspace.registry.all()
        task = self.task_changes.get(task_id)
        if not reviews_by(reviewer.id, task, agents):
            who = ", ".join(filter(None, open_reviews(task, agents).values()))
            raise Unauthorized("not_reviewer", task_id=task.id, reviewers=who or "-")
        change = Change(by=reviewer.id, at=self.clock(), reason=reason)
        if not approve:
            return self.task_changes.move(task.id, "in_progress", change)

        def approved(found: Task) -> Task:
            return found.reviewed(reviews_by(reviewer.id, found, agents), change)

        task = self.workspace.tasks.update(task.id, approved)
        self.derived.follow_up(task)
        try:
            return self.settle(task, reviewer.id).task
        except NotProven:
            return task  # the assignee's server runs the checks again

    def decide(self, actor: Agent, task_id: str, *, approve: bool, reason: str | None = None) -> Task:
        """Decides on a request, or on a task in `review`."""
        if self.task_changes.get(task_id).status == "review":
            return self.review(actor, task_id, approve=approve, reason=reason)
        return self.task_changes.decide(actor, task_id, approve=approve, reason=reason)

    def set_status(self, actor: Agent, task_id: str, status: str, reason: str | None = None) -> tuple[Task, str]:
        """As `TaskChanges.set_status`. To move a task from `review` to `done` or back is a reviewer's decision; a task
        with conditions becomes `done` only as far as they are met."""
        task = self.task_changes.get(task_id)
        previous = task.status
        if previous == "review" and status in ("done", "in_progress") and self._reviews(actor, task):
            return self.review(actor, task_id, approve=status == "done", reason=reason), previous
        if status not in ("done", "review") or not task.done_when:
            return self.task_changes.set_status(actor, task_id, status, reason)
        if actor.id == task.assignee_id and previous != "review":
            return self.settle(self.deliver(actor, task_id, reason)).task, previous
        task.require_writer(actor.id, self.workspace.registry.all())
        if _next_status(task, said_by_others=True) != status:
            raise NotProven("not_reviewed", task_id=task.id)
        return self.settle(task, actor.id).task, previous

    def overrule(self, person: Agent, task_id: str, reason: str | None) -> tuple[Task, str]:
        """Makes a task `done` although its conditions are not met, because a person says so. Raises `Unauthorized` for
        others, and `InvalidArguments` without a reason."""
        reason = words_or_none("reason", reason)
        if reason is None:
            raise InvalidArguments("force_without_reason")
        if person.type != "human":
            raise Unauthorized("only_people_overrule", agent_id=person.id)
        task = self.task_changes.get(task_id)
        task.require_writer(person.id, self.workspace.registry.all())
        proof = {"overruled": True} if task.done_when else None
        change = Change(by=person.id, at=self.clock(), reason=reason, proof=proof)
        return self.task_changes.move_with_family(task, "done", change), task.status

    def waiting_for(self, reviewer_id: str) -> list[Task]:
        """The tasks that wait for this agent's review, oldest first."""
        agents = self.workspace.registry.all()
        found = [task for task in self.workspace.tasks.open() if reviewer_id in open_reviews(task, agents).values()]
        return sorted(found, key=lambda task: task.status_since)

    def applied(self) -> Mapping[type[Operation], Apply]:
        return {SettleDelivery: self.apply}

    def apply(self, operation: SettleDelivery, run: Run) -> Settled:
        """Moves the task, closes its execution, sends its mail. What a killed process has not moved stays delivered:
        meanwhile the files may have changed, so it needs a new proof."""
        change = operation.change.within(run.intent_id)

        def settle(task: Task) -> Task:
            if task.has_taken(run.intent_id):
                return task
            if run.again or _delivered_at(task) != operation.delivered_at:
                raise NotProven("delivered_anew", task_id=task.id)
            return task.settled(operation.status, change)

        task = self.workspace.tasks.update(operation.task_id, settle)
        self.derived.follow_up(task)
        self._finish_executions(task)
        return Settled(task, self._report(task))

    def _receipts(self, task: Task) -> list[str]:
        """The receipts that prove its checks. Raises `NotProven`."""
        if task.checks:
            raise NotProven(task_id=task.id, conditions=", ".join(task.checks))
        return []

    def _reviews(self, actor: Agent, task: Task) -> bool:
        return bool(reviews_by(actor.id, task, self.workspace.registry.all()))

    def _finish_executions(self, task: Task) -> None:
        for execution in self.workspace.executions.open(task.assignee_id):
            if execution.task_id == task.id:
                self.executions.finish(execution)

    def _report(self, task: Task) -> Sent | None:
        """Sends the superior's mail about a task that is done, in its assignee's name; on another machine than the
        assignee's nobody can sign it. An Owner who waits for the assignee and is to review its task may do nothing else
        before it gets mail."""
        assignee = self.task_changes.agents.get(task.assignee_id or "")
        if self.task_changes.agents.known_key(assignee.id) is None:
            return None
        if task.status == "done":
            return self.task_reports.announce_completion(assignee, task, "success", task.completion_summary)
        agents = self.workspace.registry.all()
        for reviewer in {*open_reviews(task, agents).values()} - {None}:
            wait = self.owner_waits.of(str(reviewer))
            if wait is not None and wait.admin_id == assignee.id:
                self.task_reports.announce_review(assignee, task, str(reviewer))
        return None


def _delivered_at(task: Task) -> str | None:
    at = (task.delivery or {}).get("at")
    return None if at is None else str(plain_value(at))


def _next_status(task: Task, *, said_by_others: bool = False) -> str | None:
    """The status that a task comes to once its checks have passed: None while it is not delivered, or in review."""
    is_open = bool(set(reviews_in(task.done_when)) - reviews_given(task).keys())
    if task.status == "review":
        given = reviews_given(task)
        return "done" if given and not is_open else None
    if task.is_examined or (said_by_others and task.status == "in_progress"):
        return "review" if is_open else "done"
    return None
