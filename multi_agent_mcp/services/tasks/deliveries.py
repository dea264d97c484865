"""Deliveries of tasks with conditions, and their reviews (docs/protocol.md, Done means proven).

What an assignee says is written into the task first (`delivery`), so that whoever dies meanwhile, the next server of
the assignee goes on. A task becomes `done` only by `SettleDelivery`, with the receipts and reviews that prove it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from multi_agent_mcp.domain.agent import report_recipient
from multi_agent_mcp.domain.entity import plain_value
from multi_agent_mcp.domain.history import Change
from multi_agent_mcp.domain.notification import REASON_CHARACTERS, Notification, derived_id
from multi_agent_mcp.domain.proof import reviews_in, state_name
from multi_agent_mcp.domain.reviews import open_reviews, reviews_by
from multi_agent_mcp.domain.times import format_time
from multi_agent_mcp.errors import (
    InvalidArguments,
    InvalidStatusTransition,
    NotCommitted,
    NotProven,
    Refusal,
    Unauthorized,
)
from multi_agent_mcp.services.tasks.changes import TaskChange, TaskChanges
from multi_agent_mcp.services.tasks.shown_states import ShownStates, delivered_head
from multi_agent_mcp.services.validation import require_text, words_or_none
from multi_agent_mcp.session import Service
from multi_agent_mcp.system.git import head_of
from multi_agent_mcp.trace import current

if TYPE_CHECKING:
    from multi_agent_mcp.domain.agent import Agent
    from multi_agent_mcp.domain.task import Task
    from multi_agent_mcp.services.mail import Sent
    from multi_agent_mcp.services.notifications.derived import DerivedNotices
    from multi_agent_mcp.services.operations import Apply, Operation, Operations, Run
    from multi_agent_mcp.services.sessions.session_records import Executions, OwnerWaits
    from multi_agent_mcp.services.tasks.checks import Checks, Verdict
    from multi_agent_mcp.services.tasks.delivered import DeliveredWork
    from multi_agent_mcp.services.tasks.diffs import Diffs
    from multi_agent_mcp.services.tasks.gate import Gate
    from multi_agent_mcp.services.tasks.reports import TaskReports

PASSED, FAILED, CHECKING = "passed", "failed", "checking"
NOT_COMMITTED = "not_committed"
"""The action of a notification, and the key of a history line that names the files."""


@dataclass(frozen=True, kw_only=True)
class SettleDelivery(TaskChange):
    """A delivered task goes on to `review` or `done`, which `change.proof` justifies, or back to `in_progress`, because
    a check has failed. `delivered_at` names the delivery: another one needs another proof. `previous` is the status
    in which that was decided: two processes may decide at once. With `told` its assignee gets the outcome as a
    notification."""

    KIND = "settle_delivery"

    status: str
    delivered_at: str | None
    told: bool = False
    previous: str = ""


@dataclass(frozen=True)
class Examined:
    """What became of a delivered task. `check`: `passed`, `failed` or `checking`; `failed` names the check, `reason`
    holds the end of its output; `sent` is the mail about the task's end, if it was sent now."""

    task: Task
    check: str = CHECKING
    failed: str | None = None
    reason: str = ""
    sent: Sent | None = None

    def as_answer(self) -> dict[str, Any]:
        """The outcome, of a task that has conditions; nothing of another, which was only delivered again."""
        if self.check == PASSED and not self.task.done_when:
            return {}
        if self.check != FAILED:
            return {"check": self.check}
        return {"check": self.check, "failed_check": self.failed, "last_lines": self.reason}


@dataclass(eq=False)
class Deliveries(Service):
    """Deliveries of tasks with conditions, and the reviews of them."""

    task_changes: TaskChanges
    task_reports: TaskReports
    checks: Checks
    diffs: Diffs
    gate: Gate
    shown_states: ShownStates
    executions: Executions
    owner_waits: OwnerWaits
    derived: DerivedNotices
    operations: Operations

    def is_delivered(self, task: Task) -> bool:
        """Whether the assignee delivers the task by calling it done: one with conditions, or one that is done and could
        not be merged."""
        if task.final:
            return self.checks.records.is_returned(task)
        return bool(task.done_when) or self.gate.asks_for_review(task, self.gate.why(task))

    def deliver(
        self,
        assignee: Agent,
        task_id: str,
        summary: str | None,
        next_steps: str | None = None,
        *,
        resolution: DeliveredWork | None = None,
    ) -> Task:
        """Writes down that the assignee calls its task done; what its conditions say of that is examined afterwards. A
        task that is done is delivered again with the `resolution` of what kept it from being merged, or what the
        worktree is at. Raises `Unauthorized`, `InvalidStatusTransition`, `InvalidArguments` for no resolution, and as
        `require_sendable`."""
        self.task_reports.require_sendable(summary)
        require_text("next_steps", next_steps)
        change = Change(by=assignee.id, at=self.clock())
        found = self.task_changes.get(task_id)
        found.require_assignee(assignee.id)
        resolution = resolution or self.checks.records.resolution(found)
        found.delivered(change, summary, next_steps, resolves=resolution is not None)  # raises before anything changes
        work = resolution or self.checks.records.commit_and_look(found, summary)
        why = self.gate.why(found, work)
        needs_review = self.gate.asks_for_review(found, why)
        head = self._head(found.gated(change, why) if needs_review else found, change, work)

        def deliver(task: Task) -> Task:
            task.require_assignee(assignee.id)
            task = task.gated(change, why) if needs_review else task
            given = task.delivered(change, summary, next_steps, current(), head, resolves=resolution is not None)
            return replace(given, delivery={**given.delivery, **why}) if why and given.delivery is not None else given

        return self.workspace.tasks.update(found.id, deliver)

    def _head(self, task: Task, change: Change, found: DeliveredWork | None) -> str:
        """The name of what a task delivers now, whose commit is recorded. Raises `NotCommitted`, `GitFailed`."""
        if found is None:
            self.diffs.keep(task)
            commit = head_of(self.checks.directory_of(task.assignee_id))
            return state_name(commit, format_time(change.at), is_whole=False)
        if found.files and task.done_when:
            raise self._note_uncommitted(task, found, change)
        return state_name(self.checks.records.note(found).commit, found.at, is_whole=True)

    def _note_uncommitted(self, task: Task, found: DeliveredWork, change: Change) -> NotCommitted:
        """Notes in the task that it was called done in vain; its superior is notified after the second time."""
        named, why = ", ".join(found.files), found.held_back
        task = self.workspace.tasks.update(
            task.id, lambda known: known.recorded(change, **{NOT_COMMITTED: list(found.files)})
        )
        begun, _ = task.latest("status", "assignee_id") or (-1, {})
        times = sum(number > begun and NOT_COMMITTED in line for number, line in task.history.at_hand())
        if times > 1:
            self._tell_superior(task, NOT_COMMITTED, begun, f"{named}\n{why}" if why else named)
        key, facts = ("commit_held_back", {"why": why}) if why else (None, {})
        return NotCommitted(key, task_id=task.id, files=named, **facts)

    def _tell_superior(self, task: Task, action: str, cause: object, reason: str) -> None:
        """Tells the one who gets the assignee's reports, once for this cause."""
        try:
            superior = report_recipient(str(task.assignee_id), self.workspace.registry.all())
        except Refusal:  # there is none
            return
        notice = Notification(
            id=derived_id(action, task.id, cause, superior.id),
            target_agent_id=superior.id,
            type="status_change",
            action=action,
            task_id=task.id,
            created_at=self.clock(),
            sender_id=task.assignee_id,
            reason=reason[:REASON_CHARACTERS],
        )
        self.derived.writer.put_first(self.derived.writer.worded(notice, f"notice.{action}"))

    def conclude(self, task: Task, by: str | None = None, *, status: str | None = None, told: bool = False) -> Examined:
        """Moves a delivered task on as far as its conditions are met: to `review`, or to `done` (or to this `status`,
        if somebody else than its assignee says so). Raises `NotProven` if its checks have not passed for what is there
        now."""
        status = status or _next_status(task)
        if status is None:
            return self.outcome_of(task.id)
        receipts = self.checks.proof_of(task)
        if receipts is None:
            raise NotProven(task_id=task.id, conditions=", ".join(task.checks))
        proof = {"receipts": sorted(receipts.values()), "reviews": dict(task.reviews_given)}
        if head := (task.delivery or {}).get("head"):
            proof["head"] = head
        is_proof = bool(task.done_when) or "proof" in self.session.features
        change = Change(by=by or str(task.assignee_id), at=self.clock(), proof=proof if is_proof else None)
        return self._run(task, status, change, told=told and bool(task.checks))

    def examine(
        self, task_id: str, directory: Path, cancelled: Callable[[], bool], told: Callable[[], bool] = lambda: False
    ) -> Examined | None:
        """Runs the checks of a delivered task and concludes it; None if that was cancelled, or somebody else has.
        `told` is asked once the outcome is known: whether it is to be a notification. Raises as `Checks.examine`."""
        task = self.task_changes.get(task_id)
        lock = self.checks.holding(str(task.assignee_id), cancelled)
        if lock is None:
            return None
        try:
            task = self.task_changes.get(task_id)
            if _next_status(task) is None:
                return None
            verdict = self.checks.examine(task, directory, lambda: cancelled() or not self._is_wanted(task))
            if verdict.receipts is not None:
                return self.conclude(task, told=told())
            return None if verdict.failed is None else self._refuse(task, verdict, told=told())
        except NotProven:
            return None  # it was delivered again, or its files have just changed: it is pending again
        finally:
            lock.release()

    def verify(self, task_id: str) -> tuple[Task, Verdict]:
        """Runs a task's checks again, in its assignee's working directory, on this machine; a delivered task is
        concluded by the outcome. Raises `InvalidArguments` for a task without checks, and as `Checks.examine`."""
        task = self.task_changes.get(task_id)
        if not task.checks:
            raise InvalidArguments("no_checks", task_id=task.id)
        assignee = self.task_changes.agents.get(task.assignee_id or "")
        self.task_changes.agents.require_here(assignee)
        lock = self.checks.holding(assignee.id, lambda: False)
        try:
            verdict = self.checks.examine(task, self.checks.directory_of(assignee.id), lambda: False, afresh=True)
            task = self.task_changes.get(task_id)
            if _next_status(task) is not None and verdict.receipts is not None:
                task = self.conclude(task, told=True).task
            elif _next_status(task) is not None and verdict.failed is not None:
                task = self._refuse(task, verdict, told=True).task
            return task, verdict
        finally:
            if lock is not None:
                lock.release()

    def pending(self, agent_id: str) -> list[Task]:
        """The agent's tasks that its server has to examine, those delivered first first: delivered ones, and those that
        were approved for what is no longer there."""
        if self.workspace.elsewhere(self.workspace.registry.all().get(agent_id)) is not None:
            return []
        found = [task for task in self.workspace.tasks.open(agent_id) if task.delivery and _next_status(task)]
        return sorted(found, key=lambda task: str(_delivered_at(task)))

    def is_pending(self, task: Task) -> bool:
        """Whether its checks still have to pass for what is there now."""
        return _next_status(task) is not None

    def outcome_of(self, task_id: str) -> Examined:
        """What has become of a delivered task by now."""
        task = self.task_changes.get(task_id)
        if _next_status(task) is not None:
            return Examined(task)
        if task.status in ("review", "done"):
            return Examined(task, PASSED)
        failed = next((item for item in reversed(self.checks.receipts_of(task.id)) if not item.passed), None)
        said = (failed.check, self.checks.reason_of(failed)) if failed is not None else (None, "")
        return Examined(task, FAILED, *said)

    def _refuse(self, task: Task, verdict: Verdict, *, told: bool) -> Examined:
        change = Change(by=str(task.assignee_id), at=self.clock(), reason=verdict.reason)
        found = self._run(task, "in_progress", change, told=told)
        if verdict.repeated is not None:
            self._tell_superior(task, "check_repeats", verdict.repeated, verdict.reason)
        return Examined(found.task, FAILED, verdict.failed, verdict.reason)

    def _run(self, task: Task, status: str, change: Change, *, told: bool) -> Examined:
        operation = SettleDelivery(
            task_id=task.id,
            change=change,
            status=status,
            delivered_at=_delivered_at(task),
            told=told,
            previous=task.status,
        )
        examined: Examined = self.operations.run(operation)
        return examined

    def _is_wanted(self, task: Task) -> bool:
        """Whether a delivered task is still the same agent's, and still to be examined."""
        found = self.workspace.tasks.find(task.id)
        return found is not None and _key(found) == _key(task) and _next_status(found) is not None

    def review(
        self, reviewer: Agent, task_id: str, *, approve: bool, reason: str | None = None, state: str | None = None
    ) -> Task:
        """Decides on a task in `review`: it becomes `done` once nobody else has to review it and its checks have passed
        for what it delivers (until then it stays), or goes back to its assignee. `state` names what was looked at,
        without it what the reviewer was last shown. Raises `Unauthorized`, and `NotProven` for another state."""
        reason = words_or_none("reason", reason)
        agents = self.workspace.registry.all()
        task = self.task_changes.get(task_id)
        task.require_review()
        if not reviews_by(reviewer.id, task, agents):
            who = ", ".join(filter(None, open_reviews(task, agents).values()))
            if not who and (by := ", ".join(dict.fromkeys(map(str, task.reviews_given.values())))):
                raise InvalidStatusTransition("already_approved", task_id=task.id, by=by)
            raise Unauthorized("not_reviewer", task_id=task.id, reviewers=who or "-")
        change = Change(by=reviewer.id, at=self.clock(), reason=reason)
        if not approve:
            self.shown_states.require(reviewer, task, state or delivered_head(task))
            return self.task_changes.give_back(reviewer, task, change)

        def approved(found: Task) -> Task:
            found.require_review()
            self.shown_states.require(reviewer, found, state)
            return found.reviewed(reviews_by(reviewer.id, found, agents), change)

        task = self.workspace.tasks.update(task.id, approved)
        self.derived.follow_up(task)
        try:
            task = self.conclude(task, reviewer.id).task
        except NotProven:  # the assignee's server runs the checks again, or has just concluded it
            task = self.task_changes.get(task.id)
        if task.status != "done":  # somebody else may have given it back meanwhile
            task.require_review()
        return task

    def decide(
        self, actor: Agent, task_id: str, *, approve: bool, reason: str | None = None, state: str | None = None
    ) -> Task:
        """Decides on a request, or on a task in `review` (see there for `state`)."""
        if self.task_changes.get(task_id).status == "review":
            return self.review(actor, task_id, approve=approve, reason=reason, state=state)
        return self.task_changes.decide(actor, task_id, approve=approve, reason=reason)

    def set_status(self, actor: Agent, task_id: str, status: str, reason: str | None = None) -> tuple[Task, str]:
        """As `TaskChanges.set_status`. To move a task from `review` to `done` or back is a reviewer's decision; a task
        with conditions becomes `done` only as far as they are met."""
        task = self.task_changes.get(task_id)
        previous, is_mine = task.status, actor.id == task.assignee_id
        if previous == "review" and status in ("done", "in_progress") and self._reviews(actor, task):
            return self.review(actor, task_id, approve=status == "done", reason=reason), previous
        if status == "done" and is_mine and previous != "review" and self.is_delivered(task):
            return self._deliver_here(actor, task, reason), previous
        if status == "done" and is_mine and not task.done_when:
            self.task_reports.delivered(task, reason)
        if status not in ("done", "review") or not task.done_when:
            return self.task_changes.set_status(actor, task_id, status, reason)
        if is_mine and previous != "review":
            return self._deliver_here(actor, task, reason), previous
        task.require_writer(actor.id, self.workspace.registry.all())
        if status == "review":  # another's `done` is first of all not proven, wherever the task stands
            task.require_way_to(status)
        if _next_status(task, said_by_others=True) != status:
            raise NotProven("not_reviewed", task_id=task.id)
        if previous != "review" and (found := self.checks.records.look(task)) is not None and found.files:
            raise NotCommitted(task_id=task.id, files=", ".join(found.files))
        return self.conclude(task, actor.id, status=status).task, previous

    def _deliver_here(
        self, assignee: Agent, task: Task, summary: str | None, resolution: DeliveredWork | None = None
    ) -> Task:
        """Delivers a task for a person or an agent at a command line, and runs its checks in this process; the assignee
        is told what became of a `resolution`."""
        task, told = self.deliver(assignee, task.id, summary, resolution=resolution), resolution is not None
        if task.is_examined and task.checks:
            self.examine(task.id, self.checks.directory_of(assignee.id), lambda: False, lambda: told)
            return self.task_changes.get(task.id)
        return self.conclude(task, told=told).task

    def resolve(self, task: Task, resolution: DeliveredWork) -> Task:
        """Delivers a done task again with a resolution that its assignee has committed, and nobody has reported.
        Returns the task if it is done again. Raises `InvalidArguments` while that waits for a review, or if a check has
        failed."""
        assignee = self.task_changes.agents.get(resolution.agent_id)
        task = self._deliver_here(assignee, task, None, resolution)
        if task.status != "done":
            key = "resolution_waits" if task.status == "review" else "resolution_failed"
            facts = {"agent_id": assignee.id, "commit": resolution.commit[:10], "status": task.status}
            raise InvalidArguments(key, task_id=task.id, **facts)
        return task

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
        return self.task_changes.move_with_family(task, "done", change)

    def waiting_for(self, reviewer_id: str) -> list[Task]:
        """The tasks that wait for this agent's review, oldest first."""
        agents = self.workspace.registry.all()
        found = [task for task in self.workspace.tasks.open() if reviewer_id in open_reviews(task, agents).values()]
        return sorted(found, key=lambda task: task.status_since)

    def section(self, agent: Agent, task: Task | None) -> str | None:
        """The section of the briefing about what is to be proven of the agent's task, and what waits for its review."""
        reviews = self.waiting_for(agent.id)
        lines = []
        if task is not None and task.done_when:
            key = "briefing.examined" if task.is_examined else "briefing.done_when"
            lines.append(self.texts(key, conditions=", ".join(task.done_when)))
        if reviews:
            lines.append(self.texts("briefing.reviews", count=len(reviews), task_id=reviews[0].id))
        return "\n".join(lines) or None

    def still_open(self) -> list[str]:
        """The open tasks that are to be proven or reviewed."""
        return [task.id for task in self.workspace.tasks.open() if task.done_when or task.status == "review"]

    def applied(self) -> Mapping[type[Operation], Apply]:
        return {SettleDelivery: self.apply}

    def apply(self, operation: SettleDelivery, run: Run) -> Examined:
        """Moves the task, closes its execution, sends its mail. What a killed process has not moved stays delivered:
        meanwhile the files may have changed, so it needs a new proof. Does nothing if another process has moved it."""
        change = operation.change.within(run.intent_id)

        def concluded(task: Task) -> Task:
            if task.has_taken(run.intent_id):
                return task
            if _is_concluded(task, operation):
                return task
            if run.again or _delivered_at(task) != operation.delivered_at:
                raise NotProven("delivered_again", task_id=task.id)
            return task.concluded(operation.status, change)

        task = self.workspace.tasks.update(operation.task_id, concluded)
        if not task.has_taken(run.intent_id):
            return self.outcome_of(task.id)
        self.derived.follow_up(task)
        if operation.told:
            self._tell(task, operation)
        if operation.status == "in_progress":
            return Examined(task, FAILED)
        self.executions.finish_task(task)
        return Examined(task, PASSED, sent=self._report(task))

    def _tell(self, task: Task, operation: SettleDelivery) -> None:
        action = "check_failed" if operation.status == "in_progress" else "check_passed"
        notice = Notification(
            id=derived_id(action, task.id, operation.delivered_at, operation.change.at),
            target_agent_id=str(task.assignee_id),
            target_purpose="task",
            type="status_change",
            action=action,
            task_id=task.id,
            created_at=operation.change.at,
            reason=operation.change.reason,
        )
        self.derived.writer.put(notice, f"notice.{action}")

    def _reviews(self, actor: Agent, task: Task) -> bool:
        return bool(reviews_by(actor.id, task, self.workspace.registry.all()))

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


def _is_concluded(task: Task, operation: SettleDelivery) -> bool:
    """Whether this delivery has been moved on since the operation was decided."""
    if task.status == operation.previous:
        return False
    lines = task.history.having("delivered") if task.final else []
    said = next((plain_value(line.get("at")) for line in lines if line["delivered"]), None)
    return operation.delivered_at in (said if task.final else None, _delivered_at(task))


def _key(task: Task) -> tuple[str | None, str | None]:
    return task.assignee_id, _delivered_at(task)


def _next_status(task: Task, *, said_by_others: bool = False) -> str | None:
    """The status that a task comes to once its checks have passed: None while it is not delivered, or in review."""
    is_open = bool(set(reviews_in(task.done_when)) - task.reviews_given.keys())
    if task.status == "review":
        given = task.reviews_given
        return "done" if given and not is_open else None
    if task.is_examined or (said_by_others and task.status == "in_progress"):
        return "review" if is_open else "done"
    return None
