"""The board: tasks by status, where each could go, and every change of one."""

from __future__ import annotations

from typing import Any

from multi_agent_mcp.domain.task import Task
from multi_agent_mcp.services.tasks.creation import NewTask
from multi_agent_mcp.web.request import ApiRequest
from multi_agent_mcp.web.serializers import conversation_head, execution_row, task_card, task_whole

EXECUTIONS_SHOWN = 10


def board(ask: ApiRequest) -> dict[str, Any]:
    """The columns: of each status how many tasks there are and a page of them, those in work most urgent first, the
    finished ones most recent first. `?status=` asks for one column, `?assignee=` for one agent's tasks, `?offset=`
    and `?limit=` for more."""
    status, services = ask.asked("status"), ask.services
    columns = services.board.columns(status, ask.asked("assignee"), offset=ask.number("offset", 0), limit=ask.limit)
    subtasks = services.board.subtask_counts()
    shown = [
        {
            "status": column.status,
            "total": column.total,
            "tasks": [_with_targets(ask, task, task_card(task, subtasks.get(task.id))) for task in column.tasks],
        }
        for column in columns
    ]
    requests = services.approvals.waiting_for(ask.me.id) if status is None else []
    return {"columns": shown, "requests": [task_card(task) for task in requests]}


def show(ask: ApiRequest) -> dict[str, Any]:
    """One task with everything that belongs to it."""
    services = ask.services
    task = services.task_changes.get(ask.path["task_id"])
    parents = services.board.existing([task.parent_task_id])
    record = task_whole(task, services.board.subtasks(task.id)) | {
        "parent_title": parents[0].title if parents else None,
        "dependency_cards": [task_card(item) for item in services.board.existing(task.dependencies)],
        "conversations": [conversation_head(item) for item in services.conversations.of_task(task.id)],
        "executions": [execution_row(item) for item in services.executions.of_task(task.id, EXECUTIONS_SHOWN)],
    }
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


def _with_targets(ask: ApiRequest, task: Task, record: dict[str, Any]) -> dict[str, Any]:
    """The record with where the task may go: status → null, or why not."""
    sentence = ask.services.texts.sentence
    refusals = ask.services.task_changes.targets(ask.me, task)
    return record | {"targets": {status: refusal and sentence(refusal) for status, refusal in refusals.items()}}
