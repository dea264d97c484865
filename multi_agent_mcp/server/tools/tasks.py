"""Handing work over and reporting on it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from multi_agent_mcp.domain.task import ReportStatus
from multi_agent_mcp.server.call import Call
from multi_agent_mcp.server.toolbox import LEADERS, REPORTERS, Answer, Tool

AnyPriority = Literal["low", "normal", "medium", "high", "urgent"]
"""A task's priorities and the messages' word for the middle one: models mix them up."""


class ChecklistItem(BaseModel):
    text: str
    completed: bool = False


def send_task(
    call: Call,
    agent_id: str,
    title: str,
    content: str,
    priority: AnyPriority = "medium",
) -> Answer:
    """Give a task to an agent below you. An Owner then waits: do not poll, an [IPC] line announces the answer."""
    wanted = "medium" if priority == "normal" else priority
    assigned = call.services.assignments.send(call.me, agent_id, title, content, wanted)
    return {
        "task_id": assigned.task.id,
        "message_id": assigned.sent.message_id,
        "waiting": assigned.waiting,
        "delivery": {agent: delivery.as_answer() for agent, delivery in assigned.sent.delivery.items()},
    }


def report_task_progress(
    call: Call,
    task_id: str,
    progress: Annotated[int, Field(ge=0, le=100)] | None = None,
    message: str | None = None,
    checklist: list[ChecklistItem] | None = None,
) -> Answer:
    """Report progress (0-100) on a task of yours to your Admin. No send_message is needed."""
    items = None if checklist is None else [item.model_dump() for item in checklist]
    task, current = call.services.assignments.report_progress(call.me, task_id, progress, message, items)
    return {"task_id": task.id, "progress": current}


def report_task_completion(
    call: Call, task_id: str, status: ReportStatus, message: str, summary: str | None = None
) -> Answer:
    """Report a task of yours as completed or failed to your Admin. No send_message is needed."""
    task, sent = call.services.assignments.report_completion(call.me, task_id, status, message, summary)
    return {"task_id": task.id, "message_id": sent.message_id}


def get_dashboard(call: Call) -> Answer:
    """Counts, agents and tasks of this session."""
    dashboard = call.services.dashboard.data()
    tasks = dashboard.pop("tasks")
    fitted = call.fitting(dashboard, "tasks", tasks)
    truncated: Answer = {key: fitted.pop(key) for key in ("truncated", "how_to_continue") if key in fitted}
    return {"dashboard": fitted} | truncated


TOOLS = (
    Tool(send_task, roles=LEADERS),
    Tool(report_task_progress, roles=REPORTERS),
    Tool(report_task_completion, roles=REPORTERS),
    Tool(get_dashboard, roles=LEADERS, read_only=True),
)
