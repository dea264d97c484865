"""UC010 (docs/protocol.md, Interrupts): the Owner sets a running task to `blocked`; the agent's next call is replaced
and it stops."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime

from multi_agent_mcp.cli.context import say
from multi_agent_mcp.cli.demo.stage import Stage
from multi_agent_mcp.domain.execution import Execution
from multi_agent_mcp.domain.task import Task
from multi_agent_mcp.domain.times import parse_time
from multi_agent_mcp.services.tasks.creation import NewTask

WORKER = "worker-a"
REASON = "仕様を見直します"


def play(stage: Stage, seconds: float, attach: bool) -> list[str]:
    """Plays it and prints the agent's log and the times from the Owner's command on. Returns what is missing."""
    services = stage.services
    new = NewTask(title="大きなリファクタリング", description="終わるまで続けてください。", assignee_id=WORKER)
    (task,) = services.task_creation.create(services.agents.owner(), [new])
    stage.open_windows()
    if not stage.wait_for(f"executions/{WORKER}", lambda: bool(_called(stage)), seconds):
        return [f"{WORKER} never began to work"]
    _block(stage, task)
    finished = stage.attach_until_finished(seconds) if attach else stage.wait_until_finished(seconds)
    after = services.task_changes.get(task.id)
    (execution,) = services.workspace.executions.all(WORKER)
    for line in (*_log(stage, execution), "", *_times(stage, after, execution)):
        say(line)
    late = [] if finished else [f"{WORKER} did not log out in time"]
    return late + _missing(stage, after, execution)


def _block(stage: Stage, task: Task) -> None:
    """The Owner's command, as a person would type it."""
    where = ["--root", str(stage.root), "--session", stage.services.session]
    command = ["task", "status", task.id, "blocked", "--reason", REASON]
    say(f"$ multi-agent-mcp {' '.join(command)}")
    subprocess.run([sys.executable, "-m", "multi_agent_mcp", *command, *where], check=True)


def _called(stage: Stage) -> list[str]:
    """The tool calls in the worker's log."""
    found = stage.services.workspace.executions.all(WORKER)
    return [line for item in found for line in _log(stage, item) if "Tool result" in line]


def _log(stage: Stage, execution: Execution) -> list[str]:
    return stage.services.executions.read_log(execution, tail=12).lines


def _times(stage: Stage, task: Task, execution: Execution) -> Iterator[str]:
    blocked_at = task.status_changed_at
    replaced_at = _replaced_at(stage, execution)
    if blocked_at and replaced_at and execution.completed_at:
        yield f"task set to blocked → answer replaced: {_ms(blocked_at, replaced_at)}"
        yield f"task set to blocked → report_completed: {_ms(blocked_at, execution.completed_at)}"


def _replaced_at(stage: Stage, execution: Execution) -> datetime | None:
    lines = [line for line in _log(stage, execution) if "replaced by an interrupt" in line]
    return parse_time(lines[0][1 : lines[0].index("]")]) if lines else None


def _missing(stage: Stage, task: Task, execution: Execution) -> list[str]:
    """The postconditions of UC010: status `blocked`, execution closed, notification read."""
    unread = stage.services.workspace.notices(WORKER).unread()
    wanted = {
        f"the task is {task.status}, not blocked": task.status == "blocked",
        "report_completed(result='blocked') is not in the task": task.completion_result == "blocked",
        "the execution is not closed as failed": execution.status == "failed" and execution.exit_code == 1,
        "the answer of a tool call was not replaced": _replaced_at(stage, execution) is not None,
        "the notification was not read": not unread,
    }
    return [problem for problem, holds in wanted.items() if not holds]


def _ms(start: datetime, end: datetime) -> str:
    return f"{(end - start).total_seconds() * 1000:.0f} ms"
