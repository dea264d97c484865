"""The board: lists of tasks, and new tasks."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from multi_agent_mcp.domain.agent import WHOEVER, Agent, OwnerWait
from multi_agent_mcp.domain.entity import age, entity_id, new_id
from multi_agent_mcp.domain.history import Change
from multi_agent_mcp.domain.proof import applicable, require_conditions, require_reviewers
from multi_agent_mcp.domain.task import (
    FINAL,
    TASK_PRIORITIES,
    TASK_STATUSES,
    TITLE_CHARACTERS,
    Task,
    require_no_cycle,
    status_order,
    work_order,
)
from multi_agent_mcp.domain.times import format_time
from multi_agent_mcp.errors import InvalidArguments, Refusal, TaskNotFound, Unauthorized
from multi_agent_mcp.services.answer_budget import clipped
from multi_agent_mcp.services.mail import Messages, NewMessages, Sent
from multi_agent_mcp.services.operations import Apply, Operation, Operations, Run, read_as, read_by
from multi_agent_mcp.services.validation import Draft, require_choice, require_one_line, require_skills, require_text
from multi_agent_mcp.session import Service, Session
from multi_agent_mcp.store.derived_databases import folded
from multi_agent_mcp.trace import current

if TYPE_CHECKING:
    from multi_agent_mcp.domain.message import Message
    from multi_agent_mcp.services.notifications.derived import DerivedNotices
    from multi_agent_mcp.services.sessions.session_records import OwnerWaits
    from multi_agent_mcp.services.team.agents import Agents
    from multi_agent_mcp.services.team.approvals import Approvals
    from multi_agent_mcp.settings import Settings

ID_LETTERS = 4
"""How many letters of an id a filter's word must have to be taken for its beginning."""
FINISHED_LOOKED_AT = 300
"""How many finished tasks of a status are read for those that a filter wants, as only reading tells."""


@dataclass(frozen=True)
class Column:
    """A page of the tasks of one status; `total` counts all of them, or all that were looked at (`more`: there are
    others)."""

    status: str
    tasks: Sequence[Task]
    total: int
    more: bool = False


@dataclass(frozen=True, kw_only=True)
class Filter:
    """Which tasks a board shows: those of these `assignees` (None: everybody's), of this priority, with all these words
    in title, reason or result, or as the beginning of the id. Case and width do not matter."""

    assignees: Sequence[str] | None = None
    priority: str | None = None
    words: str = ""

    @property
    def reads(self) -> bool:
        """Whether only a task's content tells if it is wanted, not its place."""
        return self.priority is not None or bool(self.words.strip())

    def wants(self, task: Task) -> bool:
        """Whether a task of one of the assignees is shown."""
        if self.priority not in (None, task.priority):
            return False
        said = " ".join(filter(None, (task.title, task.blocked_reason, task.completion_summary)))
        text = folded(said)
        ids = (task.id, task.id.removeprefix("tsk_"))
        return all(
            word in text or (len(word) >= ID_LETTERS and any(each.startswith(word) for each in ids))
            for word in folded(self.words).split()
        )


EVERYTHING = Filter()


class Board(Service):
    """The tasks of one team. Finished tasks are counted without parsing them; only those on the page are read."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self.tasks = self.workspace.tasks

    def all(self) -> list[Task]:
        """Every task, oldest first."""
        return sorted(self.tasks.all(), key=age)

    def of(self, agent_id: str, status: str | None, limit: int, before: Task | None = None) -> tuple[list[Task], int]:
        """An agent's tasks, open ones first, and the number of all; with `before`, only those behind this one. Raises
        `InvalidArguments`, and `TaskNotFound` for a finished task of another agent."""
        if status is not None:
            require_choice("status", status, TASK_STATUSES)
        tasks = [task for task in self.tasks.open(agent_id) if status in (None, task.status)]
        counts = self.tasks.closed_counts(agent_id)
        total = len(tasks) + (counts.total() if status is None else counts[status])
        closed_before = before.id if before is not None and before.final else None
        if before is not None:
            if before.final and before.assignee_id != agent_id:
                raise TaskNotFound(task_id=before.id)
            last = status_order(before)
            tasks = [] if closed_before else [task for task in tasks if status_order(task) > last]
        if len(tasks) < limit and counts:
            tasks += self.tasks.closed(agent_id, label=status, limit=limit - len(tasks), before=closed_before)
        return tasks[:limit], total

    def listed(
        self, status: str | None, assignee_id: str | None, *, only_open: bool = False, limit: int | None = None
    ) -> tuple[list[Task], int]:
        """Tasks (of this status, of this assignee) and their total number: first those in progress, then the other open
        ones by status, each in the order of work, then the finished ones, newest first."""
        found = (task for task in self.tasks.open(assignee_id) if status in (None, task.status))
        tasks = sorted(found, key=status_order)
        if only_open:
            return tasks[:limit], len(tasks)
        counts = self.tasks.closed_counts(assignee_id)
        total = len(tasks) + (counts.total() if status is None else counts[status])
        if limit is None or len(tasks) < limit:
            room = None if limit is None else limit - len(tasks)
            tasks += self.tasks.closed(assignee_id, label=status, limit=room)
        return tasks[:limit], total

    def columns(
        self, status: str | None = None, wanted: Filter = EVERYTHING, *, offset: int = 0, limit: int = 50
    ) -> list[Column]:
        """A column for each status, or only for `status`, of the wanted tasks: open tasks in the order of work,
        finished ones newest first. Raises `InvalidArguments`."""
        if status is not None:
            require_choice("status", status, TASK_STATUSES)
        tasks = [task for task in self.tasks.open_in_order(wanted.assignees) if wanted.wants(task)]
        closed = self.tasks.closed_counts(wanted.assignees)
        columns = []
        offered = self.session.features.offered("status", TASK_STATUSES)
        for name in TASK_STATUSES if status is None else (status,):
            mine = [task for task in tasks if task.status == name]
            if not mine and name not in offered:
                continue
            if wanted.reads and closed[name]:
                read = self.tasks.closed(wanted.assignees, label=name, limit=FINISHED_LOOKED_AT)
                mine += filter(wanted.wants, read)
                columns.append(_page(name, mine, offset, limit, more=closed[name] > len(read)))
                continue
            shown = mine[offset : offset + limit]
            if name in FINAL and len(shown) < limit:
                skipped = max(offset - len(mine), 0)
                shown += self.tasks.closed(wanted.assignees, label=name, offset=skipped, limit=limit - len(shown))
            columns.append(Column(name, shown, len(mine) + closed[name]))
        return columns

    def groups(self, key: Callable[[Task], str | None], wanted: Filter = EVERYTHING) -> dict[str | None, Counter[str]]:
        """The numbers of wanted open tasks by status, for each group that has some."""
        found: dict[str | None, Counter[str]] = {}
        for task in self.tasks.open_in_order(wanted.assignees):
            if wanted.wants(task):
                found.setdefault(key(task), Counter())[task.status] += 1
        return found

    def subtask_counts(self) -> Mapping[str, Counter[str]]:
        """The number of subtasks of each status, by the parent's id."""
        counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for task in self.tasks.open():
            if task.parent_task_id is not None:
                counts[task.parent_task_id][task.status] += 1
        for (parent_id, status), number in self.tasks.group_counts().items():
            counts[parent_id][status] += number
        return counts

    def subtasks(self, task_id: str) -> list[Task]:
        """The direct subtasks of a task in the order of work."""
        still_open = [task for task in self.tasks.open() if task.parent_task_id == task_id]
        return sorted([*still_open, *self.tasks.closed(group=task_id)], key=work_order)

    def existing(self, ids: Iterable[str | None]) -> list[Task]:
        """The tasks with these ids that exist."""
        found = (self.tasks.find(task_id) for task_id in ids if task_id is not None)
        return [task for task in found if task is not None]


def _page(status: str, tasks: Sequence[Task], offset: int, limit: int, *, more: bool) -> Column:
    return Column(status, tasks[offset : offset + limit], len(tasks), more)


def summary_of(task: Task) -> dict[str, Any]:
    """The fields of a task in a list."""
    return {
        "task_id": task.id,
        "title": clipped(task.title),
        "status": task.status,
        "priority": task.priority,
        "created_at": format_time(task.created_at),
    }


# New tasks: created one by one or as a batch, sent to an agent with a message, or requested for oneself
# (docs/protocol.md, Tasks, Requests).

BATCH_MAX = 200
LOCAL_IDS_CHARACTERS = 2_000  # of a batch in total: the answer names all of them

LEADERS = ("owner", "admin")
_MESSAGE_PRIORITY = {"low": "low", "medium": "normal", "high": "high", "urgent": "urgent"}


@dataclass(frozen=True, kw_only=True)
class NewTask:
    """A task to be created. `dependencies` may name `local_id`s of the same batch."""

    title: str
    description: str = ""
    priority: str = "medium"
    assignee_id: str | None = None
    status: str | None = None
    """None: `todo` with an assignee, else `backlog`."""
    dependencies: Sequence[str] = ()
    local_id: str | None = None
    done_when: Sequence[str] | None = None
    """None: as session.yaml says for all tasks."""
    needs: Sequence[str] = ()


@dataclass(frozen=True, kw_only=True)
class CreateTasks(Operation):
    """New tasks, with the mail about them, and the lock of an Owner who waits for the answer."""

    KIND = "create_tasks"
    TAKES_ITSELF_BACK = True

    tasks: Sequence[Task] = field(metadata=read_as(Task))
    mail: NewMessages | None = field(default=None, metadata=read_by(NewMessages.of))
    wait: OwnerWait | None = field(default=None, metadata=read_as(OwnerWait))


@dataclass(frozen=True)
class SentTask:
    """A task with the message that assigned it. `waiting`: an Owner waits for the answer."""

    task: Task
    sent: Sent
    waiting: bool

    def as_answer(self) -> dict[str, Any]:
        sent = self.sent.as_answer()
        del sent["receiver_ids"]
        return {"task_id": self.task.id, **sent, "waiting": self.waiting}


@dataclass(eq=False)
class TaskCreation(Service):
    """Creates tasks, one or several at once, and the mail about them."""

    agents: Agents
    messages: Messages
    owner_waits: OwnerWaits
    derived: DerivedNotices
    operations: Operations
    approvals: Approvals
    settings: Callable[[], Settings]
    """The settings as they are now: a person may add a check while servers run."""

    def create(self, creator: Agent, items: Sequence[NewTask], parent_task_id: str | None = None) -> list[Task]:
        """Creates all of the tasks or none.

        Raises `InvalidArguments` (cycle, unknown local id, bad title), `TaskNotFound`, `AgentNotFound`,
        `Unauthorized`.
        """
        if not 1 <= len(items) <= BATCH_MAX:
            raise InvalidArguments("batch_size", limit=BATCH_MAX)
        if parent_task_id is not None:
            parent = self.workspace.tasks.get(entity_id("tsk", parent_task_id))
            parent.require_writer(creator.id, self.agents.all())
        ids = self._ids(items)
        tasks = [
            self._task(
                creator,
                item,
                task_id=task_id,
                parent_task_id=parent_task_id,
                dependencies=self._dependencies(item, ids),
            )
            for item, task_id in zip(items, ids.values(), strict=True)
        ]
        require_no_cycle({task.id: task.dependencies for task in tasks})
        offered = {task.id: str(item.assignee_id) for item, task in zip(items, tasks, strict=True) if _is_offered(item)}
        for task_id, to in offered.items():
            self.contributions.ask("offer_item", creator, to, task_id)
        if len(tasks) == 1:
            self.workspace.tasks.add(tasks[0])
            self.derived.tell(tasks)
        else:
            self.operations.run(CreateTasks(tasks=tasks))
        if all(task.assignee_id and not task.dependencies for task in tasks):
            return tasks
        self.contributions.tell("waiting")
        return [self.workspace.tasks.find(task.id) or task if task.id in offered else task for task in tasks]

    def send(
        self,
        sender: Agent,
        agent_id: str,
        title: str,
        content: str,
        priority: str = "medium",
        done_when: Sequence[str] | None = None,
    ) -> SentTask:
        """Implements `send_task`: creates a task in `todo` for the agent, a `task_assign` message, and, from an Owner
        to an Admin, the wait-lock. If one of them cannot be stored, none is. For whoever is free there is no lock."""
        if sender.role not in LEADERS:
            raise Unauthorized("role_not_allowed", tool="send_task", role=sender.role, allowed=", ".join(LEADERS))
        new = NewTask(title=title, description=content, priority=priority, assignee_id=agent_id, done_when=done_when)
        if self._means_whoever(sender, new):
            task = self._task(sender, new)
            draft = replace(self._assignment(task), receiver_id=agent_id)
            sent: Sent = self.contributions.ask("offer", sender, draft, task)
            return SentTask(self.workspace.tasks.find(task.id) or task, sent, waiting=False)
        assignee = self.agents.get(agent_id)
        if assignee.id == sender.id:
            raise InvalidArguments("to_oneself")
        task = self._task(sender, new)
        prepared = self.messages.compose(sender, self._assignment(task))
        waits = sender.role == "owner" and assignee.role == "admin"
        wait = OwnerWait(
            owner_id=sender.id,
            admin_id=assignee.id,
            task_id=task.id,
            message_id=prepared.messages[0].id,
            since=self.clock(),
        )
        brought = task.brought_by(prepared.messages[0].id)
        operation = CreateTasks(tasks=[brought], mail=prepared.to_store, wait=wait if waits else None)
        stored = self.operations.run(operation)
        return SentTask(brought, self.messages.announced(prepared, stored), waits)

    def request(self, requester: Agent, new: NewTask) -> tuple[Task, list[str]]:
        """Implements `request_task`: creates a task for the requester that awaits approval, and mail to the nearest
        superior. An agent without superiors needs no approval: its task is in `todo` at once. Returns the task and the
        superiors' ids, nearest first."""
        approvers = [superior.id for superior in self.agents.superiors(requester.id)]
        task = self._task(
            requester,
            replace(new, assignee_id=requester.id),
            status="backlog" if approvers else "todo",
            requester_id=requester.id,
            approval_status="pending" if approvers else "approved",
        )
        if not approvers:
            self.workspace.tasks.add(task)
            return task, approvers
        prepared = self.messages.compose(requester, self._request(task, approvers[0]))
        stored = self.operations.run(CreateTasks(tasks=[task], mail=prepared.to_store))
        self.messages.announced(prepared, stored)
        return task, approvers

    def _assignment(self, task: Task) -> Draft:
        return Draft(
            content=task.description,
            receiver_id=task.assignee_id,
            message_type="task_assign",
            subject=self.texts("subject.task_assign", title=task.quoted_title),
            priority=_MESSAGE_PRIORITY[task.priority],
            metadata={"task_id": task.id},
        )

    def _request(self, task: Task, approver_id: str) -> Draft:
        return Draft(
            content=task.description,
            receiver_id=approver_id,
            message_type="request",
            subject=self.texts("subject.task_request", title=task.quoted_title),
            metadata={"task_id": task.id, "approval_status": task.approval_status},
        )

    def _ids(self, items: Sequence[NewTask]) -> dict[str, str]:
        """New task ids by local id (`#` and a number without one), in order. Raises `InvalidArguments`."""
        ids: dict[str, str] = {}
        for number, item in enumerate(items):
            local_id = item.local_id if item.local_id is not None else f"#{number}"
            if local_id in ids:
                raise InvalidArguments("local_id_twice", value=f"{local_id!r:.60}")
            ids[local_id] = new_id("tsk")
        if sum(len(item.local_id or "") for item in items) > LOCAL_IDS_CHARACTERS:
            raise InvalidArguments("local_ids_too_long", limit=LOCAL_IDS_CHARACTERS)
        return ids

    def _dependencies(self, item: NewTask, ids: Mapping[str, str]) -> tuple[str, ...]:
        return tuple(ids[name] if name in ids else self._existing(name) for name in dict.fromkeys(item.dependencies))

    def _existing(self, name: str) -> str:
        try:
            return self.workspace.tasks.get(entity_id("tsk", name)).id
        except Refusal as refusal:
            raise TaskNotFound("dependency_not_found", task_id=f"{name:.60}") from refusal

    def _task(self, creator: Agent, new: NewTask, **fields: Any) -> Task:
        """A task that is not stored yet, in the status that `new` says unless `fields` say otherwise."""
        status = new.status or ("todo" if new.assignee_id else "backlog")
        if self._means_whoever(creator, new):
            new = replace(new, assignee_id=None)
        if new.assignee_id is not None:
            self.agents.require_assignable(creator, self.agents.get(new.assignee_id))
        about = {"title": new.title, "description": new.description, "priority": new.priority}
        require_sound(about)
        fields = {"done_when": self._conditions(creator, new), "needs": require_skills(new.needs), **fields}
        first = {"task_id": new_id("tsk"), "status": status}
        change = Change(by=creator.id, at=self.clock())
        fields = {**first, **fields, "traceparent": current()}
        return Task.made(**fields, change=change, assignee_id=new.assignee_id, **about)

    def _means_whoever(self, creator: Agent, new: NewTask) -> bool:
        """Whether it is for whoever is free. Raises `AgentNotFound` if there is nobody of that kind."""
        return _is_offered(new) and self.contributions.ask("meant", creator, new.assignee_id) is not None

    def _conditions(self, creator: Agent, new: NewTask) -> tuple[str, ...]:
        """What has to be true before the task is done: what an Owner says; of others, the session's conditions and what
        they add. Raises as `require_conditions` and `require_reviewers`."""
        settings = self.settings()
        approved = self.approvals.done_when() if "proof" in self.session.features else ()
        session = tuple(dict.fromkeys((*settings.done_when, *approved)))  # nobody but a person takes one away
        if new.done_when is None and not session:
            return ()
        agents = self.agents.all()
        if new.done_when is None:
            return applicable(session, new.assignee_id, agents)
        conditions = require_conditions(new.done_when, settings.checks)
        require_reviewers(conditions, new.assignee_id, agents, creator.id)
        kept = () if creator.role == "owner" else applicable(session, new.assignee_id, agents)
        return tuple(dict.fromkeys((*kept, *conditions)))

    def applied(self) -> Mapping[type[Operation], Apply]:
        return {CreateTasks: self.apply}

    def apply(self, new: CreateTasks, run: Run) -> list[Message]:
        """Stores an Owner's `wait`, the `tasks`, the `mail` about them. Returns the stored messages. The wait comes
        first, because it may be refused. On failure everything is removed again."""
        if new.wait is not None:
            self.owner_waits.begin(new.wait, again=run.again)
        added: list[Task] = []
        try:
            for task in new.tasks:
                if not (run.again and self.workspace.tasks.find(task.id)):
                    self.workspace.tasks.add(task)
                    added.append(task)
            stored = self.messages.outbox.put(new.mail, run)
        except Refusal:
            if not run.again:
                self._take_back(added, new.wait)
            raise
        self.derived.tell(new.tasks)
        return stored

    def _take_back(self, added: Sequence[Task], wait: OwnerWait | None) -> None:
        for task in added:
            self.workspace.tasks.remove(task)
        if wait is not None:
            self.owner_waits.take_back(wait)


def _is_offered(new: NewTask) -> bool:
    return (new.assignee_id or "").startswith(WHOEVER)


def require_sound(fields: Mapping[str, str]) -> None:
    """Raises `InvalidArguments` for an invalid title, description or priority."""
    if "title" in fields:
        require_title(fields["title"])
    require_text("description", fields.get("description"))
    if "priority" in fields:
        require_choice("priority", fields["priority"], TASK_PRIORITIES)


def require_title(title: str) -> None:
    """Raises `InvalidArguments` for a title that is empty, too long or not one line."""
    require_one_line("title", title)
    if not title.strip() or len(title) > TITLE_CHARACTERS:
        raise InvalidArguments("title_length", limit=TITLE_CHARACTERS)
