"""Changes of tasks: assigning, editing, moving, giving back, deciding on requests (docs/protocol.md, Tasks,
Requests)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from multi_agent_mcp.domain.agent import WHOEVER, Agent, is_superior, nearest_superior
from multi_agent_mcp.domain.entity import entity_id, new_id
from multi_agent_mcp.domain.history import Change, old_value
from multi_agent_mcp.domain.proof import has_remarks, require_reviewers
from multi_agent_mcp.domain.question import parked_by
from multi_agent_mcp.domain.reviews import reviews_by
from multi_agent_mcp.domain.task import INTERRUPT_ACTIONS, TASK_STATUSES, Task, work_order
from multi_agent_mcp.errors import AgentNotFound, InvalidStatusTransition, Refusal, Unauthorized
from multi_agent_mcp.services.mail import Messages, NewMessages
from multi_agent_mcp.services.operations import Apply, Operation, Operations, Run, read_by
from multi_agent_mcp.services.tasks.board import require_sound
from multi_agent_mcp.services.validation import Draft, require_choice, require_text, words_or_none
from multi_agent_mcp.session import Service

if TYPE_CHECKING:
    from multi_agent_mcp.domain.message import Message
    from multi_agent_mcp.services.notifications.derived import DerivedNotices
    from multi_agent_mcp.services.notifications.writing import Interrupts
    from multi_agent_mcp.services.team.agents import Agents
    from multi_agent_mcp.store.workspace import Workspace


@dataclass(frozen=True, kw_only=True)
class TaskChange(Operation):
    """The change of one task, as part of an operation."""

    task_id: str
    change: Change = field(metadata=read_by(Change.of))


@dataclass(frozen=True, kw_only=True)
class AssignTask(TaskChange):
    """A task changes hands; `notice_id` is for its former assignee."""

    KIND = "assign_task"

    assignee_id: str | None
    notice_id: str


@dataclass(frozen=True, kw_only=True)
class MoveTask(TaskChange):
    """A task changes its status, with further `fields`, after its open subtasks were blocked."""

    KIND = "move_task"

    status: str
    children: Sequence[str]
    fields: Mapping[str, str]


@dataclass(frozen=True, kw_only=True)
class GiveBack(TaskChange):
    """A reviewed task goes back to its assignee, which gets the remarks as mail."""

    KIND = "give_back"

    mail: NewMessages | None = field(metadata=read_by(NewMessages.of))


@dataclass(frozen=True, kw_only=True)
class DecideRequest(TaskChange):
    """A request is approved or rejected, and its requester gets mail."""

    KIND = "decide_request"

    approve: bool
    mail: NewMessages | None = field(metadata=read_by(NewMessages.of))


@dataclass(eq=False)
class TaskChanges(Service):
    """Every change of an existing task that is not a report."""

    agents: Agents
    messages: Messages
    interrupts: Interrupts
    derived: DerivedNotices
    operations: Operations
    head_of: Callable[[str], str | None]
    """The commit that an agent's worktree is at; None without one. Never raises."""

    def get(self, task_id: object) -> Task:
        """The task with this id. Raises `InvalidId` or `TaskNotFound`."""
        return self.workspace.tasks.get(entity_id("tsk", task_id))

    def title(self, task_id: str) -> str | None:
        """The task's title; None for a task that does not exist."""
        task = self.workspace.tasks.find(task_id)
        return None if task is None else task.title

    def assign(
        self, actor: Agent, task_id: str, assignee_id: str | None, purpose: str | None = None
    ) -> tuple[Task, str | None]:
        """Assigns a task to another agent, or to none, for a session of this purpose. Returns the task and the previous
        assignee's id."""
        task = self.get(task_id)
        task.require_writer(actor.id, self.agents.all())
        if (assignee_id or "").startswith(WHOEVER):
            return self._offer(actor, task, str(assignee_id), purpose)
        if assignee_id is not None:
            self.agents.require_assignable(actor, self.agents.get(assignee_id))
            require_reviewers(task.done_when, assignee_id, self.agents.all())
            added = set(task.done_when).difference(self.session.settings.done_when)
            require_reviewers(added, assignee_id, self.agents.all(), task.created_by)
        change = Change(by=actor.id, at=self.clock(), purpose=purpose)
        operation = AssignTask(task_id=task.id, assignee_id=assignee_id, change=change, notice_id=new_id("ntf"))
        assigned, previous = self.operations.run(operation)
        return assigned, previous

    def _offer(self, actor: Agent, task: Task, to: str, purpose: str | None) -> tuple[Task, str | None]:
        """Takes the task from whoever has it, for whoever is free. Raises `AgentNotFound` for nobody of that kind."""
        contributions = self.derived.contributions
        if contributions.ask("meant", actor, to) is None:
            raise AgentNotFound(agent_id=f"{to:.60}")
        task, previous = self.assign(actor, task.id, None, purpose)
        contributions.ask("offer_item", actor, to, task.id)
        contributions.tell("waiting")
        return self.get(task.id), previous

    def hand_over(self, agent_id: str, actor: Agent) -> list[Task]:
        """Assigns every open task of an agent to its nearest superior, and returns them; if one is refused, those
        before it are handed over. Raises as `assign`, and `AgentNotFound`."""
        superior, tasks = nearest_superior(agent_id, self.agents.all()), self.workspace.tasks.open(agent_id)
        if superior is None and tasks:
            raise AgentNotFound("no_superior", agent_id=agent_id)
        ids = [task.id for task in sorted(tasks, key=work_order)]
        return [self.assign(actor, task_id, superior.id)[0] for task_id in ids] if superior is not None else []

    def applied(self) -> Mapping[type[Operation], Apply]:
        return {
            AssignTask: self.apply_assignment,
            MoveTask: self.apply_move,
            DecideRequest: self.apply_decision,
            GiveBack: self.apply_giving_back,
        }

    def apply_assignment(self, operation: AssignTask, run: Run) -> tuple[Task, str | None]:
        """Reassigns the task, and notifies the previous assignee if it was working on the task."""
        assignee_id, change = operation.assignee_id, operation.change.within(run.intent_id)

        def reassign(found: Task) -> Task:
            done = found.assignee_id == assignee_id or found.has_taken(run.intent_id)
            return found if done else found.assigned(assignee_id, change)

        task = self.workspace.tasks.update(operation.task_id, reassign)
        mine = task.history.naming("intent_id", run.intent_id)
        previous = next((old_value(entry, "assignee_id") for entry in mine if "assignee_id" in entry), task.assignee_id)
        was_running = any(old_value(entry, "status") == "in_progress" for entry in mine)
        if was_running and previous not in (None, assignee_id, change.by):
            self.interrupts.tell_reassigned(previous, task.id, operation.notice_id, change.by)
        self.derived.follow_up(task)
        if previous is not None:
            self.derived.end(previous)
        return task, previous

    @cached_property
    def _statuses(self) -> tuple[str, ...]:
        """Those that a task can be moved to."""
        return self.session.features.offered("status", TASK_STATUSES)

    def set_status(self, actor: Agent, task_id: str, status: str, reason: str | None = None) -> tuple[Task, str]:
        """Moves a task to a status; returns the task and its previous status.

        Blocking or cancelling somebody else's task interrupts its assignee; blocking a parent blocks its open
        subtasks first, all of them or none.
        """
        require_choice("status", status, self._statuses)
        reason = words_or_none("blocked_reason", reason)
        task = self.get(task_id)
        task.require_writer(actor.id, self.agents.all())
        return self.move_with_family(task, status, Change(by=actor.id, at=self.clock(), reason=reason))

    def targets(self, actor: Agent, task: Task) -> dict[str, Refusal | None]:
        """For each other status, why `actor` could not move the task there now (None: it could). Changes nothing."""
        others = [status for status in self._statuses if status != task.status]
        try:
            task.require_writer(actor.id, self.agents.all())
        except Refusal as refusal:
            return dict.fromkeys(others, refusal)
        return {status: self._refusal(actor, task, status) for status in others}

    def current(self, agent_id: str) -> Task | None:
        """The task that an agent works on: the first of those in progress in the order of work, or None."""
        return next(iter(self.workspace.tasks.in_progress(agent_id)), None)

    def in_hand(self, agent_id: str, session_task_id: str | None) -> Task | None:
        """The task that an agent works on in this session, else in any, or None."""
        working = self.workspace.tasks.in_progress(agent_id)
        return next((task for task in working if task.id == session_task_id), next(iter(working), None))

    def startable(self, agent_id: str, unfinished: Collection[str] | None = None) -> list[Task]:
        """The agent's tasks that could be started now, in the order of work. `unfinished` are the ids of the tasks that
        are not done, if already known."""
        still_open = self.unfinished() if unfinished is None else unfinished
        mine = [
            task
            for task in self.workspace.tasks.open(agent_id)
            if task.status == "todo"
            and task.reported_at is None
            and not any(awaited in still_open for awaited in task.dependencies)
        ]
        return sorted((task for task in mine if self._is_startable(task)), key=work_order)

    def unfinished(self) -> set[str]:
        """The ids of the open tasks, which others may wait for."""
        return {task.id for task in self.workspace.tasks.open() if task.status != "done"}

    def start(
        self, actor: Agent, task_id: str, change: Change | None = None, *, from_backlog: bool = False
    ) -> tuple[Task, str]:
        """Moves a task to `in_progress`, one in the backlog only with `from_backlog`; if two sessions start it at once,
        one is refused."""
        change = change or Change(by=actor.id, at=self.clock())
        return self._move(task_id, "in_progress", change, {}, from_backlog=from_backlog)

    def move_with_family(
        self, task: Task, status: str, change: Change, fields: Mapping[str, str] | None = None
    ) -> tuple[Task, str]:
        """Moves a task as `set_status` does, with further `fields`; the caller checks permission. Blocking also blocks
        its open subtasks. A move that concerns several files or agents is one operation."""
        fields = fields or {}
        children = _open_subtasks(self.workspace.tasks.open(), task.id) if status == "blocked" else []
        if not children and not self._concerns_others(task, status, change):
            return self._move(task.id, status, change, fields)
        self._after_move(task, status, change)  # raises if the move is not allowed, before anything is written
        below = [child.id for child in children]
        operation = MoveTask(task_id=task.id, status=status, children=below, change=change, fields={**fields})
        moved: tuple[Task, str] = self.operations.run(operation)
        return moved

    def edit(self, task_id: str, updates: Mapping[str, str], change: Change) -> tuple[Task, list[str]]:
        """Changes title, description, priority and status in one write; the caller checks permission. Returns the task
        and the names of the fields that have another value than before."""
        given = [*updates, *(["blocked_reason"] if change.reason is not None else [])]
        fields = {name: value for name, value in updates.items() if name != "status"}
        require_sound(fields)
        status = updates.get("status")
        if status is not None:
            require_choice("status", status, self._statuses)
        require_text("blocked_reason", change.reason)
        task = self.get(task_id)
        task.require_open()
        if status is not None and (status != task.status or (status == "blocked" and parked_by(task))):
            moved, _ = self.move_with_family(task, status, change, fields)
            return moved, _changed(task, moved, given)
        if change.reason is not None:
            fields["blocked_reason"] = change.reason
        before: list[Task] = []

        def edit(found: Task) -> Task:
            found.require_open()
            before.append(found)
            return found.edited(change, **fields)

        edited = self.workspace.tasks.update(task_id, edit)
        self.derived.follow_up(edited)
        return edited, _changed(before[-1], edited, given)

    def decide(self, actor: Agent, task_id: str, *, approve: bool, reason: str | None = None) -> Task:
        """Approves or rejects a request and sends the requester mail. Raises `InvalidStatusTransition` for what is no
        open request, and `Unauthorized` unless the actor is a strict superior of the requester."""
        require_text("reason", reason)
        task = self.get(task_id)
        task.require_pending()
        requester = task.requester_id or task.created_by
        if not is_superior(actor.id, requester, self.agents.all()):
            raise Unauthorized("not_superior", agent_id=requester)
        change = Change(by=actor.id, at=self.clock(), reason=reason, requester_id=requester)
        prepared = self.messages.compose(
            actor, self._decision(task.decided(change, approve=approve), requester, reason)
        )
        operation = DecideRequest(task_id=task.id, approve=approve, change=change, mail=prepared.to_store)
        decided: Task
        decided, stored = self.operations.run(operation)
        self.messages.announced(prepared, stored)
        return decided

    def apply_decision(self, operation: DecideRequest, run: Run) -> tuple[Task, list[Message]]:
        """Decides the request and stores the mail to the requester."""
        change, approve = operation.change.within(run.intent_id), operation.approve
        decided = self.workspace.tasks.update(
            operation.task_id,
            lambda found: found if found.has_taken(run.intent_id) else found.decided(change, approve=approve),
        )
        self.derived.follow_up(decided)
        return decided, self.messages.outbox.put(operation.mail, run)

    def give_back(self, reviewer: Agent, task: Task, change: Change) -> Task:
        """Rejects what a task in review delivers. Remarks on lines reach the assignee whole, by mail: a notification
        has only the beginning of the reason. Raises `InvalidStatusTransition`, and as `Messages.compose`."""
        if task.assignee_id is None or not has_remarks(change.reason):
            return self._move(task.id, "in_progress", change, {}, from_review=True)[0]
        task.require_review()
        self._after_move(task, "in_progress", change)  # raises if that is not allowed, before anything is written
        draft = Draft(
            content=str(change.reason),
            receiver_id=task.assignee_id,
            message_type="status_update",
            subject=self.texts("subject.task_returned", title=task.quoted_title),
            metadata={"task_id": task.id},
        )
        prepared = self.messages.compose(reviewer, draft)
        operation = GiveBack(task_id=task.id, change=change, mail=prepared.to_store)
        given: Task
        given, stored = self.operations.run(operation)
        self.messages.announced(prepared, stored)
        return given

    def apply_giving_back(self, operation: GiveBack, run: Run) -> tuple[Task, list[Message]]:
        """Moves the task and stores the mail with the remarks."""
        change = operation.change.within(run.intent_id)
        task, _ = self._move(operation.task_id, "in_progress", change, {}, from_review=True)
        return task, self.messages.outbox.put(operation.mail, run)

    def requests_for(self, approver_id: str) -> list[Task]:
        """The pending requests that this agent may decide."""
        agents = self.agents.all()
        return [
            task
            for task in self.workspace.tasks.open()
            if task.approval_status == "pending" and not task.final
            if task.created_by in agents and is_superior(approver_id, task.created_by, agents)
        ]

    def _decision(self, task: Task, requester_id: str, reason: str | None) -> Draft:
        approved = task.approval_status == "approved"
        return Draft(
            content=reason or task.quoted_title,
            receiver_id=requester_id,
            message_type="task_approved" if approved else "status_update",
            subject=self.texts(f"subject.task_{task.approval_status}", title=task.quoted_title),
            metadata={"task_id": task.id, "approval_status": task.approval_status},
        )

    def apply_move(self, operation: MoveTask, run: Run) -> tuple[Task, str]:
        """Blocks the subtasks that are still open, then moves the task itself."""
        change = operation.change.within(run.intent_id)
        blocked = []
        for child_id in operation.children:
            with suppress(InvalidStatusTransition):
                blocked.append(self._write_move(child_id, "blocked", change, {})[0])
        task, previous = self._write_move(operation.task_id, operation.status, change, operation.fields)
        self.derived.follow_up(*blocked, task)
        return task, previous

    def _concerns_others(self, task: Task, status: str, change: Change) -> bool:
        """Whether agents must be notified of a move that their own files do not show: such a move needs an intent, so
        that the next reader finishes it for a killed process."""
        if task.final or status == task.status:
            return False
        return status == "done" or (status == "blocked" and change.by == task.assignee_id)

    def _move(
        self, task_id: str, status: str, change: Change, fields: Mapping[str, str], **how: bool
    ) -> tuple[Task, str]:
        task, previous = self._write_move(task_id, status, change, fields, **how)
        self.derived.follow_up(task)
        return task, previous

    def _write_move(
        self,
        task_id: str,
        status: str,
        change: Change,
        fields: Mapping[str, str],
        *,
        from_backlog: bool = False,
        from_review: bool = False,
    ) -> tuple[Task, str]:
        previous: list[str] = []

        def move(task: Task) -> Task:
            previous.append(task.status)
            if task.has_taken(change.intent_id):
                return task
            if from_review:
                task.require_review()
            begins = status == "in_progress" != task.status and task.assignee_id is not None
            at = replace(change, head=self.head_of(str(task.assignee_id))) if begins else change
            edited = task.edited(change, **fields)
            released = edited.move_to("todo", change) if from_backlog and task.status == "backlog" else edited
            return self._after_move(released, status, at)

        return self.workspace.tasks.update(task_id, move), previous[-1]

    def _after_move(self, task: Task, status: str, change: Change) -> Task:
        """The task after the transition, with an interrupt if work on it is stopped by another agent than its assignee,
        or by the assignee's chat session: its task session does not know of it. What only waits stops nobody; an agent
        that has not read yet that its task is blocked still works on it."""
        if status == "in_progress":
            require_startable(self.workspace, task)
        own = task.assignee_id == change.by and change.purpose != "chat"
        if status == task.status == "blocked" and _is_blocked_again(task, change, own=own):
            return task.blocked_again(change)
        theirs = status in INTERRUPT_ACTIONS and task.assignee_id is not None and not own
        if theirs and (task.is_worked_on or self.derived.is_untold(task)):
            return task.interrupted(status, change, new_id("ntf"))
        return task.move_to(status, change)

    def _refusal(self, actor: Agent, task: Task, status: str) -> Refusal | None:
        proof: Mapping[str, Any] | None = (
            {} if status in ("done", "review") and self._may_conclude(actor, task) else None
        )
        try:
            self._after_move(task, status, Change(by=actor.id, at=self.clock(), proof=proof))
        except Refusal as refusal:
            return refusal
        return None

    def _may_conclude(self, actor: Agent, task: Task) -> bool:
        """Whether the agent may say that a task with conditions is done, or decide on it (`Deliveries.set_status`)."""
        if task.status == "review":
            return bool(reviews_by(actor.id, task, self.agents.all()))
        return actor.id == task.assignee_id

    def _is_startable(self, task: Task) -> bool:
        with suppress(Refusal):
            require_startable(self.workspace, task)
            return True
        return False


def _is_blocked_again(task: Task, change: Change, *, own: bool) -> bool:
    """Whether a block of a blocked task changes anything: it was parked, and waits for an answer no more, or somebody
    else has blocked it than does so now."""
    return parked_by(task) is not None or not (own or task.status_changed_by == change.by)


def _open_subtasks(tasks: Iterable[Task], parent_id: str) -> list[Task]:
    """The descendants of the parent among these tasks that are in `todo`, in progress or parked, deepest first."""
    children: defaultdict[str | None, list[Task]] = defaultdict(list)
    for task in tasks:
        if task.id != parent_id:  # hand-written files may contain a cycle
            children[task.parent_task_id].append(task)
    found: list[Task] = []
    parents = [parent_id]
    while parents:
        level = [task for parent in parents for task in children.pop(parent, ())]
        parents = [task.id for task in level]
        found += reversed(level)
    return [task for task in reversed(found) if task.status in ("todo", "in_progress") or parked_by(task)]


def _changed(before: Task, after: Task, names: Iterable[str]) -> list[str]:
    """Those of the fields that differ."""
    return [name for name in names if getattr(before, name) != getattr(after, name)]


def require_startable(workspace: Workspace, task: Task) -> None:
    """Raises `InvalidStatusTransition` for a task that is unassigned, not approved, or has open dependencies."""
    task.require_startable({key: workspace.tasks.find(key) for key in task.dependencies})
