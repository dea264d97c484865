"""The board: tasks are created, assigned, moved, requested and approved (contract §5, §8)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime

from multi_agent_mcp.domain.agent import Agent, is_superior
from multi_agent_mcp.domain.dependencies import require_no_cycle
from multi_agent_mcp.domain.names import entity_id, new_id
from multi_agent_mcp.domain.notification import Notification
from multi_agent_mcp.domain.task import INTERRUPT_ACTIONS, TASK_PRIORITIES, TASK_STATUSES, Change, Task, priority_rank
from multi_agent_mcp.errors import InvalidArguments, Refusal, TaskNotFound, Unauthorized
from multi_agent_mcp.services.agents import Agents
from multi_agent_mcp.services.interrupts import Interrupts
from multi_agent_mcp.services.messages import Draft, Messages, require_choice, require_text
from multi_agent_mcp.store.workspace import Workspace
from multi_agent_mcp.texts import Texts

TITLE_CHARACTERS = 500
BATCH_MAX = 200

_STATUS_RANK = {"in_progress": 0, "blocked": 1, "todo": 2, "backlog": 3, "done": 4, "cancelled": 5}


@dataclass(frozen=True, kw_only=True)
class NewTask:
    """A task to be made. `dependencies` may name `local_id`s of the same batch."""

    title: str
    description: str = ""
    priority: str = "medium"
    assignee_id: str | None = None
    dependencies: Sequence[str] = ()
    local_id: str | None = None


class Board:
    """Every change of a task's state that is not a report."""

    def __init__(
        self,
        workspace: Workspace,
        agents: Agents,
        messages: Messages,
        interrupts: Interrupts,
        texts: Texts,
        clock: Callable[[], datetime],
    ) -> None:
        self.workspace = workspace
        self.agents = agents
        self.messages = messages
        self.interrupts = interrupts
        self.texts = texts
        self.clock = clock

    def get(self, task_id: object) -> Task:
        """Raises `InvalidId` or `TaskNotFound`."""
        return self.workspace.tasks.get(entity_id("tsk", task_id))

    def of(self, agent_id: str, status: str | None, limit: int) -> tuple[list[Task], int]:
        """An agent's tasks, open ones first, and how many there are. Of the finished ones only those shown are
        parsed."""
        if status is not None:
            require_choice("status", status, TASK_STATUSES)
        tasks = [task for task in self.workspace.tasks.open(agent_id) if status in (None, task.status)]
        tasks.sort(key=_board_order)
        counts = self.workspace.tasks.closed_counts(agent_id)
        total = len(tasks) + (counts.total() if status is None else counts[status])
        if len(tasks) < limit and total > len(tasks):
            tasks += self.workspace.tasks.closed(agent_id, label=status, limit=limit - len(tasks))
        return tasks[:limit], total

    def create(self, creator: Agent, items: Sequence[NewTask], parent_task_id: str | None = None) -> list[Task]:
        """Makes all of the tasks or none: with an assignee `todo`, else `backlog`.

        Raises `InvalidArguments` (cycle, unknown local id, bad title), `TaskNotFound`, `AgentNotFound`,
        `Unauthorized`.
        """
        if not 1 <= len(items) <= BATCH_MAX:
            raise InvalidArguments(reason=f"a batch has 1 to {BATCH_MAX} tasks")
        if parent_task_id is not None:
            self.get(parent_task_id).require_writer(creator.id, self.agents.all())
        ids = self._ids(items)
        tasks = [
            self._new(creator, item, task_id, parent_task_id, self._dependencies(item, ids))
            for item, task_id in zip(items, ids.values(), strict=True)
        ]
        require_no_cycle({task.id: task.dependencies for task in tasks})
        self._add_all(tasks)
        return tasks

    def assign(self, actor: Agent, task_id: str, assignee_id: str | None) -> tuple[Task, str | None]:
        """Hands a task to another agent (None: to nobody). Returns it and the previous assignee's id."""
        task = self.get(task_id)
        task.require_writer(actor.id, self.agents.all())
        if assignee_id is not None:
            self._require_assignable(actor, self.agents.get(assignee_id))
        change = Change(by=actor.id, at=self.clock())
        previous: list[str | None] = []

        def reassign(found: Task) -> Task:
            previous.append(found.assignee_id)
            return found if found.assignee_id == assignee_id else found.assigned(assignee_id, change)

        return self.workspace.tasks.update(task.id, reassign), previous[-1]

    def set_status(self, actor: Agent, task_id: str, status: str, reason: str | None = None) -> tuple[Task, str]:
        """Moves a task; returns it and its previous status.

        Blocking or cancelling somebody else's task interrupts its assignee; blocking a parent blocks its open
        subtasks first, so that a command that was cut off halfway can simply be given again.
        """
        require_choice("status", status, TASK_STATUSES)
        require_text("blocked_reason", reason)
        task = self.get(task_id)
        task.require_writer(actor.id, self.agents.all())
        if status == "blocked":
            self._require_movable(task, status)
            for child in self._open_subtasks(task.id):
                self._move(actor, child.id, status, reason)
        return self._move(actor, task.id, status, reason)

    def interrupt(
        self, actor: Agent, agent_id: str, action: str, task_id: str | None, reason: str | None
    ) -> Notification:
        """`interrupt AGENT`: blocks or cancels the agent's task (the given one, else the one it works on), or asks it
        to pause. An agent without a task is interrupted all the same."""
        target = self.agents.get(agent_id)
        if actor.role != "owner" and not is_superior(actor.id, target.id, self.agents.all()):
            raise Unauthorized("not_superior", agent_id=target.id)
        task = self.get(task_id) if task_id is not None else self.current(target.id)
        if task is not None and task.assignee_id != target.id:
            raise InvalidArguments(reason=f"{task.id} is not assigned to {target.id}")
        if action == "pause":
            return self.interrupts.pause(target.id, task.id if task else None)
        if task is None:
            return self.interrupts.stop(target.id, action)
        moved, _ = self.set_status(actor, task.id, "blocked" if action == "blocked" else "cancelled", reason)
        notice = self.interrupts.ensure(moved)
        return notice if notice is not None else self.interrupts.stop(target.id, action)

    def request(self, requester: Agent, new: NewTask) -> tuple[Task, list[str]]:
        """`request_task`: a task for oneself that waits for approval; the nearest superior is told by mail. Who has
        nobody above approves for themselves."""
        approvers = [superior.id for superior in self.agents.superiors(requester.id)]
        task = self._new(requester, replace(new, assignee_id=requester.id), new_id("tsk"), None, ())
        task = replace(task, status="backlog", requester_id=requester.id)
        if approvers:
            task = replace(task, approval_status="pending")
        self.workspace.tasks.add(task)
        if approvers:
            try:
                self._tell(requester, approvers[0], "request", "subject.task_request", task, task.description)
            except Refusal:
                self.workspace.tasks.remove(task)
                raise
        return task, approvers

    def decide(self, actor: Agent, task_id: str, *, approve: bool, reason: str | None = None) -> Task:
        """Approves or rejects a request; a strict superior of the requester may. The requester is told by mail."""
        require_text("reason", reason)
        task = self.get(task_id)
        requester = task.requester_id or task.created_by
        if not is_superior(actor.id, requester, self.agents.all()):
            raise Unauthorized("not_superior", agent_id=requester)
        change = Change(by=actor.id, at=self.clock(), reason=reason, requester_id=requester)
        decided = self.workspace.tasks.update(task.id, lambda found: found.decided(change, approve=approve))
        kind = "task_approved" if approve else "status_update"
        subject = "subject.task_approved" if approve else "subject.task_rejected"
        self._tell(actor, requester, kind, subject, decided, reason or decided.title)
        return decided

    def current(self, agent_id: str) -> Task | None:
        """What an agent works on: `in_progress`, highest priority first, then oldest."""
        return next(iter(self.in_progress(agent_id)), None)

    def in_progress(self, agent_id: str) -> list[Task]:
        mine = [task for task in self.workspace.tasks.open(agent_id) if task.status == "in_progress"]
        return sorted(mine, key=work_order)

    def startable(self, agent_id: str) -> list[Task]:
        """The agent's tasks in `todo` that nothing keeps from being started, in working order."""
        mine = [task for task in self.workspace.tasks.open(agent_id) if task.status == "todo"]
        return sorted((task for task in mine if self._is_startable(task)), key=work_order)

    def awaiting_approval(self, approver_id: str) -> list[Task]:
        """Requests that this agent may decide."""
        agents = self.agents.all()
        pending = [task for task in self.workspace.tasks.open() if task.approval_status == "pending" and not task.final]
        return [
            task for task in pending if task.created_by in agents and is_superior(approver_id, task.created_by, agents)
        ]

    def start(self, actor: Agent, task_id: str, change: Change | None = None) -> tuple[Task, str]:
        """Moves a task to `in_progress`; of two who start it at once one is told that it was too late."""
        return self._move(actor, task_id, "in_progress", None, change=change)

    def edit(self, actor: Agent, task_id: str, updates: Mapping[str, str], change: Change) -> Task:
        """Changes title, description, priority and status in one write; who may is the caller's business."""
        fields = {name: value for name, value in updates.items() if name != "status"}
        self._require_sound(fields)
        status = updates.get("status")
        if status is not None:
            require_choice("status", status, TASK_STATUSES)
        require_text("blocked_reason", change.reason)
        interrupt_id = new_id("ntf")

        def apply(task: Task) -> Task:
            task.require_open()
            edited = task.edited(change, **fields)
            if status is None or status == task.status:
                return replace(edited, blocked_reason=change.reason) if change.reason is not None else edited
            return self._moved(edited, actor, status, change, interrupt_id)

        task = self.workspace.tasks.update(task_id, apply)
        self.interrupts.ensure(task)
        return task

    def _move(
        self, actor: Agent, task_id: str, status: str, reason: str | None, change: Change | None = None
    ) -> tuple[Task, str]:
        change = change or Change(by=actor.id, at=self.clock(), reason=reason)
        interrupt_id = new_id("ntf")
        previous: list[str] = []

        def move(task: Task) -> Task:
            previous.append(task.status)
            return self._moved(task, actor, status, change, interrupt_id)

        task = self.workspace.tasks.update(task_id, move)
        self.interrupts.ensure(task)
        return task, previous[-1]

    def _moved(self, task: Task, actor: Agent, status: str, change: Change, interrupt_id: str) -> Task:
        """The transition; blocking or cancelling what somebody else is assigned to carries an interrupt."""
        if status == "in_progress":
            task.require_startable({key: self.workspace.tasks.find(key) for key in task.dependencies})
        if status in INTERRUPT_ACTIONS and task.assignee_id not in (None, actor.id):
            return task.interrupted(status, change, interrupt_id)
        return task.move_to(status, change)

    def _require_movable(self, task: Task, status: str) -> None:
        task.move_to(status, Change(by="-", at=self.clock()))

    def _open_subtasks(self, parent_id: str) -> list[Task]:
        """Open subtasks of a task, deepest first."""
        found: list[Task] = []
        level, seen = {parent_id}, {parent_id}
        everything = self.workspace.tasks.open()
        while level:
            children = [task for task in everything if task.parent_task_id in level and task.id not in seen]
            level = {task.id for task in children}
            seen |= level
            found = children + found
        return [task for task in found if task.status in ("todo", "in_progress")]

    def _is_startable(self, task: Task) -> bool:
        with suppress(Refusal):
            task.require_startable({key: self.workspace.tasks.find(key) for key in task.dependencies})
            return True
        return False

    def _ids(self, items: Sequence[NewTask]) -> dict[str, str]:
        """Local id (or a number) → fresh task id, in order."""
        ids: dict[str, str] = {}
        for number, item in enumerate(items):
            local_id = item.local_id if item.local_id is not None else f"#{number}"
            if local_id in ids:
                raise InvalidArguments(reason=f"local_id {local_id!r:.60} stands there twice")
            ids[local_id] = new_id("tsk")
        return ids

    def _dependencies(self, item: NewTask, ids: Mapping[str, str]) -> tuple[str, ...]:
        return tuple(ids[name] if name in ids else self._existing(name) for name in dict.fromkeys(item.dependencies))

    def _existing(self, name: str) -> str:
        try:
            return self.get(name).id
        except Refusal as refusal:
            raise TaskNotFound("dependency_not_found", task_id=f"{name:.60}") from refusal

    def _new(
        self,
        creator: Agent,
        item: NewTask,
        task_id: str,
        parent_task_id: str | None,
        dependencies: tuple[str, ...],
    ) -> Task:
        self._require_sound({"title": item.title, "description": item.description, "priority": item.priority})
        if item.assignee_id is not None:
            self._require_assignable(creator, self.agents.get(item.assignee_id))
        now = self.clock()
        status = "todo" if item.assignee_id else "backlog"
        return Task(
            id=task_id,
            title=item.title,
            status=status,
            priority=item.priority,
            assignee_id=item.assignee_id,
            created_by=creator.id,
            parent_task_id=parent_task_id,
            dependencies=dependencies,
            status_changed_by=creator.id,
            status_changed_at=now,
            created_at=now,
            updated_at=now,
            description=item.description,
            history=(Change(by=creator.id, at=now).entry(status=[None, status], assignee_id=[None, item.assignee_id]),),
        )

    def _require_sound(self, fields: Mapping[str, str]) -> None:
        if "title" in fields:
            require_title(fields["title"])
        if "description" in fields:
            require_text("description", fields["description"])
        if "priority" in fields:
            require_choice("priority", fields["priority"], TASK_PRIORITIES)

    def _add_all(self, tasks: Sequence[Task]) -> None:
        added: list[Task] = []
        try:
            for task in tasks:
                self.workspace.tasks.add(task)
                added.append(task)
        except Refusal:
            for task in added:
                self.workspace.tasks.remove(task)
            raise

    def _require_assignable(self, actor: Agent, assignee: Agent) -> None:
        """Work is handed down or taken oneself, never up; the Owner may give it to anybody."""
        if actor.role == "owner" or assignee.id == actor.id:
            return
        if assignee.role == "owner" or is_superior(assignee.id, actor.id, self.agents.all()):
            raise Unauthorized("superior_task", agent_id=assignee.id)

    def _tell(self, sender: Agent, receiver_id: str, message_type: str, subject: str, task: Task, content: str) -> None:
        draft = Draft(
            content=content,
            receiver_id=receiver_id,
            message_type=message_type,
            subject=self.texts(subject, title=task.title),
            metadata={"task_id": task.id, "approval_status": task.approval_status},
        )
        self.messages.send(sender, draft)


def work_order(task: Task) -> tuple[int, datetime, str]:
    """Highest priority first, then oldest."""
    return -priority_rank(task.priority), task.created_at, task.id


def _board_order(task: Task) -> tuple[int, int, datetime, str]:
    return (_STATUS_RANK.get(task.status, 9), *work_order(task))


def require_title(title: str) -> None:
    """Raises `InvalidArguments` for a title that is empty, too long for a list, or no text."""
    require_text("title", title)
    if not title.strip() or len(title) > TITLE_CHARACTERS:
        raise InvalidArguments(reason=f"title must have 1 to {TITLE_CHARACTERS} characters")
