"""Tools for an agent's own work: tasks, executions, logs (docs/protocol.md, Executions, Hand-offs)."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from multi_agent_mcp.domain.agent import Execution, ExecutionStatus
from multi_agent_mcp.domain.task import TaskStatus
from multi_agent_mcp.domain.times import format_time
from multi_agent_mcp.server.calls import UNLISTED, Answer, Call, Limit, Tool, written
from multi_agent_mcp.services.tasks.board import summary_of


def get_my_tasks(
    call: Call,
    status: Annotated[TaskStatus, UNLISTED] | None = None,
    limit: Limit = 20,
    before: str | None = None,
) -> Answer:
    """Your tasks, open ones first."""
    last = call.services.task_changes.get(before) if before is not None else None
    tasks, total = call.services.board.of(call.me.id, status, limit + 1, last)
    answer = {"agent_id": call.me.id, "total_count": total, "instruction": call.services.texts("tasks.mine")}

    def next_call(shown: Answer) -> str:
        return written("get_my_tasks", status=status, limit=limit, before=shown["task_id"])

    return call.page(answer, "tasks", [summary_of(task) for task in tasks[:limit]], next_call, more=len(tasks) > limit)


def hand_off(call: Call, content: str, task_id: str | None = None) -> Answer:
    """Write down what whoever goes on with your task must know: done, open, decisions, files
    (4000 characters). It is shown after a restart or compaction. task_id: the task in hand."""
    kept = call.services.hand_offs.write(call.me, content, task_id, call.session.record.task_id)
    return {
        "handoff_id": kept.hand_off.id,
        "path": str(kept.path.absolute()),
        "task_id": kept.hand_off.task_id,
        "message": call.services.texts("handoff.written"),
    }


def get_my_execution_history(
    call: Call,
    task_id: str | None = None,
    status: Annotated[ExecutionStatus, UNLISTED] | None = None,
    limit: Limit = 10,
    before: str | None = None,
) -> Answer:
    """Your executions (stretches of work), newest first."""
    executions = call.services.executions
    last = executions.get(call.me.id, before) if before is not None else None
    found, total = executions.history(call.me.id, task_id=task_id, status=status, limit=limit + 1, before=last)
    answer = {"agent_id": call.me.id, "total_count": total, "instruction": call.services.texts("executions.mine")}

    def next_call(shown: Answer) -> str:
        about = {"task_id": task_id, "status": status, "limit": limit}
        return written("get_my_execution_history", **about, before=shown["execution_id"])

    items = [_summary(call, execution) for execution in found[:limit]]
    return call.page(answer, "executions", items, next_call, more=len(found) > limit)


def get_execution_log(
    call: Call,
    execution_id: str,
    tail: Annotated[int, Field(ge=1, le=1000)] | None = None,
    offset: Annotated[int, Field(ge=0)] | None = None,
) -> Answer:
    """The log of an execution of yours: the last lines (tail, 100), or those from line offset on."""
    execution = call.services.executions.get(call.me.id, execution_id)
    page = call.services.executions.read_log(execution, tail=tail, offset=offset)
    newest_count = offset is None  # the part farthest from the requested end is left out if not all fits
    wanted = page.lines[::-1] if newest_count else page.lines
    fitting = call.fitting({}, "log_content", wanted)["log_content"]
    lines = fitting[::-1] if newest_count else fitting
    truncated = (offset or 0) + len(lines) < page.total
    return {
        "execution_id": execution.id,
        "task_id": execution.task_id,
        "status": execution.status,
        "log_file_path": str(call.services.executions.log_path(execution)),
        "log_content": lines,
        "total_lines": page.total,
        "returned_lines": len(lines),
        "truncated": truncated,
        "instruction": call.services.texts("log.truncated" if truncated else "log.whole"),
    }


def _summary(call: Call, execution: Execution) -> dict[str, Any]:
    return {
        "execution_id": execution.id,
        "task_id": execution.task_id,
        "task_title": call.services.task_changes.title(execution.task_id),
        "status": execution.status,
        "started_at": format_time(execution.started_at),
        "completed_at": format_time(execution.completed_at) if execution.completed_at else None,
        "duration_seconds": execution.duration_seconds,
        "exit_code": execution.exit_code,
        "has_log": call.services.executions.has_log(execution),
    }


TOOLS = (
    Tool(get_my_tasks, "My tasks", read_only=True),
    Tool(hand_off, "Hand off"),
    Tool(get_my_execution_history, "My executions", read_only=True),
    Tool(get_execution_log, "Execution log", read_only=True),
)
