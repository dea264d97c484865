"""Tasks: creating, assigning, moving, requesting, approving."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, BeforeValidator

from multi_agent_mcp.domain.task import TaskPriority, TaskStatus
from multi_agent_mcp.server.call import Call
from multi_agent_mcp.server.toolbox import LEADERS, TASK, Answer, Tool, from_json_text
from multi_agent_mcp.services.tasks.creation import NewTask
from multi_agent_mcp.services.turn.next_action import summary_of


class BatchTask(BaseModel):
    title: str
    description: str = ""
    local_id: str | None = None
    priority: TaskPriority = "medium"
    assignee_id: str | None = None
    dependencies: list[str] = []


BatchTasks = Annotated[list[BatchTask], BeforeValidator(from_json_text)]


def create_tasks_batch(call: Call, tasks: BatchTasks, parent_task_id: str | None = None) -> Answer:
    """Create tasks, all or none. dependencies name local_ids of this batch or existing task ids."""
    items = [NewTask(**task.model_dump()) for task in tasks]
    created = call.services.task_creation.create(call.me, items, parent_task_id)
    local_ids = {task.local_id: real.id for task, real in zip(tasks, created, strict=True) if task.local_id is not None}
    shown = [{**summary_of(task), "assignee_id": task.assignee_id} for task in created]
    return call.fitting({"task_count": len(created), "local_id_to_real_id": local_ids}, "tasks", shown)


def assign_task(call: Call, task_id: str, assignee_id: str | None) -> Answer:
    """Assign a task to an agent below you; null unassigns it."""
    task, previous = call.services.task_changes.assign(call.me, task_id, assignee_id)
    return {"task_id": task.id, "assignee_id": task.assignee_id, "previous_assignee_id": previous}


def update_task_status(call: Call, task_id: str, status: TaskStatus, blocked_reason: str | None = None) -> Answer:
    """Move a task you may change. blocked stops its assignee and blocks its open subtasks."""
    task, previous = call.services.task_changes.set_status(call.me, task_id, status, blocked_reason)
    if task.status == "in_progress" and task.assignee_id == call.me.id:
        call.services.next_action.begin(call.session, task.id)
    return {"task_id": task.id, "previous_status": previous, "new_status": task.status}


def request_task(call: Call, title: str, description: str = "", priority: TaskPriority = "medium") -> Answer:
    """Propose a task for yourself; your superior approves it before you may start."""
    new = NewTask(title=title, description=description, priority=priority)
    task, approvers = call.services.approvals.request(call.me, new)
    return {"task_id": task.id, "approval_status": task.approval_status, "approvers": approvers}


def approve_task_request(call: Call, task_id: str, approve: bool, reason: str | None = None) -> Answer:
    """Approve or reject a task that an agent below you requested."""
    task = call.services.approvals.decide(call.me, task_id, approve=approve, reason=reason)
    return {"task_id": task.id, "approval_status": task.approval_status}


TOOLS = (
    Tool(create_tasks_batch, roles=LEADERS, purposes=TASK),
    Tool(assign_task, roles=LEADERS),
    Tool(update_task_status, purposes=TASK),
    Tool(request_task),
    Tool(approve_task_request, roles=LEADERS),
)
