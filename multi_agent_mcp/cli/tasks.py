"""The commands `task`, `send-task`, `wait`, `interrupt`, `resume`, `log` and `checks`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import click

from multi_agent_mcp.cli.agents import approve_all
from multi_agent_mcp.cli.context import (
    Id,
    OptionOf,
    SessionContext,
    delivery_line,
    delivery_lines,
    indented,
    session_command,
    text_of,
)
from multi_agent_mcp.cli.looking import commit_lines, entity_lines
from multi_agent_mcp.cli.rendering import (
    ago,
    approval_line,
    column_table,
    is_terminal,
    local_time,
    local_words,
    status_words,
    titled_table,
    words_of_code,
)
from multi_agent_mcp.cli.reviewing import diff, gate_lines, reject
from multi_agent_mcp.domain.delivery import UNTAKEN, Delivery
from multi_agent_mcp.domain.entity import as_json
from multi_agent_mcp.domain.task import TASK_PRIORITIES, TASK_STATUSES, Task
from multi_agent_mcp.domain.text import one_line
from multi_agent_mcp.domain.times import duration_words, format_time
from multi_agent_mcp.errors import InvalidArguments
from multi_agent_mcp.services.overview.snapshot import AWAY
from multi_agent_mcp.services.tasks.deliveries import FAILED, PASSED
from multi_agent_mcp.settings import Check, parse_done_when
from multi_agent_mcp.texts import Texts

if TYPE_CHECKING:
    from multi_agent_mcp.domain.agent import Execution
    from multi_agent_mcp.domain.notification import Notification
    from multi_agent_mcp.domain.proof import Receipt
    from multi_agent_mcp.services.sessions.session_records import Executions

ACTIONS = ("blocked", "cancel", "pause")

TASKS_SHOWN = 50
"""How many tasks a terminal gets at most, unless `--all` or `--limit` is given."""

TASK_ID = click.argument("task_id", type=Id("tsk"))
DONE_WHEN = click.option(
    "--done-when",
    metavar="CONDITIONS",
    help="What must be true before it is done: checks, review, review:AGENT (tests,review); empty for nothing.",
)


@click.group()
def task() -> None:
    """Tasks: add, list, show, diff, status, assign, approve, reject, verify."""


task.add_command(diff)
task.add_command(reject)


@task.command()
@click.argument("title")
@click.option("--description", default="", show_default=False, help="What is to be done.")
@click.option("--assignee", metavar="AGENT", help="Who does it (default: nobody yet); @worker, @any: whoever is free.")
@click.option("--priority", default="medium", type=click.Choice(TASK_PRIORITIES), help="How urgent it is.")
@click.option("--parent", metavar="TASK_ID", type=Id("tsk"), help="The task this is a part of.")
@click.option(
    "--depends-on", metavar="TASK_ID", type=Id("tsk"), multiple=True, help="A task that must be done first; repeatable."
)
@DONE_WHEN
@click.option(
    "--needs", metavar="SKILLS", default="", show_default=False, help="What whoever claims it must know (ui,python)."
)
@session_command(acting=True)
def add(
    context: SessionContext,
    title: str,
    description: str,
    assignee: str | None,
    priority: str,
    parent: str | None,
    depends_on: list[str] | None,
    done_when: str | None,
    needs: str,
) -> None:
    """Make a task: `todo` with an assignee, else `backlog`.

    Example: `multi-agent-mcp task add "Write the tests" --assignee worker-a`
    """
    from multi_agent_mcp.services.tasks.board import NewTask

    new = NewTask(
        title=title,
        description=description,
        priority=priority,
        assignee_id=assignee,
        dependencies=depends_on or (),
        done_when=None if done_when is None else parse_done_when(done_when),
        needs=[skill for skill in needs.split(",") if skill.strip()],
    )
    (task,) = context.services.task_creation.create(context.me, [new], parent)
    answer: dict[str, Any] = {"task_id": task.id, "status": task.status, "assignee_id": task.assignee_id}
    lines = [task.id]
    for notice in context.services.derived_notices.announced(task):
        ring = _ring_of(context, notice)
        answer["delivery"] = {notice.target_agent_id: ring.state}
        lines.append(delivery_line(context, notice.target_agent_id, ring))
    if assignee is not None and task.assignee_id is None:
        answer["delivery"] = {assignee: UNTAKEN}
        lines.append(delivery_line(context, assignee, Delivery(UNTAKEN)))
    context.answer(answer, lines)


@task.command("list")
@click.option("--status", type=click.Choice(TASK_STATUSES), help="Only tasks in this state.")
@click.option("--assignee", metavar="AGENT", help="Only this agent's.")
@click.option("--open", "only_open", is_flag=True, help="Only tasks that are not finished.")
@click.option("--all", "everything", is_flag=True, help=f"All of them; a terminal gets {TASKS_SHOWN} otherwise.")
@click.option("--limit", type=click.IntRange(1), help="How many at most.", show_default=False)
@session_command()
def list_tasks(
    context: SessionContext,
    status: str | None,
    assignee: str | None,
    only_open: bool,
    everything: bool,
    limit: int | None,
) -> None:
    """List tasks: first those in progress, then what waits, in the order of work; at the end the finished ones.

    Example: `multi-agent-mcp task list --open`
    """
    from multi_agent_mcp.services.tasks.board import summary_of

    if only_open and everything:
        context.wrong_use("either_or", one="--open", other="--all")
    assignee = context.services.agents.filtered(assignee)
    if limit is None and is_terminal() and not (everything or context.as_json):
        limit = TASKS_SHOWN
    shown, total = context.services.board.listed(status, assignee, only_open=only_open, limit=limit)
    records = [
        {
            **summary_of(task),
            "assignee_id": task.assignee_id,
            "progress": task.progress,
            **_reason(task),
            **_left(context, task),
        }
        for task in shown
    ]
    lines = [*column_table(context.texts, shown, _task_columns(context))] if shown else [context.texts("task.none")]
    if len(shown) < total:
        lines.append(context.texts("task.more", count=total - len(shown)))
    context.answer({"tasks": records, "total_count": total}, lines)


def _task_columns(context: SessionContext) -> dict[str, Callable[[Task], object]]:
    texts, now = context.texts, context.services.clock()
    return {
        "task": attrgetter("id"),
        "status": lambda task: status_words(task.status, texts),
        "for": lambda task: ago(task.status_since, now, texts),
        "priority": lambda task: words_of_code("priority", task.priority, texts),
        "assignee": lambda task: task.assignee_id or "-",
        "progress": lambda task: f"{task.progress}%",
        "title": lambda task: " — ".join(filter(None, (task.title, task.blocked_reason, _left_words(context, task)))),
    }


def _left(context: SessionContext, task: Task) -> dict[str, int]:
    count = context.services.delivery_records.uncommitted_count(task)
    return {"uncommitted": count} if count else {}


def _left_lines(context: SessionContext, task: Task) -> list[str]:
    """The sentence that names the files which a task that is done did not deliver."""
    if not (count := context.services.delivery_records.uncommitted_count(task)):
        return []
    return [
        context.texts(
            "task.uncommitted", count=count, files=", ".join(context.services.delivery_records.left_behind(task))
        )
    ]


def _left_words(context: SessionContext, task: Task) -> str | None:
    count = context.services.delivery_records.uncommitted_count(task)
    return context.texts("task.lacks", count=count) if count else None


def _reason(task: Task) -> dict[str, str]:
    return {"blocked_reason": task.blocked_reason} if task.blocked_reason else {}


def _delivery_key(task: Task, delivered: Mapping[str, Any]) -> str:
    """The key of the sentence about what a task delivers from a worktree."""
    if delivered["ahead"] == 0:
        return "task.nothing_delivered"
    if delivered["merged"]:
        return "task.merged"
    if task.status != "done":
        return "task.examined"
    return "task.delivered" if delivered["returned"] is None else "task.returned"


@task.command()
@TASK_ID
@session_command(acting=True)
def show(context: SessionContext, task_id: str) -> None:
    """Show a task with its history, and the receipts of its checks.

    Example: `multi-agent-mcp task show tsk_1a2b`
    """
    task = context.services.task_changes.get(task_id)
    context.services.shown_states.note(context.agent(None).id, [task])
    receipts = context.services.checks.receipts_of(task.id)
    features = context.services.session.features
    record = {**as_json(task), "proof": task.proof, "receipts": [item.as_answer() for item in receipts]}
    receipts = receipts if "proof" in features else []
    facts = features.shown("task", {"proof": task.proof if task.done_when else None})
    checked = [line for receipt in receipts for line in ("", *_receipt_lines(receipt, context.texts))]
    delivered = context.services.contributions.ask("delivered", task.id)
    if delivered is not None:
        key = _delivery_key(task, delivered)
        named = {"commit": delivered["commit"][:10], "branch": delivered["branch"] or "-", "task_id": task.id}
        named["agent_id"] = delivered["agent_id"]
        record |= {"delivery": {**(task.delivery or {}), **delivered}}
        named_files = ", ".join(delivered["files"])
        left = [context.texts("task.uncommitted", count=delivered["uncommitted"], files=named_files)]
        checked = ["", context.texts(key, **named), *(left if delivered["uncommitted"] else ()), *checked]
    commits = context.services.contributions.ask("commits", task) or []
    record |= {"commits": commits}
    checked = [*gate_lines(task, context.texts), *checked, *commit_lines(commits, context.texts)]
    if task.status == "blocked":
        checked = ["", context.texts("task.unblock", task_id=task.id), *checked]
    context.answer({"task": features.shown("task", record)}, [*entity_lines(task, context.texts, facts), *checked])


@task.command()
@TASK_ID
@click.argument(
    "status", metavar="STATUS", type=click.Choice(TASK_STATUSES), help=f"One of {', '.join(TASK_STATUSES)}."
)
@click.option("--reason", help="Why; shown as the task's blocked_reason.")
@click.option("--force", is_flag=True, help="Done although it is not proven; needs --reason, and shows as overruled.")
@session_command(acting=True)
def status(context: SessionContext, task_id: str, status: str, reason: str | None, *, force: bool) -> None:
    """Move a task. `blocked` and `cancelled` interrupt its assignee at the next tool call.

    Example: `multi-agent-mcp task status tsk_1a2b blocked --reason "wrong database"`
    """
    if force and status != "done":
        raise InvalidArguments("force_only_done")
    deliveries = context.services.deliveries
    if force:
        task, previous = deliveries.overrule(context.person, task_id, reason)
    else:
        task, previous = deliveries.set_status(context.me, task_id, status, reason)
    answer: dict[str, Any] = {
        "task_id": task.id,
        "previous_status": previous,
        "new_status": task.status,
        "interrupt_id": task.interrupt_id,
        **_left(context, task),
    }
    if status == "done" and task.done_when and not force:
        answer |= deliveries.outcome_of(task.id).as_answer()
    texts = context.texts
    away = _away_home(context, task.assignee_id)
    key = "task.interrupted" if away is None else "task.interrupted_later"
    interrupted = texts(key, agent_id=task.assignee_id, machine=away) if task.interrupt_id else ""
    said = (answer.get("last_lines") or "").splitlines()
    lines = [
        f"{task.id}: {status_words(previous, texts)} → {status_words(task.status, texts)}{interrupted}",
        *_left_lines(context, task),
    ]
    context.answer(answer, [*lines, *(indented("\n".join(said)) if said else ())])
    if answer.get("check") == FAILED:
        raise click.exceptions.Exit(1)


@task.command()
@TASK_ID
@session_command()
def verify(context: SessionContext, task_id: str) -> None:
    """Run a task's checks again, in its assignee's working directory; exits 1 if one fails.

    Example: `multi-agent-mcp task verify tsk_1a2b`
    """
    task, verdict = context.services.deliveries.verify(task_id)
    receipts = context.services.checks.receipts_of(task.id)
    newest = {item.check: item for item in receipts}
    answer = {
        "task_id": task.id,
        "status": task.status,
        "check": PASSED if verdict.failed is None else FAILED,
        "failed_check": verdict.failed,
        "last_lines": verdict.reason,
        "receipts": [newest[name].as_answer() for name in task.checks if name in newest],
    }
    checked = [newest[name] for name in task.checks if name in newest]
    context.answer(answer, [line for receipt in checked for line in _receipt_lines(receipt, context.texts)])
    if verdict.failed is not None:
        raise click.exceptions.Exit(1)


@task.command()
@TASK_ID
@click.argument("assignee", metavar="AGENT", required=False, help="If omitted, nobody.")
@session_command(acting=True)
def assign(context: SessionContext, task_id: str, assignee: str | None) -> None:
    """Hand a task to another agent, to whoever is free (`@worker`, `@any`), or to nobody.

    Example: `multi-agent-mcp task assign tsk_1a2b worker-a`
    """
    task, previous = context.services.task_changes.assign(context.me, task_id, assignee)
    answer = {"task_id": task.id, "assignee_id": task.assignee_id, "previous_assignee_id": previous}
    nobody = context.texts("task.nobody")
    context.answer(answer, [f"{task.id}: {previous or nobody} → {task.assignee_id or assignee or nobody}"])


@task.command()
@TASK_ID
@click.option("--reject", is_flag=True, help="Reject it instead.")
@click.option("--reason", help="Why; sent to the requester.")
@click.option(
    "--state", help="What was reviewed: the head that was shown, if the task may have been reported again since."
)
@session_command(acting=True)
def approve(context: SessionContext, task_id: str, reject: bool, reason: str | None, state: str | None) -> None:
    """Approve (or reject) a task that an agent requested for itself, or the result of one in review.

    Example: `multi-agent-mcp task approve tsk_1a2b`
    """
    was_reviewed = context.services.task_changes.get(task_id).status == "review"
    task = context.services.deliveries.decide(context.person, task_id, approve=not reject, reason=reason, state=state)
    decided = "rejected" if reject else "approved"
    answer = {"task_id": task.id, "approval_status": decided, "status": task.status}
    became = status_words(task.status if was_reviewed else decided, context.texts)
    context.answer(answer, [f"{task.id}: {became}"])


@click.command()
@click.argument("agent")
@click.argument("title")
@click.argument("content", help="What is to be done; `-` reads standard input.")
@click.option("--priority", default="medium", type=click.Choice(TASK_PRIORITIES), help="How urgent it is.")
@DONE_WHEN
@session_command(acting=True)
def send_task(
    context: SessionContext, agent: str, title: str, content: str, priority: str, done_when: str | None
) -> None:
    """Give an agent a task by mail. An Owner who gives one to an Admin then waits for its answer.

    Example: `multi-agent-mcp send-task admin "Login page" "Build it."`
    """
    services = context.services
    services.owner_waits.require_allowed(context.me, "send_task")
    conditions = None if done_when is None else parse_done_when(done_when)
    assigned = services.task_creation.send(context.me, agent, title, text_of(content), priority, conditions)
    texts = context.texts
    waits = [texts("task.waits", owner_id=context.me.id, agent_id=agent)] if assigned.waiting else []
    context.answer(assigned.as_answer(), [assigned.task.id, *delivery_lines(context, assigned.sent), *waits])


@click.group()
def wait() -> None:
    """The Owner's wait for an answer, which `send-task` begins."""


@wait.command()
@click.option("--reason", help="Why; written to the audit log.")
@session_command(acting=True)
def end(context: SessionContext, reason: str | None) -> None:
    """End the Owner's wait without an answer.

    Example: `multi-agent-mcp wait end --reason "it is late"`
    """
    waits = context.services.owner_waits
    wait = waits.of(context.me.id)
    answer = waits.unlock(context.me, context.me, reason)
    facts = {"agent_id": wait.admin_id, "task_id": wait.task_id} if wait is not None else {}
    ended = context.texts("task.wait_ended" if facts else "task.no_wait", owner_id=context.me.id, **facts)
    context.answer(answer, [one_line(ended)])


@click.command()
@click.argument("agent")
@click.option("--action", default="blocked", type=click.Choice(ACTIONS), help="What happens to its task.")
@click.option("--task", metavar="TASK_ID", type=Id("tsk"), help="Default: the task it works on.")
@click.option("--reason", help="Why; the agent reads it.")
@session_command(acting=True)
def interrupt(context: SessionContext, agent: str, action: str, task: str | None, reason: str | None) -> None:
    """Stop an agent: its next tool call of any kind is answered with the interrupt instead of the result.

    Example: `multi-agent-mcp interrupt worker-a --action pause --reason "lunch"`
    """
    notice = context.services.interrupting.interrupt(context.me, agent, action, task, reason)
    if notice is not None:
        _answer_sent(context, agent, notice)
        return
    facts = {"agent_id": agent, "action": action, "task_id": task}
    context.answer(
        {"notification_id": None, **facts}, [context.texts(f"interrupt.waited.{action}", agent_id=agent, task_id=task)]
    )


@click.command()
@click.argument("agent")
@click.option(
    "--tokens",
    cls=OptionOf,
    feature="usage",
    type=click.IntRange(1),
    help="How many more tokens it may use, where its budget was used up.",
)
@session_command(acting=True)
def resume(context: SessionContext, agent: str, tokens: int | None) -> None:
    """Let a paused agent go on.

    Example: `multi-agent-mcp resume worker-a`
    """
    notice = context.services.interrupting.resume(context.me, agent)
    if tokens is not None:
        context.services.contributions.ask("allow_tokens", context.services.agents.get(agent), tokens)
    _answer_sent(context, agent, notice)


@click.command()
@click.argument("execution_id", required=False, type=Id("exec"), help="If omitted, list the executions.")
@click.option("--agent", metavar="AGENT", help="Only this agent's executions.")
@click.option("--tail", default=100, type=click.IntRange(1), help="The last lines.")
@session_command()
def log(context: SessionContext, execution_id: str | None, agent: str | None, tail: int) -> None:
    """List executions, or print the log of one.

    Example: `multi-agent-mcp log --agent worker-a`
    """
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
    lines = column_table(context.texts, found, _execution_columns(context))
    context.answer({"executions": [_record(executions, item) for item in found]}, lines)


def _execution_columns(context: SessionContext) -> dict[str, Callable[[Execution], object]]:
    texts, now = context.texts, context.services.clock()

    def took(item: Execution) -> str:
        seconds = item.duration_seconds
        return "-" if seconds is None else duration_words(timedelta(seconds=seconds), texts, units=2)

    return {
        "execution": attrgetter("id"),
        "agent": attrgetter("agent_id"),
        "task": attrgetter("task_id"),
        "status": lambda item: status_words(item.status, texts),
        "started": lambda item: local_words(item.started_at, now, texts),
        "took": took,
    }


def _answer_sent(context: SessionContext, agent_id: str, notice: Notification) -> None:
    answer = {"notification_id": notice.id, "agent_id": agent_id, "action": notice.action, "task_id": notice.task_id}
    facts = {"agent_id": agent_id, "task_id": notice.task_id, "notice_id": notice.id}
    what = notice.action if notice.task_id or notice.action in ("pause", "resume") else "no_task"
    texts = context.texts
    ring = _ring_of(context, notice)
    line = delivery_line(context, agent_id, ring)
    if ring.state != "queued" and (away := _away_home(context, agent_id)) is not None:
        ring, line = Delivery("stored", "machine_away"), texts("interrupt.later", agent_id=agent_id, machine=away)
    answer |= {"state": ring.state, "reason": ring.reason}
    context.answer(answer, [texts(f"interrupt.sent.{what}", **facts), line])


def _ring_of(context: SessionContext, notice: Notification) -> Delivery:
    """Whether the agent was rung about a notification that was just written; its own server, or its machine, does so in
    a moment."""
    (known,) = context.services.tracking.progress([notice])
    state, reason = known["state"], known.get("reason")
    if state == "stored" and reason is None and context.services.sessions.served_purposes(notice.target_agent_id):
        reason = "recipient_server_rings"
    elif state == "stored" and reason is None and _is_elsewhere(context, notice.target_agent_id):
        reason = "other_machine" if _away_home(context, notice.target_agent_id) is None else "machine_away"
    return Delivery(state, reason)


def _is_elsewhere(context: SessionContext, agent_id: str) -> bool:
    agents = context.services.agents
    return agents.elsewhere(agents.get(agent_id)) is not None


def _away_home(context: SessionContext, agent_id: str | None) -> str | None:
    """Returns the agent's machine if it is away, so that nothing reaches the agent until it is back; else None."""
    home = context.services.machines.homes().get(agent_id or "")
    return home.machine if home is not None and home.state == AWAY else None


def _record(executions: Executions, execution: Execution) -> dict[str, Any]:
    return {**as_json(execution), "log_file_path": str(executions.log_path(execution))}


def _receipt_lines(receipt: Receipt, texts: Texts) -> Iterator[str]:
    """What a check has come to, and the end of its output if it failed."""
    outcome = PASSED if receipt.passed else f"{FAILED} ({receipt.failure or receipt.exit_code})"
    place = f"{receipt.head[:12]}{'+' if receipt.dirty else ''}"
    at = local_time(format_time(receipt.finished_at), texts)
    yield one_line(f"{at}  {receipt.id} {receipt.check}: {outcome}, {receipt.seconds:.1f} s, {place}")
    if not receipt.passed:
        yield from indented(receipt.last_lines())


# `checks`: lists what this machine would run.

CHECKS = ("check", "found", "minutes", "directory", "command")
FOUND = {True: "checks.found", False: "checks.missing", None: "checks.unknown"}


@click.group(invoke_without_command=True, subcommand_metavar="[approve]")
@session_command()
def checks(context: SessionContext) -> None:
    """List what this machine runs when a task that names it is called done, and whether a person has approved it; runs
    nothing.

    Example: `multi-agent-mcp checks`
    """
    if click.get_current_context().invoked_subcommand is not None:
        return
    service, texts = context.services.checks, context.texts
    settings = service.settings()
    listed = [(check, service.is_found(check)) for check in settings.checks.values()]
    rows = [
        (check.name, texts(FOUND[found]), f"{check.minutes:g}", check.directory, check.shown) for check, found in listed
    ]
    approval = context.services.approvals.look()
    answer = {
        "checks": [_check_record(check, found) for check, found in listed],
        "done_when": list(settings.done_when),
        "protected": list(settings.protected),
        "approval": approval.as_answer(),
    }
    always = texts("checks.always", conditions=", ".join(settings.done_when) or "-")
    table = titled_table(texts, CHECKS, rows) if rows else [texts("checks.none")]
    context.answer(answer, [*table, always, approval_line(approval, context.services.session.features, texts)])


@checks.command("approve")
@session_command()
def approve_checks(context: SessionContext) -> None:
    """Approve what session.yaml and team.yaml say now of checks, protected files, conditions, features, reservations
    and what agents may do. Only a person can.

    Example: `multi-agent-mcp checks approve`
    """
    approve_all(context)


def _check_record(check: Check, found: bool | None) -> dict[str, Any]:
    run = check.run if isinstance(check.run, str) else list(check.run)
    place = {"minutes": check.minutes, "directory": check.directory}
    return {"name": check.name, "run": run, **place, "program": check.program, "found": found}
