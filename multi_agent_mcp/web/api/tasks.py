"""The board: tasks by status, the moves allowed for each, and all changes of tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from multi_agent_mcp.config import parse_done_when
from multi_agent_mcp.services.questions.questions import as_answer
from multi_agent_mcp.services.tasks.creation import NewTask
from multi_agent_mcp.web.serializers import (
    conversation_head,
    execution_row,
    handoff_row,
    messages_whole,
    receipt_row,
    task_card,
    task_whole,
)

if TYPE_CHECKING:
    from multi_agent_mcp.domain.task import Task
    from multi_agent_mcp.web.request import ApiRequest

EXECUTIONS_SHOWN = 10
HAND_OFFS_SHOWN = 5
MESSAGES_SHOWN = 30
RECEIPTS_SHOWN = 20


def board(call: ApiRequest) -> dict[str, Any]:
    """The columns of the board: for each status the number of tasks and a page of them, open tasks in the order of
    work, finished ones newest first. `?status=` selects one column, `?assignee=` one agent's tasks, `?offset=` and
    `?limit=` the page."""
    status, services = call.parameter("status"), call.services
    columns = services.board.columns(
        status, call.agent_id("assignee"), offset=call.number("offset", 0), limit=call.limit
    )
    subtasks = services.board.subtask_counts()
    shown = [
        {
            "status": column.status,
            "total": column.total,
            "tasks": [_with_targets(call, task, task_card(task, subtasks.get(task.id))) for task in column.tasks],
        }
        for column in columns
    ]
    return {"columns": shown}


def show(call: ApiRequest) -> dict[str, Any]:
    """One task with its subtasks, dependencies, conversations, messages, questions and executions."""
    services = call.services
    task = services.task_changes.get(call.path["task_id"])
    parents = services.board.existing([task.parent_task_id])
    record = task_whole(task, services.board.subtasks(task.id)) | {
        "parent_title": parents[0].title if parents else None,
        "dependency_cards": [task_card(item) for item in services.board.existing(task.dependencies)],
        "conversations": [conversation_head(item) for item in services.conversations.of_task(task.id)],
        "messages": messages_whole(services.mail_search.about_task(task.id, task.created_at, MESSAGES_SHOWN)),
        "receipts": [receipt_row(item) for item in services.checks.receipts_of(task.id)[-RECEIPTS_SHOWN:]],
        "questions": [as_answer(question) for question in services.questions.about(task.id)],
        "handoffs": [handoff_row(item.hand_off) for item in services.hand_offs.all(task_id=task.id)[:HAND_OFFS_SHOWN]],
        "executions": [execution_row(item) for item in services.executions.of_task(task.id, EXECUTIONS_SHOWN)],
        "usage": [row.as_answer() for row in services.usage.of_task(task.id)],
    }
    return {"task": _with_targets(call, task, record)}


def create(call: ApiRequest) -> dict[str, Any]:
    """Creates a task: in `todo` with an assignee, else in `backlog`."""
    new = NewTask(
        title=call.text("title"),
        description=call.optional_text("description") or "",
        priority=call.optional_text("priority") or "medium",
        assignee_id=call.optional_text("assignee_id"),
        done_when=parse_done_when(call.optional_text("done_when")) or None,
    )
    (task,) = call.services.task_creation.create(call.me, [new], call.optional_text("parent_task_id"))
    return {"task": _with_targets(call, task, task_card(task))}


def set_status(call: ApiRequest) -> dict[str, Any]:
    """Moves a task; `blocked` and `cancelled` interrupt its assignee."""
    task, previous = call.services.deliveries.set_status(
        call.me, call.path["task_id"], call.text("status"), call.optional_text("reason")
    )
    return {
        "task": _with_targets(call, task, task_card(task)),
        "previous_status": previous,
        "interrupted": task.assignee_id if task.interrupt_id else None,
    }


def assign(call: ApiRequest) -> dict[str, Any]:
    """Assigns a task to another agent; `assignee_id` null unassigns it."""
    task, previous = call.services.task_changes.assign(call.me, call.path["task_id"], call.optional_text("assignee_id"))
    return {"task": _with_targets(call, task, task_card(task)), "previous_assignee_id": previous}


def decide(call: ApiRequest) -> dict[str, Any]:
    """Approves or rejects a task that an agent requested for itself, or the result of one in review."""
    task = call.services.deliveries.decide(
        call.me, call.path["task_id"], approve=call.flag("approve"), reason=call.optional_text("reason")
    )
    return {"task": _with_targets(call, task, task_card(task))}


def _with_targets(call: ApiRequest, task: Task, record: dict[str, Any]) -> dict[str, Any]:
    """The record with `targets`, which maps each other status to null, or to why the task cannot be moved there."""
    sentence = call.services.texts.sentence
    refusals = call.services.task_changes.targets(call.me, task)
    return record | {"targets": {status: refusal and sentence(refusal) for status, refusal in refusals.items()}}
