"""The board: tasks by status, where each could go, and every change of one."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from multi_agent_mcp.domain.task import FINAL, TASK_STATUSES, Task
from multi_agent_mcp.services.tasks.changes import work_order
from multi_agent_mcp.services.tasks.creation import NewTask
from multi_agent_mcp.services.validation import require_choice
from multi_agent_mcp.web.request import ApiRequest
from multi_agent_mcp.web.serializers import conversation_head, execution_row, task_card, task_whole

EXECUTIONS_SHOWN = 10


def board(ask: ApiRequest) -> dict[str, Any]:
    """The columns: of each status how many tasks there are and a page of them, those in work most urgent first, the
    finished ones most recent first. `?status=` asks for one column, `?assignee=` for one agent's tasks, `?offset=`
    and `?limit=` for more."""
    wanted = ask.asked("status")
    if wanted is not None:
        require_choice("status", wanted, TASK_STATUSES)
    tasks = ask.services.workspace.tasks
    everything = tasks.open()
    shelf = ask.asked("assignee")
    open_ones = sorted(everything if shelf is None else tasks.open(shelf), key=work_order)
    children = _children(everything, tasks.group_counts())
    columns = []
    for status in TASK_STATUSES if wanted is None else (wanted,):
        shown, total = _column(ask, status, [task for task in open_ones if task.status == status])
        cards = [_with_targets(ask, task, task_card(task, children[task.id])) for task in shown]
        columns.append({"status": status, "total": total, "tasks": cards})
    requests = [task_card(task) for task in ask.services.approvals.waiting_for(ask.me.id)] if wanted is None else []
    return {"columns": columns, "requests": requests}


def show(ask: ApiRequest) -> dict[str, Any]:
    """One task with everything that belongs to it."""
    services = ask.services
    task = services.task_changes.get(ask.path["task_id"])
    tasks, executions = services.workspace.tasks, services.workspace.executions
    subtasks = [item for item in tasks.open() if item.parent_task_id == task.id] + tasks.closed(group=task.id)
    stretches = [item for item in executions.open() if item.task_id == task.id]
    stretches += executions.closed(group=task.id, limit=EXECUTIONS_SHOWN)
    stretches.sort(key=lambda item: item.started_at, reverse=True)
    record = task_whole(task, sorted(subtasks, key=work_order))
    parents = _found(ask, [task.parent_task_id] if task.parent_task_id else [])
    record["parent_title"] = next((item.title for item in parents), None)
    record["dependency_cards"] = [task_card(item) for item in _found(ask, task.dependencies)]
    record["conversations"] = [conversation_head(item) for item in services.conversations.of_task(task.id)]
    record["executions"] = [execution_row(item) for item in stretches[:EXECUTIONS_SHOWN]]
    return {"task": _with_targets(ask, task, record)}


def create(ask: ApiRequest) -> dict[str, Any]:
    """A new task: `todo` with an assignee, else `backlog`."""
    new = NewTask(
        title=ask.text("title"),
        description=ask.optional_text("description") or "",
        priority=ask.optional_text("priority") or "medium",
        assignee_id=ask.optional_text("assignee_id"),
    )
    (task,) = ask.services.task_creation.create(ask.me, [new], ask.optional_text("parent_task_id"))
    return {"task": _with_targets(ask, task, task_card(task))}


def set_status(ask: ApiRequest) -> dict[str, Any]:
    """Moves a task; `blocked` and `cancelled` interrupt its assignee."""
    task, previous = ask.services.task_changes.set_status(
        ask.me, ask.path["task_id"], ask.text("status"), ask.optional_text("reason")
    )
    return {
        "task": _with_targets(ask, task, task_card(task)),
        "previous_status": previous,
        "interrupted": task.assignee_id if task.interrupt_id else None,
    }


def assign(ask: ApiRequest) -> dict[str, Any]:
    """Hands a task to another agent; `assignee_id` null takes it from everybody."""
    task, previous = ask.services.task_changes.assign(ask.me, ask.path["task_id"], ask.optional_text("assignee_id"))
    return {"task": _with_targets(ask, task, task_card(task)), "previous_assignee_id": previous}


def decide(ask: ApiRequest) -> dict[str, Any]:
    """Approves or rejects what an agent requested for itself."""
    task = ask.services.approvals.decide(
        ask.me, ask.path["task_id"], approve=ask.flag("approve"), reason=ask.optional_text("reason")
    )
    return {"task": _with_targets(ask, task, task_card(task))}


def _column(ask: ApiRequest, status: str, open_ones: list[Task]) -> tuple[list[Task], int]:
    """One page of a column and how many tasks it has; of the finished ones only those shown are parsed."""
    shelf = ask.asked("assignee")
    offset, end = ask.number("offset", 0), ask.number("offset", 0) + ask.limit
    total = len(open_ones) + ask.services.workspace.tasks.closed_counts(shelf)[status]
    shown = open_ones[offset:end]
    if status in FINAL and len(shown) < ask.limit:
        passed = max(offset - len(open_ones), 0)
        closed = ask.services.workspace.tasks.closed
        shown += closed(shelf, label=status, offset=passed, limit=ask.limit - len(shown))
    return shown, total


def _with_targets(ask: ApiRequest, task: Task, record: dict[str, Any]) -> dict[str, Any]:
    """The record with where the task may go: status → null, or why not."""
    sentence = ask.services.texts.sentence
    refusals = ask.services.task_changes.targets(ask.me, task)
    return record | {"targets": {status: refusal and sentence(refusal) for status, refusal in refusals.items()}}


def _children(open_ones: Iterable[Task], closed: Mapping[tuple[str, str], int]) -> defaultdict[str, Counter[str]]:
    """Of each parent how many subtasks of each status it has; the finished ones are counted, not parsed."""
    children: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for task in open_ones:
        if task.parent_task_id is not None:
            children[task.parent_task_id][task.status] += 1
    for (parent_id, status), number in closed.items():
        children[parent_id][status] += number
    return children


def _found(ask: ApiRequest, ids: Iterable[str]) -> list[Task]:
    found = (ask.services.workspace.tasks.find(task_id) for task_id in ids)
    return [task for task in found if task is not None]
