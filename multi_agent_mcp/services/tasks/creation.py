"""New tasks: one, or a batch of which all are made or none (docs/protocol.md, Tasks)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.change import Change
from multi_agent_mcp.domain.ids import entity_id, new_id
from multi_agent_mcp.domain.message import Message
from multi_agent_mcp.domain.owner_wait import OwnerWait
from multi_agent_mcp.domain.task import TASK_PRIORITIES, Task, require_no_cycle
from multi_agent_mcp.errors import InvalidArguments, Refusal, TaskNotFound
from multi_agent_mcp.services.mail.outbox import Outbox
from multi_agent_mcp.services.notices.derived import DerivedNotices
from multi_agent_mcp.services.operations import Apply, Kind, Operations
from multi_agent_mcp.services.sessions.owner_waits import OwnerWaits
from multi_agent_mcp.services.team.agents import Agents
from multi_agent_mcp.services.validation import require_choice, require_text
from multi_agent_mcp.store.codec.frontmatter import as_text, from_text
from multi_agent_mcp.store.intents import Intent
from multi_agent_mcp.store.workspace import Workspace

CREATE_TASKS = Kind("create_tasks", takes_itself_back=True)
SEND_TASK = Kind("send_task", takes_itself_back=True)
REQUEST_TASK = Kind("request_task", takes_itself_back=True)

TITLE_CHARACTERS = 500
BATCH_MAX = 200
LOCAL_IDS_CHARACTERS = 2_000  # of a batch together: the answer names every one of them


@dataclass(frozen=True, kw_only=True)
class NewTask:
    """A task to be made. `dependencies` may name `local_id`s of the same batch."""

    title: str
    description: str = ""
    priority: str = "medium"
    assignee_id: str | None = None
    dependencies: Sequence[str] = ()
    local_id: str | None = None


@dataclass(eq=False)
class TaskCreation:
    """Makes tasks, one or several at once."""

    workspace: Workspace
    agents: Agents
    outbox: Outbox
    owner_waits: OwnerWaits
    derived: DerivedNotices
    operations: Operations
    clock: Callable[[], datetime]

    def create(self, creator: Agent, items: Sequence[NewTask], parent_task_id: str | None = None) -> list[Task]:
        """Makes all of the tasks or none: with an assignee `todo`, else `backlog`.

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
        if len(tasks) == 1:
            self.workspace.tasks.add(tasks[0])
            self.derived.tell(tasks)
        else:
            self.operations.run(CREATE_TASKS, {"tasks": [as_text(task) for task in tasks]})
        return tasks

    def _ids(self, items: Sequence[NewTask]) -> dict[str, str]:
        """Local id (or a number) → fresh task id, in order."""
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

    def _task(self, creator: Agent, item: NewTask, **fields: Any) -> Task:
        if item.assignee_id is not None:
            self.agents.require_assignable(creator, self.agents.get(item.assignee_id))
        return make_task(Change(by=creator.id, at=self.clock()), item, **fields)

    def kinds(self) -> Mapping[Kind, Apply]:
        return dict.fromkeys((CREATE_TASKS, SEND_TASK, REQUEST_TASK), self.apply)

    def apply(self, intent: Intent) -> list[Message]:
        """Applies an intent: an Owner's `wait`, `tasks`, the `letters` about them. Returns the messages stored. The
        wait comes first, because it is refused while another one stands. When the disk refuses, nothing of it is
        left."""
        facts = intent.facts
        tasks = [from_text(Task, text) for text in facts["tasks"]]
        wait = from_text(OwnerWait, facts["wait"]) if facts.get("wait") is not None else None
        if wait is not None:
            self.owner_waits.begin(wait, again=intent.again)
        added: list[Task] = []
        try:
            for task in tasks:
                if not (intent.again and self.workspace.tasks.find(task.id)):
                    self.workspace.tasks.add(task)
                    added.append(task)
            stored = self.outbox.put(facts.get("letters"), again=intent.again)
        except Refusal:
            if not intent.again:
                self._take_back(added, wait)
            raise
        self.derived.tell(tasks)
        return stored

    def _take_back(self, added: Sequence[Task], wait: OwnerWait | None) -> None:
        for task in added:
            self.workspace.tasks.remove(task)
        if wait is not None:
            self.owner_waits.take_back(wait)


def make_task(
    change: Change, new: NewTask, *, task_id: str | None = None, status: str | None = None, **fields: Any
) -> Task:
    """A task that is not stored yet: with an assignee `todo`, else `backlog`, unless `status` says otherwise. Raises
    `InvalidArguments`."""
    require_sound({"title": new.title, "description": new.description, "priority": new.priority})
    return Task.made(
        task_id or new_id("tsk"),
        change,
        status=status or ("todo" if new.assignee_id else "backlog"),
        assignee_id=new.assignee_id,
        title=new.title,
        priority=new.priority,
        description=new.description,
        **fields,
    )


def require_sound(fields: Mapping[str, str]) -> None:
    """Raises `InvalidArguments` for a title, description or priority that a task cannot have."""
    if "title" in fields:
        require_title(fields["title"])
    require_text("description", fields.get("description"))
    if "priority" in fields:
        require_choice("priority", fields["priority"], TASK_PRIORITIES)


def require_title(title: str) -> None:
    """Raises `InvalidArguments` for a title that is empty, too long for a list, or no text."""
    require_text("title", title)
    if not title.strip() or len(title) > TITLE_CHARACTERS:
        raise InvalidArguments("title_length", limit=TITLE_CHARACTERS)
