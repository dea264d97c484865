"""Tools for tasks: handing over, reporting, the next action, and the board (docs/protocol.md, Tasks, Requests, Reports,
Next action)."""

from __future__ import annotations

import time
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from multi_agent_mcp.domain.task import ReportStatus, Task, TaskPriority, TaskStatus
from multi_agent_mcp.errors import TaskNotFound
from multi_agent_mcp.server.calls import LEADERS, REPORTERS, TASK, UNLISTED, Answer, Call, Tool, written
from multi_agent_mcp.services.tasks.board import NewTask, summary_of
from multi_agent_mcp.services.tasks.deliveries import CHECKING, FAILED, PASSED, Examined
from multi_agent_mcp.texts import json_size, shortened

AnyPriority = Literal["low", "normal", "medium", "high", "urgent"]
"""The priorities of tasks, and `normal`, the messages' word for `medium`: models mix them up."""


class ChecklistItem(BaseModel):
    model_config = ConfigDict(extra="forbid")

    text: str
    completed: bool = False


def send_task(
    call: Call,
    agent_id: str,
    title: str,
    content: str,
    priority: AnyPriority = "medium",
    done_when: list[str] | None = None,
) -> Answer:
    """Give a task to an agent below you. An Owner then waits for an [IPC] line: do not poll.
    done_when: checks' names, review, review:AGENT; it is done only when these are met."""
    wanted = "medium" if priority == "normal" else priority
    return call.services.task_creation.send(call.me, agent_id, title, content, wanted, done_when).as_answer()


def report_task_progress(
    call: Call,
    task_id: str,
    progress: Annotated[int, Field(ge=0, le=100)] | None = None,
    message: str | None = None,
    checklist: list[ChecklistItem] | None = None,
) -> Answer:
    """Tell your Admin the progress (0-100) of a task; send no message."""
    items = None if checklist is None else [item.model_dump() for item in checklist]
    task, current = call.services.task_reports.report_progress(call.me, task_id, progress, message, items)
    return {"task_id": task.id, "progress": current}


def report_task_completion(
    call: Call, task_id: str, status: ReportStatus, message: str, summary: str | None = None
) -> Answer:
    """Tell your Admin that a task is completed or failed; send no message."""
    services = call.services
    found = services.task_changes.get(task_id)
    if status == "completed" and services.deliveries.is_delivered(found):
        examined = _delivered(call, found.id, summary or message)
        return {
            "task_id": found.id,
            "message_id": examined.sent and examined.sent.message_id,
            "status": examined.task.status,
            **examined.as_answer(),
            **(_what_next(call, examined) or _exit_from(call, found.id)),
            **_left_behind(call, examined.task),
        }
    task, message_id = services.next_action.report_end(call.me, task_id, status, message, summary)
    return {"task_id": task.id, "message_id": message_id, **_exit_from(call, task.id), **_left_behind(call, task)}


def _exit_from(call: Call, task_id: str) -> Answer:
    """What a session does that has just reported the end of this task: nothing else, unless it was the one in hand."""
    in_hand = call.purpose == "task" and call.session.record.task_id in (None, task_id)
    return _exit(call) if in_hand else {}


def get_dashboard(call: Call, after: str | None = None) -> Answer:
    """Counts, agents and tasks of this session."""
    dashboard = call.services.dashboard.data()
    del dashboard["tasks_left_out"]  # the list is cut to its size below
    tasks = dashboard.pop("tasks")
    if after is not None:
        ids = [task["task_id"] for task in tasks]
        if after not in ids:
            raise TaskNotFound(task_id=f"{after:.60}")
        tasks = tasks[ids.index(after) + 1 :]
        del dashboard["agents"]  # they were shown before
    page = call.page(
        dashboard, "tasks", tasks, lambda last: written("get_dashboard", after=last["task_id"]), more=False
    )
    truncated: Answer = {key: page.pop(key) for key in ("truncated", "how_to_continue") if key in page}
    return {"dashboard": page} | truncated


LOOK_AGAIN_SECONDS = 2.0
"""The interval of polling in a waiting call: file events wake it, but not those of dependencies of other agents."""
BESIDE_BRIEFING = 8_600
"""The characters of an answer with the briefing, without the fields that are added to every answer."""


def get_next_action(call: Call, timeout_seconds: Annotated[float, Field(ge=0, le=600)] = 0) -> Answer:
    """What to do next, with its data: answer_question, work, review, read_messages, wait, exit …
    timeout_seconds (at most 600) waits until there is something."""
    deadline = time.monotonic() + timeout_seconds
    changes = call.binding.changes
    while True:
        seen = changes.count
        with call.services.agents.read_once():
            if call.purpose == "chat":
                leaves = call.closes_after_logout
                action = call.services.chat_action.next_action(call.me, call.session.record, leaves=leaves)
            else:
                action = call.services.next_action.next_action(call.me, call.session)
        remaining = deadline - time.monotonic()
        if action["action"] == "exit":
            return _briefed(call, action | {"instruction": call.how_to_exit()})
        if action["action"] != "wait" or remaining <= 0 or call.binding.is_over or call.interrupted():
            return _briefed(call, action)
        call.confirmation.give_turn()
        if call.binding.start_background():
            continue
        changes.wait(seen, min(remaining, LOOK_AGAIN_SECONDS))


def _briefed(call: Call, action: Answer) -> Answer:
    """The action with the briefing, if the agent is to get it by this answer (docs/protocol.md, Briefing)."""
    if not call.binding.needs_briefing():
        return action
    call.carries_briefing = True
    briefing = call.services.briefings.of(call.me.id, call.purpose, go_on="answer")
    return action | {"briefing": shortened(briefing, max(BESIDE_BRIEFING - json_size(action), 0))}


def report_completed(
    call: Call,
    result: Literal["success", "failed", "blocked"],
    summary: str | None = None,
    next_steps: str | None = None,
    task_id: str | None = None,
) -> Answer:
    """End your work on the task in hand; blocked also after an interrupt."""
    examined: Answer = {}
    task, only_obeys = call.services.next_action.reported_task(call.me, call.session, result, task_id)
    if task is None or only_obeys:
        call.services.next_action.obey(call.session, task)
    elif result == "success" and call.services.deliveries.is_delivered(task):
        delivered = _delivered(call, task.id, summary, next_steps)
        task, examined = delivered.task, delivered.as_answer() if delivered.task.done_when else {}
        if going_on := _what_next(call, delivered):
            return {"task_id": task.id, "status": task.status, **examined, **going_on, **_left_behind(call, task)}
    else:
        task = call.services.next_action.report_completed(call.me, call.session, result, summary, next_steps, task)
    return {
        "task_id": task and task.id,
        "status": task.status if task else "blocked",
        **examined,
        **_exit(call),
        **(_left_behind(call, task) if task else {}),
    }


def _exit(call: Call) -> Answer:
    """What a task session does whose work is over."""
    if stopped := call.services.next_action.still_to_stop(call.me, call.session):
        return {"action": "exit", "instruction": call.services.texts("next.exit.stopped", task_id=stopped)}
    more = call.services.next_action.has_more(call.me, call.session)
    return {"action": "exit", "instruction": call.services.texts("next.exit.more") if more else call.how_to_exit()}


def _delivered(call: Call, task_id: str, summary: str | None, next_steps: str | None = None) -> Examined:
    """Delivers a task with conditions; waits for the outcome of its checks, while other calls go on."""
    call.confirmation.give_turn()
    return call.binding.checking.deliver(call.me, task_id, summary, next_steps)


def _what_next(call: Call, examined: Examined) -> Answer:
    """What the assignee does as long as its checks have not passed: it goes on, or waits; nothing once they have."""
    if examined.check == PASSED:
        return {}
    action, text = ("work", "next.check_failed") if examined.check == FAILED else ("wait", "next.examined")
    return {"action": action, "instruction": call.services.texts(text)}


def _left_behind(call: Call, task: Task) -> Answer:
    """The commit that our server made for a delivery from a worktree, and what it lacks, as it was not committed."""
    delivery = call.services.delivery_records.of(task)
    if delivery is None:
        return {}
    answer: Answer = {"committed": delivery.commit} if delivery.by_server else {}
    if delivery.uncommitted:
        said = call.services.texts("worktree.uncommitted", count=delivery.uncommitted)
        answer["uncommitted"] = " ".join(filter(None, (said, delivery.held_back)))
    return answer


class BatchTask(BaseModel):
    model_config = ConfigDict(extra="forbid")

    title: str
    description: str = ""
    local_id: str | None = None
    priority: Annotated[TaskPriority, UNLISTED] = "medium"
    assignee_id: str | None = None
    status: Literal["backlog", "todo"] | None = None
    dependencies: list[str] = []
    done_when: list[str] | None = None
    needs: list[str] = []


def create_tasks_batch(call: Call, tasks: list[BatchTask], parent_task_id: str | None = None) -> Answer:
    """Create tasks, all or none. dependencies: local_ids of this batch, or task ids.
    status: backlog holds an assigned one back; assignee_id: or @any."""
    items = [NewTask(**task.model_dump()) for task in tasks]
    created = call.services.task_creation.create(call.me, items, parent_task_id)
    local_ids = {task.local_id: real.id for task, real in zip(tasks, created, strict=True) if task.local_id is not None}
    shown = [{**summary_of(task), "assignee_id": task.assignee_id} for task in created]
    facts = {"task_count": len(created), "local_id_to_real_id": local_ids}
    answer = call.fitting(facts, "tasks", shown)
    # no other answer has the ids of tasks that were made together
    return call.fitting(facts, "tasks", [{"task_id": task.id} for task in created]) if "truncated" in answer else answer


def assign_task(call: Call, task_id: str, assignee_id: str | None) -> Answer:
    """Assign a task to an agent below you, or to nobody (null). In the backlog it waits for todo."""
    purpose = "chat" if call.purpose == "chat" else None
    task, previous = call.services.task_changes.assign(call.me, task_id, assignee_id, purpose)
    return {"task_id": task.id, "assignee_id": task.assignee_id, "previous_assignee_id": previous}


def update_task_status(call: Call, task_id: str, status: TaskStatus, blocked_reason: str | None = None) -> Answer:
    """Move a task. blocked stops its assignee and blocks its open subtasks."""
    if status in ("done", "review"):
        task = call.services.task_changes.get(task_id)
        is_mine = task.assignee_id == call.me.id and task.status != "review"
        if is_mine and call.services.deliveries.is_delivered(task):
            examined = _delivered(call, task.id, None)
            moved = {"task_id": task.id, "previous_status": task.status, "new_status": examined.task.status}
            return {**moved, **examined.as_answer(), **_what_next(call, examined), **_left_behind(call, examined.task)}
    task, previous = call.services.deliveries.set_status(call.me, task_id, status, blocked_reason)
    if task.assignee_id == call.me.id:
        call.services.next_action.status_changed(call.session, task, blocked_reason)
    left = _left_behind(call, task) if task.status == "done" else {}
    return {"task_id": task.id, "previous_status": previous, "new_status": task.status, **left}


def request_task(call: Call, title: str, description: str = "", priority: TaskPriority = "medium") -> Answer:
    """Propose a task for yourself; a superior approves it."""
    new = NewTask(title=title, description=description, priority=priority)
    task, approvers = call.services.task_creation.request(call.me, new)
    return {"task_id": task.id, "approval_status": task.approval_status, "approvers": approvers}


def approve_task_request(
    call: Call, task_id: str, approve: bool, reason: str | None = None, state: str | None = None
) -> Answer:
    """Approve or reject a task requested below you, or the result of one in review (state: its head)."""
    task = call.services.deliveries.decide(call.me, task_id, approve=approve, reason=reason, state=state)
    checking = {"check": CHECKING} if task.status == "review" and call.services.deliveries.is_pending(task) else {}
    decided = "approved" if approve else "rejected"  # of what is in review, too, whose request was approved long ago
    return {"task_id": task.id, "approval_status": decided, "status": task.status, **checking}


TOOLS = (
    Tool(send_task, "Give task", roles=LEADERS),
    Tool(report_task_progress, "Report progress", roles=REPORTERS),
    Tool(report_task_completion, "Report result", roles=REPORTERS),
    Tool(get_dashboard, "Dashboard", roles=LEADERS, read_only=True),
    Tool(get_next_action, "Next action", always_load=True),
    Tool(report_completed, "End work", purposes=TASK, always_load=True),
    Tool(create_tasks_batch, "Create tasks", roles=LEADERS, purposes=TASK),
    Tool(assign_task, "Assign task", roles=LEADERS),
    Tool(update_task_status, "Move task", purposes=TASK),
    Tool(request_task, "Propose task"),
    Tool(approve_task_request, "Approve task", roles=LEADERS),
)
