"""The commands `task add|list|show|status|assign|approve`, `send-task`, `unlock`, `interrupt`, `resume`, `log`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import click

from multi_agent_mcp.cli.context import SessionContext, column_table, delivery_lines, indented, session_command, text_of
from multi_agent_mcp.domain.entity import as_json
from multi_agent_mcp.domain.task import TASK_PRIORITIES, TASK_STATUSES, Task
from multi_agent_mcp.domain.text import display_id, one_line
from multi_agent_mcp.domain.times import format_time
from multi_agent_mcp.services.overview.machines import AWAY

if TYPE_CHECKING:
    from multi_agent_mcp.domain.notification import Notification
    from multi_agent_mcp.domain.session import Execution
    from multi_agent_mcp.services.sessions.executions import Executions

ACTIONS = ("blocked", "cancel", "pause")

TASK_COLUMNS: dict[str, Callable[[Task], object]] = {
    "task": attrgetter("id"),
    "status": attrgetter("status"),
    "priority": attrgetter("priority"),
    "assignee": lambda task: task.assignee_id or "-",
    "progress": lambda task: f"{task.progress}%",
    "title": attrgetter("title"),
}
EXECUTION_COLUMNS: dict[str, Callable[[Execution], object]] = {
    "execution": attrgetter("id"),
    "agent": attrgetter("agent_id"),
    "task": attrgetter("task_id"),
    "status": attrgetter("status"),
    "started": lambda item: format_time(item.started_at),
    "took": lambda item: "-" if item.duration_seconds is None else f"{item.duration_seconds:.1f} s",
}

TASK_ID = click.argument("task_id")


@click.group()
def task() -> None:
    """Tasks: add, list, show, move, assign, approve."""


@task.command()
@click.argument("title")
@click.option("--description", default="", show_default=False, help="What is to be done.")
@click.option("--assignee", metavar="AGENT", help="Who does it (default: nobody yet).")
@click.option("--priority", default="medium", type=click.Choice(TASK_PRIORITIES), help="How urgent it is.")
@click.option("--parent", metavar="TASK_ID", help="The task this is a part of.")
@click.option("--depends-on", metavar="TASK_ID", multiple=True, help="A task that must be done first; repeatable.")
@session_command(acting=True)
def add(
    context: SessionContext,
    title: str,
    description: str,
    assignee: str | None,
    priority: str,
    parent: str | None,
    depends_on: list[str] | None,
) -> None:
    """Make a task: `todo` with an assignee, else `backlog`."""
    from multi_agent_mcp.services.tasks.creation import NewTask

    new = NewTask(
        title=title,
        description=description,
        priority=priority,
        assignee_id=assignee,
        dependencies=depends_on or (),
    )
    (task,) = context.services.task_creation.create(context.me, [new], parent)
    context.answer({"task_id": task.id, "status": task.status, "assignee_id": task.assignee_id}, [task.id])


@task.command("list")
@click.option("--status", type=click.Choice(TASK_STATUSES), help="Only tasks in this state.")
@click.option("--assignee", metavar="AGENT", help="Only this agent's.")
@session_command()
def list_tasks(context: SessionContext, status: str | None, assignee: str | None) -> None:
    """List tasks, oldest first."""
    from multi_agent_mcp.services.tasks.board import summary_of

    assignee = context.services.agents.filtered(assignee)
    tasks = [
        task
        for task in context.services.board.all()
        if status in (None, task.status) and assignee in (None, task.assignee_id)
    ]
    records = [{**summary_of(task), "assignee_id": task.assignee_id, "progress": task.progress} for task in tasks]
    lines = column_table(context.texts, tasks, TASK_COLUMNS)
    context.answer({"tasks": records, "total_count": len(tasks)}, lines)


@task.command()
@TASK_ID
@session_command()
def show(context: SessionContext, task_id: str) -> None:
    """Show a task with its history."""
    task = context.services.task_changes.get(task_id)
    context.answer({"task": as_json(task)}, _task_lines(task))


@task.command()
@TASK_ID
@click.argument(
    "status", metavar="STATUS", type=click.Choice(TASK_STATUSES), help=f"One of {', '.join(TASK_STATUSES)}."
)
@click.option("--reason", help="Why; shown as the task's blocked_reason.")
@session_command(acting=True)
def status(context: SessionContext, task_id: str, status: str, reason: str | None) -> None:
    """Move a task. `blocked` and `cancelled` interrupt its assignee at the next tool call."""
    task, previous = context.services.task_changes.set_status(context.me, task_id, status, reason)
    answer = {
        "task_id": task.id,
        "previous_status": previous,
        "new_status": task.status,
        "interrupt_id": task.interrupt_id,
    }
    texts = context.texts
    away = _away_home(context, task.assignee_id)
    key = "task.interrupted" if away is None else "task.interrupted_later"
    interrupted = texts(key, agent_id=task.assignee_id, machine=away) if task.interrupt_id else ""
    context.answer(answer, [f"{task.id}: {previous} → {task.status}{interrupted}"])


@task.command()
@TASK_ID
@click.argument("assignee", metavar="AGENT", required=False, help="If omitted, nobody.")
@session_command(acting=True)
def assign(context: SessionContext, task_id: str, assignee: str | None) -> None:
    """Hand a task to another agent, or to nobody."""
    task, previous = context.services.task_changes.assign(context.me, task_id, assignee)
    answer = {"task_id": task.id, "assignee_id": task.assignee_id, "previous_assignee_id": previous}
    nobody = context.texts("task.nobody")
    context.answer(answer, [f"{task.id}: {previous or nobody} → {task.assignee_id or nobody}"])


@task.command()
@TASK_ID
@click.option("--reject", is_flag=True, help="Reject it instead.")
@click.option("--reason", help="Why; sent to the requester.")
@session_command(acting=True)
def approve(context: SessionContext, task_id: str, reject: bool, reason: str | None) -> None:
    """Approve (or reject) a task that an agent requested for itself."""
    task = context.services.task_changes.decide(context.me, task_id, approve=not reject, reason=reason)
    context.answer(
        {"task_id": task.id, "approval_status": task.approval_status}, [f"{task.id}: {task.approval_status}"]
    )


@click.command()
@click.argument("agent")
@click.argument("title")
@click.argument("content", help="What is to be done; `-` reads standard input.")
@click.option("--priority", default="medium", type=click.Choice(TASK_PRIORITIES), help="How urgent it is.")
@session_command(acting=True)
def send_task(context: SessionContext, agent: str, title: str, content: str, priority: str) -> None:
    """Give an agent a task by mail. An Owner who gives one to an Admin then waits for its answer."""
    services = context.services
    services.owner_waits.require_allowed(context.me, "send_task")
    assigned = services.task_creation.send(context.me, agent, title, text_of(content), priority)
    texts = context.texts
    waits = [texts("task.waits", owner_id=context.me.id, agent_id=agent)] if assigned.waiting else []
    context.answer(assigned.as_answer(), [assigned.task.id, *delivery_lines(assigned.sent, texts), *waits])


@click.command()
@click.option("--reason", help="Why; written to the audit log.")
@session_command(acting=True)
def unlock(context: SessionContext, reason: str | None) -> None:
    """End the Owner's wait without an answer."""
    waits = context.services.owner_waits
    wait = waits.of(context.me.id)
    answer = waits.unlock(context.me, context.me, reason)
    facts = {"agent_id": wait.admin_id, "task_id": wait.task_id} if wait is not None else {}
    ended = context.texts("task.wait_ended" if facts else "task.no_wait", owner_id=context.me.id, **facts)
    context.answer(answer, [one_line(ended)])


@click.command()
@click.argument("agent")
@click.option("--action", default="blocked", type=click.Choice(ACTIONS), help="What happens to its task.")
@click.option("--task", metavar="TASK_ID", help="Default: the task it works on.")
@click.option("--reason", help="Why; the agent reads it.")
@session_command(acting=True)
def interrupt(context: SessionContext, agent: str, action: str, task: str | None, reason: str | None) -> None:
    """Stop an agent: its next tool call of any kind is answered with the interrupt instead of the result."""
    notice = context.services.interrupting.interrupt(context.me, agent, action, task, reason)
    _answer_sent(context, agent, notice)


@click.command()
@click.argument("agent")
@click.option("--tokens", type=click.IntRange(1), help="How many more tokens it may use, where its budget was used up.")
@session_command(acting=True)
def resume(context: SessionContext, agent: str, tokens: int | None) -> None:
    """Let a paused agent go on."""
    notice = context.services.interrupting.resume(context.me, agent)
    if tokens is not None:
        context.services.usage.refresh()
        context.services.budgets.allow(context.services.agents.get(agent), tokens)
    _answer_sent(context, agent, notice)


@click.command()
@click.argument("execution_id", required=False, help="If omitted, list the executions.")
@click.option("--agent", metavar="AGENT", help="Only this agent's executions.")
@click.option("--tail", default=100, type=click.IntRange(1), help="The last lines.")
@session_command()
def log(context: SessionContext, execution_id: str | None, agent: str | None, tail: int) -> None:
    """List executions, or print the log of one."""
    executions = context.services.executions
    agent = context.services.agents.filtered(agent)
    if execution_id is not None:
        page = executions.read_log(executions.get(None, execution_id), tail=tail)
        answer = {
            "execution": _record(executions, page.execution),
            "log_content": page.lines,
            "total_lines": page.total,
        }
        context.answer(answer, page.lines)
        return
    found = executions.all(agent)
    lines = column_table(context.texts, found, EXECUTION_COLUMNS)
    context.answer({"executions": [_record(executions, item) for item in found]}, lines)


def _answer_sent(context: SessionContext, agent_id: str, notice: Notification) -> None:
    answer = {"notification_id": notice.id, "agent_id": agent_id, "action": notice.action, "task_id": notice.task_id}
    facts = {"agent_id": agent_id, "action": notice.action, "task_id": notice.task_id or "-", "notice_id": notice.id}
    texts = context.texts
    lines = [texts("interrupt.sent", **facts)]
    if (waits := context.services.tracking.waits(notice)) is not None:
        answer |= {"state": "queued", "reason": waits}
        lines.append(texts("sent.queued_because", agent_id=agent_id, reason=texts.words_of(waits)))
    elif (away := _away_home(context, agent_id)) is not None:
        answer |= {"state": "stored", "reason": "machine_away"}
        lines.append(texts("interrupt.later", agent_id=agent_id, machine=away))
    context.answer(answer, lines)


def _away_home(context: SessionContext, agent_id: str | None) -> str | None:
    """Returns the agent's machine if it is away, so that nothing reaches the agent until it is back; else None."""
    home = context.services.machines.homes().get(agent_id or "")
    return home.machine if home is not None and home.state == AWAY else None


def _record(executions: Executions, execution: Execution) -> dict[str, Any]:
    return {**as_json(execution), "log_file_path": str(executions.log_path(execution))}


def _task_lines(task: Task) -> Iterator[str]:
    for key, value in as_json(task).items():
        if key not in ("history", "description", "title") and value not in (None, [], {}):
            yield f"{key + ':':30}{one_line(str(value))}"
    yield ""
    yield one_line(task.title)
    yield ""
    yield from indented(task.description)
    yield ""
    for entry in as_json(task)["history"]:
        facts = ", ".join(f"{key} {_arrow(value)}" for key, value in entry.items() if key not in ("at", "by"))
        yield one_line(f"{entry.get('at', '-')}  {display_id(str(entry.get('by', '-')))}: {facts}")


def _arrow(value: Any) -> str:
    if isinstance(value, list):
        return " → ".join(map(_arrow, value))
    return "-" if value in (None, "") else str(value)
