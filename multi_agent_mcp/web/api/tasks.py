"""The board: tasks by status, the moves allowed for each, and all changes of tasks; the executions and their logs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from multi_agent_mcp.domain.agent import Execution
from multi_agent_mcp.domain.proof import Receipt, reason_with
from multi_agent_mcp.domain.task import TASK_PRIORITIES, UNASSIGNED, Task
from multi_agent_mcp.doorbell.tmux.snapshot import pieces
from multi_agent_mcp.errors import InvalidArguments
from multi_agent_mcp.services.questions import as_answer
from multi_agent_mcp.services.tasks.board import Filter, NewTask
from multi_agent_mcp.services.validation import require_choice
from multi_agent_mcp.settings import parse_done_when
from multi_agent_mcp.system.git import GitFailed
from multi_agent_mcp.web.request import ApiRequest
from multi_agent_mcp.web.serializers import (
    conversation_head,
    delivery_row,
    execution_row,
    handoff_row,
    messages_whole,
    receipt_row,
    task_card,
    task_whole,
)

EXECUTIONS_SHOWN = 10
GROUPS = ("assignee", "superior", "priority")
HAND_OFFS_SHOWN = 5
MESSAGES_SHOWN = 30
RECEIPTS_SHOWN, RECEIPTS_WHOLE = 20, 4
DIFF_FILES, DIFF_BYTES = 1_000, 200_000


def board(call: ApiRequest) -> dict[str, Any]:
    """The columns of the board: for each status the number of tasks and a page of them, open tasks in the order of
    work, finished ones newest first. `?status=` selects one column, `?offset=` and `?limit=` the page; `?assignee=` (an
    agent, or `_unassigned`), `?superior=` (the agents directly below one), `?priority=` and `?words=` the tasks."""
    status, services = call.parameter("status"), call.services
    columns = services.board.columns(status, _wanted(call), offset=call.number("offset", 0), limit=call.limit)
    subtasks, overlaps = services.board.subtask_counts(), services.contributions.ask("shared_files") or {}

    def card(task: Task) -> dict[str, Any]:
        shared = overlaps.get(task.assignee_id or "", []) if task.is_worked_on else []
        return _with_targets(call, task, task_card(call.features, task, subtasks.get(task.id))) | {
            "shared_files": shared
        }

    shown = [
        {
            "status": column.status,
            "total": column.total,
            "more": column.more,
            "tasks": list(map(card, column.tasks)),
        }
        for column in columns
    ]
    return {"columns": shown}


def groups(call: ApiRequest) -> dict[str, Any]:
    """The open tasks of the board, selected as there, counted by `?by=assignee|superior|priority`: the largest group
    first, agents by name."""
    by = call.parameter("by") or GROUPS[0]
    require_choice("by", by, GROUPS)
    superiors = {agent.id: agent.parent_id for agent in call.services.agents.known().values()}
    keys: dict[str, Callable[[Task], str | None]] = {
        "assignee": lambda task: task.assignee_id,
        "superior": lambda task: superiors.get(task.assignee_id or ""),
        "priority": lambda task: task.priority,
    }
    found = call.services.board.groups(keys[by], _wanted(call))
    ranks = {name: rank for rank, name in enumerate(reversed(TASK_PRIORITIES))} if by == "priority" else {}
    order = sorted(found, key=lambda key: (key is None, ranks.get(key or "", 0), key or ""))
    return {"groups": [{"key": key, "counts": dict(found[key])} for key in order]}


def _wanted(call: ApiRequest) -> Filter:
    """The filter that the query names. Raises `InvalidArguments`, `InvalidId` and `AgentNotFound`."""
    assignee, superior, priority = (call.parameter(name) for name in ("assignee", "superior", "priority"))
    if priority is not None:
        require_choice("priority", priority, TASK_PRIORITIES)
    assignees = None if assignee is None else [assignee if assignee == UNASSIGNED else call.agent_id("assignee") or ""]
    if superior is not None:
        below = _below(call, None if superior == UNASSIGNED else call.agent_id("superior"))
        assignees = [name for name in below if assignees is None or name in assignees]
    return Filter(assignees=assignees, priority=priority, words=call.parameter("words") or "")


def _below(call: ApiRequest, superior: str | None) -> list[str]:
    """The agents directly below this one; without one those at the top, and nobody."""
    agents = call.services.agents.known().values()
    return [agent.id for agent in agents if agent.parent_id == superior] + ([] if superior else [UNASSIGNED])


def show(call: ApiRequest) -> dict[str, Any]:
    """One task with its subtasks, dependencies, conversations, messages, questions and executions."""
    services, features = call.services, call.features
    task = services.task_changes.get(call.path["task_id"])
    parents = services.board.existing([task.parent_task_id])
    record = task_whole(features, task, services.board.subtasks(task.id)) | {
        "parent_title": parents[0].title if parents else None,
        "dependency_cards": [task_card(features, item) for item in services.board.existing(task.dependencies)],
        "conversations": [conversation_head(item) for item in services.conversations.of_task(task.id)],
        "messages": messages_whole(services.mail_search.about_task(task.id, task.created_at, MESSAGES_SHOWN)),
        "receipts": _receipts(services.checks.receipts_of(task.id)[-RECEIPTS_SHOWN:]),
        "questions": [as_answer(question) for question in services.questions.about(task.id)],
        "handoffs": [handoff_row(item.hand_off) for item in services.hand_offs.all(task_id=task.id)[:HAND_OFFS_SHOWN]],
        "executions": [execution_row(item) for item in services.executions.of_task(task.id, EXECUTIONS_SHOWN)],
        "delivery": delivery_row(task, services.contributions.ask("delivered", task.id)),
        "commits": services.contributions.ask("commits", task) or [],
        "usage": [row.as_answer() for row in services.contributions.ask("usage_of_task", task.id) or ()],
    }
    return {"task": _with_targets(call, task, features.shown("task", record))}


def _receipts(receipts: Sequence[Receipt]) -> list[dict[str, Any]]:
    """The receipts, the newest of them with all that is kept of their output."""
    whole = receipts[-RECEIPTS_WHOLE:]
    lines = {item.id: item.output.rstrip().replace("\r\n", "\n").split("\n") for item in whole}
    drawn = {key: pieces(line.rpartition("\r")[2] for line in found) for key, found in lines.items()}
    return [receipt_row(item, drawn.get(item.id)) for item in receipts]


def create(call: ApiRequest) -> dict[str, Any]:
    """Creates a task: in `todo` with an assignee, else in `backlog`."""
    is_proven = "proof" in call.features
    new = NewTask(
        title=call.text("title"),
        description=call.optional_text("description") or "",
        priority=call.optional_text("priority") or "medium",
        assignee_id=call.optional_text("assignee_id"),
        done_when=parse_done_when(call.optional_text("done_when") if is_proven else None) or None,
    )
    (task,) = call.services.task_creation.create(call.me, [new], call.optional_text("parent_task_id"))
    return {"task": _with_targets(call, task, task_card(call.features, task))}


def set_status(call: ApiRequest) -> dict[str, Any]:
    """Moves a task; `blocked` and `cancelled` interrupt its assignee."""
    task, previous = call.services.deliveries.set_status(
        call.me, call.path["task_id"], call.text("status"), call.optional_text("reason")
    )
    return {
        "task": _with_targets(call, task, task_card(call.features, task)),
        "previous_status": previous,
        "interrupted": task.assignee_id if task.interrupt_id else None,
    }


def assign(call: ApiRequest) -> dict[str, Any]:
    """Assigns a task to another agent; `assignee_id` null unassigns it."""
    task, previous = call.services.task_changes.assign(call.me, call.path["task_id"], call.optional_text("assignee_id"))
    return {
        "task": _with_targets(call, task, task_card(call.features, task)),
        "previous_assignee_id": previous,
    }


def diff(call: ApiRequest) -> dict[str, Any]:
    """What a task changes: its files, at most 1 000 of them; with `?file=` the unified `text` of one, at most 200 000
    bytes of it (`cut`). `diff` is null where nobody knows, and `why` says so in a sentence."""
    task, path = call.services.task_changes.get(call.path["task_id"]), call.parameter("file")
    try:
        found = call.services.diffs.of(task)
    except (InvalidArguments, GitFailed) as refusal:
        return {"diff": None, "why": call.services.texts.sentence(refusal)}
    if path is not None:
        text, is_cut = found.text(found.of(path), DIFF_BYTES)
        return {"text": text.decode(errors="replace"), "cut": is_cut}
    answer = found.as_answer()
    return {"diff": {**answer, "files": answer["files"][:DIFF_FILES], "total": len(found.files)}}


def decide(call: ApiRequest) -> dict[str, Any]:
    """Approves or rejects a task that an agent requested for itself, or the result of one in review, with `remarks`
    (`file:line: text`) on what it changes."""
    task = call.services.deliveries.decide(
        call.me,
        call.path["task_id"],
        approve=call.flag("approve"),
        reason=reason_with(call.strings("remarks"), call.optional_text("reason")),
        state=call.optional_text("state"),
    )
    return {"task": _with_targets(call, task, task_card(call.features, task))}


def _with_targets(call: ApiRequest, task: Task, record: dict[str, Any]) -> dict[str, Any]:
    """The record with `targets`, which maps each other status to null, or to why the task cannot be moved there,
    whether the agent that works on it is `paused`, how many files were `uncommitted` when it became done, and whether
    it is approved and its checks run again (`rechecks`)."""
    sentence = call.services.texts.sentence
    refusals = call.services.task_changes.targets(call.me, task)
    worker = task.assignee_id if task.is_worked_on else None
    paused = worker is not None and call.services.derived_notices.pause_of(worker) is not None
    return record | {
        "paused": paused,
        "uncommitted": call.services.delivery_records.uncommitted_count(task),
        "rechecks": task.status == "review" and call.services.deliveries.is_pending(task),
        "targets": {status: refusal and sentence(refusal) for status, refusal in refusals.items()},
    }


LOG_LINES = 500


def list_executions(call: ApiRequest) -> dict[str, Any]:
    """The executions, running ones first, then newest first; `?agent=` selects one agent's."""
    found, total = call.services.executions.page(
        call.agent_id("agent"), offset=call.number("offset", 0), limit=call.limit
    )
    return {"executions": [_execution(call, item) for item in found], "total": total}


def execution_log(call: ApiRequest) -> dict[str, Any]:
    """At most 500 lines of a log, from line `?offset=` on, else the last ones; `next_offset` continues."""
    services = call.services
    execution = services.executions.get(None, call.path["execution_id"])
    follows = call.parameter("offset") is not None
    where = {"offset": call.number("offset", 0)} if follows else {"tail": LOG_LINES}
    found = services.executions.read_log(execution, **where)
    lines = found.lines[:LOG_LINES]
    first = where["offset"] if follows else found.total - len(lines)
    return {
        "execution": _execution(call, execution),
        "lines": lines,
        "offset": first,
        "next_offset": first + len(lines),
        "total": found.total,
    }


def _execution(call: ApiRequest, execution: Execution) -> dict[str, Any]:
    """An execution with its task's title, null if the task is gone."""
    tasks = call.services.board.existing([execution.task_id])
    return execution_row(execution) | {"task_title": tasks[0].title if tasks else None}
