"""Deliveries of tasks with conditions, and the checks that prove them (docs/protocol.md, Checks, Done means proven).

Nothing that an agent, a task, a message or another machine says becomes part of a check's command or of its
environment, but ids. What counts is judged by the state of the agent's working directory: a receipt of another state
proves nothing."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

from multi_agent_mcp.config import Check, Settings, read_settings, session_names
from multi_agent_mcp.domain.entity import age, entity_id, new_id, plain_value
from multi_agent_mcp.domain.notification import Notification, derived_id
from multi_agent_mcp.domain.proof import Receipt, reviews_in
from multi_agent_mcp.domain.task import Change, Task, open_reviews, reviews_by, reviews_given
from multi_agent_mcp.errors import InvalidArguments, NotProven, StorageError, Unauthorized
from multi_agent_mcp.services.tasks.changes import TaskChange, TaskChanges, TaskReports
from multi_agent_mcp.services.validation import require_text, words_or_none
from multi_agent_mcp.session import Service
from multi_agent_mcp.store.locks import CHECKING as CHECKING_LOCK
from multi_agent_mcp.system.bounded_run import Ended, cleaned_environment, run_bounded
from multi_agent_mcp.system.file_status import Signature, signature_of
from multi_agent_mcp.system.git import WorkState, state_of
from multi_agent_mcp.trace import current, variables

if TYPE_CHECKING:
    from multi_agent_mcp.domain.agent import Agent
    from multi_agent_mcp.services.mail import Sent
    from multi_agent_mcp.services.notifications.notifications import DerivedNotices
    from multi_agent_mcp.services.operations import Apply, Operation, Operations, Run
    from multi_agent_mcp.services.sessions.session_records import Executions, OwnerWaits
    from multi_agent_mcp.services.team.agents import Signatures

OUTPUT_BYTES = 16_000
UNKNOWN = "unknown"
STILL_WANTED_SECONDS = 1.0
"""The interval of checking whether the run is still wanted."""


@dataclass(frozen=True)
class Verdict:
    """The result of examining a task: `receipts` by check if all of them have passed for the present state; else the
    check that `failed`, with the end of its output in `reason`. Neither: the examination was cancelled."""

    receipts: Mapping[str, str] | None = None
    failed: str | None = None
    reason: str = ""


@dataclass(eq=False)
class Checks(Service):
    """The checks of this machine, their receipts, and which of them count now."""

    signatures: Signatures
    worktree_of: Callable[[str], Path | None]
    """The directory of an agent's worktree."""
    _settings: Settings = field(default_factory=Settings, init=False)
    _read_at: Signature | None = field(default=None, init=False)

    def known(self) -> Mapping[str, Check]:
        """The checks that session.yaml names now: a person may correct them while servers run."""
        return self.settings().checks

    def settings(self) -> Settings:
        """The settings as they are now, read again when the file has changed. Raises as `read_settings`."""
        found = signature_of(self.workspace.settings_path)
        if found is None or found != self._read_at:
            self.workspace.files.read(self.workspace.settings_path)  # a disk that fails is no fault in the file
            self._settings, self._read_at = read_settings(self.workspace.settings_path), found
        return self._settings

    def is_found(self, check: Check) -> bool | None:
        """Whether the check's program is there; None if that cannot be told: it is relative to a directory in which no
        check has run yet, or the shell's own word."""
        program = check.program
        if program is None or "/" not in program:
            return None if program is None else shutil.which(program) is not None
        if program.startswith("/"):
            return shutil.which(program) is not None
        known = [
            self.directory_of(agent_id) / check.directory / program for agent_id in self.workspace.registry.active()
        ]
        return any(shutil.which(path) is not None for path in dict.fromkeys(known)) or None

    def directory_of(self, agent_id: str | None) -> Path:
        """The directory in which the agent's checks last ran, else its worktree, else that of this process."""
        known = self.workspace.working_directory(agent_id or "").read()
        if isinstance(known, str) and Path(known).is_dir():
            return Path(known)
        return self.worktree_of(agent_id or "") or Path.cwd()

    def receipts_of(self, task_id: str) -> list[Receipt]:
        """Every receipt of a task, oldest first."""
        return sorted(self.workspace.receipts.open(task_id), key=age)

    def proof_of(self, task: Task) -> dict[str, str] | None:
        """The receipts, by check, that prove all of the task's checks for the state of its assignee's working directory
        now; None if there are not such. Only receipts of this machine count, signed by the assignee."""
        if not task.checks:
            return {}
        receipts = self._current(task, self._state(self.directory_of(task.assignee_id)))
        return receipts if receipts.keys() >= set(task.checks) else None

    def holding(self, agent_id: str, cancelled: Callable[[], bool]) -> FileLock | None:
        """The lock under which one process at a time examines this agent's tasks; None if `cancelled` came first."""
        while not cancelled():
            lock = self.workspace.locks.lock(f"{CHECKING_LOCK}-{agent_id}")
            try:
                lock.acquire(timeout=STILL_WANTED_SECONDS)
            except Timeout:
                continue
            return lock
        return None

    def examine(self, task: Task, directory: Path, cancelled: Callable[[], bool], *, afresh: bool = False) -> Verdict:
        """Runs the task's checks in the directory until each has passed for one state of it; with `afresh` also those
        that have. One that changed something runs again, and has failed if it does so twice. The caller holds the lock.
        Raises `StorageError`, and as `read_settings`."""
        self.workspace.working_directory(str(task.assignee_id)).write(str(directory))
        fresh, changed = set[str](), set[str]()
        for _ in range(len(task.checks) + 2):
            found = self._current(task, self._state(directory))
            due = [name for name in task.checks if name not in found or (afresh and found[name] not in fresh)]
            if not due:
                return Verdict(receipts=found)
            for name in due:
                receipt = self._run(task, name, directory, cancelled, twice=name in changed)
                if receipt is None:
                    return Verdict()
                if not receipt.passed:
                    return Verdict(failed=name, reason=self.reason_of(receipt))
                fresh.add(receipt.id)
                if receipt.changed_during:
                    changed.add(name)
                    break
        return Verdict(failed=task.checks[-1], reason=self.texts("check.unsettled"))

    def _current(self, task: Task, state: WorkState) -> dict[str, str]:
        return {
            receipt.check: receipt.id
            for receipt in self.receipts_of(task.id)
            if receipt.check in task.checks
            and receipt.proves(state.head, state.digest)
            and self._is_genuine(receipt, task)
        }

    def _is_genuine(self, receipt: Receipt, task: Task) -> bool:
        """Whether the assignee's own server wrote the receipt, here: anybody can write a file."""
        is_own = receipt.agent_id == task.assignee_id and receipt.machine == self._machine
        return is_own and self.signatures.is_of(receipt.agent_id, receipt.is_signed_by)

    @property
    def _machine(self) -> str:
        return self.workspace.authority.here or os.uname().nodename

    def _run(
        self, task: Task, name: str, directory: Path, cancelled: Callable[[], bool], *, twice: bool
    ) -> Receipt | None:
        """Runs one check and writes its receipt; None if it was cancelled. `twice`: it has changed something before."""
        check, started_at, before = self.known().get(name), self.clock(), self._state(directory)
        cause = (task.delivery or {}).get("traceparent") or task.traceparent
        environment = cleaned_environment(CHECK=name, TASK=task.id) | variables(cause)
        ended = self._ended(check, directory, environment, cancelled)
        if ended is None:
            return None
        after = self._state(directory)
        changed = before != after
        receipt = Receipt(
            id=new_id("rcp"),
            task_id=task.id,
            agent_id=str(task.assignee_id),
            check=name,
            command="" if check is None else check.shown,
            exit_code=ended.exit_code,
            started_at=started_at,
            finished_at=self.clock(),
            head=after.head,
            dirty=after.dirty,
            diff_sha256=after.digest,
            changed_during=changed,
            machine=self._machine,
            failure=ended.failure or ("changed_twice" if changed and twice else None),
            output=ended.output,
        )
        key = self.signatures.agents.known_key(receipt.agent_id)
        return self.workspace.receipts.add(receipt if key is None else receipt.signed(key))

    @staticmethod
    def _ended(
        check: Check | None, directory: Path, environment: Mapping[str, str], cancelled: Callable[[], bool]
    ) -> Ended | None:
        if check is None:
            return Ended(127, "", UNKNOWN)
        place = (directory / check.directory).resolve()
        if not place.is_relative_to(directory.resolve()) or not place.is_dir():
            return Ended(126, f"{check.directory}\n", "not_started")
        return run_bounded(
            check.command,
            place,
            environment,
            seconds=check.minutes * 60,
            output_bytes=OUTPUT_BYTES,
            cancelled=_seldom(cancelled),
        )

    def reason_of(self, receipt: Receipt) -> str:
        """Why the check failed, as its agent reads it."""
        key = f"check.{receipt.failure}" if receipt.failure else "check.failed"
        why = self.texts(key, check=receipt.check, exit_code=receipt.exit_code)
        return f"{why}\n{receipt.last_lines()}".rstrip()

    def _state(self, directory: Path) -> WorkState:
        """The state of the directory, without the sessions' own files, which change all the time."""
        try:
            return state_of(directory, self._own_files(directory))
        except OSError as error:
            raise StorageError("system", reason=error) from error

    def _own_files(self, directory: Path) -> Iterable[Path]:
        root = self.workspace.root.resolve()
        if directory.resolve().is_relative_to(root):
            return [root / name for name in session_names(root)]
        return [root]


def _seldom(cancelled: Callable[[], bool]) -> Callable[[], bool]:
    """The same question, which may read a file, asked once a second."""
    looked_at = 0.0

    def ask() -> bool:
        nonlocal looked_at
        now = time.monotonic()
        if now - looked_at < STILL_WANTED_SECONDS:
            return False
        looked_at = now
        return cancelled()

    return ask


# What happens when an assignee says that a task with conditions is done. The saying is written into the task first
# (`delivery`), so that whoever dies meanwhile, the next server of the assignee goes on. A task becomes `done` only by
# `SettleDelivery`, with the receipts and reviews that prove it.

PASSED, FAILED, CHECKING = "passed", "failed", "checking"


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
        if self.check != FAILED:
            return {"check": self.check}
        return {"check": self.check, "failed_check": self.failed, "last_lines": self.reason}


@dataclass(eq=False)
class Deliveries(Service):
    """Deliveries of tasks with conditions, and the reviews of them."""

    task_changes: TaskChanges
    task_reports: TaskReports
    checks: Checks
    executions: Executions
    owner_waits: OwnerWaits
    derived: DerivedNotices
    operations: Operations

    def deliver(self, assignee: Agent, task_id: str, summary: str | None, next_steps: str | None = None) -> Task:
        """Writes down that the assignee calls its task done; what its conditions say of that is examined afterwards.
        Raises `Unauthorized`, `InvalidStatusTransition`, and as `require_sendable`."""
        self.task_reports.require_sendable(summary)
        require_text("next_steps", next_steps)
        found = self.task_changes.get(task_id)
        found.require_assignee(assignee.id)
        self.task_reports.delivered(found)
        change = Change(by=assignee.id, at=self.clock())

        def deliver(task: Task) -> Task:
            task.require_assignee(assignee.id)
            return task if task.status == "review" else task.delivered(change, summary, next_steps, current())

        return self.workspace.tasks.update(entity_id("tsk", task_id), deliver)

    def settle(self, task: Task, by: str | None = None, *, status: str | None = None, told: bool = False) -> Examined:
        """Moves a delivered task on as far as its conditions are met: to `review`, or to `done` (or to this `status`,
        if somebody else than its assignee says so). Raises `NotProven` if its checks have not passed for what is there
        now."""
        status = status or _next_status(task)
        if status is None:
            return self.outcome_of(task.id)
        receipts = self.checks.proof_of(task)
        if receipts is None:
            raise NotProven(task_id=task.id, conditions=", ".join(task.checks))
        proof = {"receipts": sorted(receipts.values()), "reviews": dict(reviews_given(task))}
        return self._run(task, status, Change(by=by or str(task.assignee_id), at=self.clock(), proof=proof), told=told)

    def examine(
        self, task_id: str, directory: Path, cancelled: Callable[[], bool], told: Callable[[], bool] = lambda: False
    ) -> Examined | None:
        """Runs the checks of a delivered task and settles it; None if that was cancelled, or somebody else has. `told`
        is asked once the outcome is known: whether it is to be a notification. Raises as `Checks.examine`."""
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
                return self.settle(task, told=told())
            return None if verdict.failed is None else self._refuse(task, verdict, told=told())
        except NotProven:
            return None  # it was delivered anew, or its files have just changed: it is pending again
        finally:
            lock.release()

    def verify(self, task_id: str) -> tuple[Task, Verdict]:
        """Runs a task's checks again, in its assignee's working directory, on this machine; a delivered task is settled
        by the outcome. Raises `InvalidArguments` for a task without checks, and as `Checks.examine`."""
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
                task = self.settle(task, told=True).task
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
        settled = self._run(task, "in_progress", change, told=told)
        return Examined(settled.task, FAILED, verdict.failed, verdict.reason)

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
        except NotProven:  # the assignee's server runs the checks again, or has just settled it
            return self.task_changes.get(task.id)

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
        if status == "done" and actor.id == task.assignee_id and not task.done_when:
            self.task_reports.delivered(task)
        if status not in ("done", "review") or not task.done_when:
            return self.task_changes.set_status(actor, task_id, status, reason)
        if actor.id == task.assignee_id and previous != "review":
            return self._deliver_here(actor, task, reason), previous
        task.require_writer(actor.id, self.workspace.registry.all())
        if _next_status(task, said_by_others=True) != status:
            raise NotProven("not_reviewed", task_id=task.id)
        return self.settle(task, actor.id, status=status).task, previous

    def _deliver_here(self, assignee: Agent, task: Task, summary: str | None) -> Task:
        """Delivers a task for a person or an agent at a command line, and runs its checks in this process."""
        task = self.deliver(assignee, task.id, summary)
        if task.is_examined and task.checks:
            self.examine(task.id, self.checks.directory_of(assignee.id), lambda: False)
            return self.task_changes.get(task.id)
        return self.settle(task).task

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

    def apply(self, operation: SettleDelivery, run: Run) -> Examined:
        """Moves the task, closes its execution, sends its mail. What a killed process has not moved stays delivered:
        meanwhile the files may have changed, so it needs a new proof. Does nothing if another process has moved it."""
        change = operation.change.within(run.intent_id)

        def settle(task: Task) -> Task:
            if task.has_taken(run.intent_id):
                return task
            if _is_settled(task, operation):
                return task
            if run.again or _delivered_at(task) != operation.delivered_at:
                raise NotProven("delivered_anew", task_id=task.id)
            return task.settled(operation.status, change)

        task = self.workspace.tasks.update(operation.task_id, settle)
        if not task.has_taken(run.intent_id):
            return self.outcome_of(task.id)
        self.derived.follow_up(task)
        if operation.told:
            self._tell(task, operation)
        if operation.status == "in_progress":
            return Examined(task, FAILED)
        self._finish_executions(task)
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


def _is_settled(task: Task, operation: SettleDelivery) -> bool:
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
    is_open = bool(set(reviews_in(task.done_when)) - reviews_given(task).keys())
    if task.status == "review":
        given = reviews_given(task)
        return "done" if given and not is_open else None
    if task.is_examined or (said_by_others and task.status == "in_progress"):
        return "review" if is_open else "done"
    return None
