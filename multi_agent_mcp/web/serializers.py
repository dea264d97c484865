"""Entities as JSON-ready values for the pages, with no more of a text than is shown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from multi_agent_mcp.domain.conversation import Conversation
from multi_agent_mcp.domain.execution import Execution
from multi_agent_mcp.domain.message import Message
from multi_agent_mcp.domain.task import Task
from multi_agent_mcp.domain.times import format_time
from multi_agent_mcp.web.markdown import CHARACTERS_SHOWN, as_html, as_written

PREVIEW_CHARACTERS = 200
SUBJECT_CHARACTERS = 300
PAGE_HTML_CHARACTERS = 200_000


def moment(value: datetime | None) -> str | None:
    return format_time(value) if value else None


def task_card(task: Task, subtasks: Mapping[str, int] | None = None) -> dict[str, Any]:
    """A task as the board shows it. `subtasks`: of each status how many."""
    children = subtasks or {}
    return {
        "task_id": task.id,
        "title": task.title,
        "status": task.status,
        "priority": task.priority,
        "assignee_id": task.assignee_id,
        "created_by": task.created_by,
        "requester_id": task.requester_id,
        "parent_task_id": task.parent_task_id,
        "progress": task.progress,
        "checklist": {
            "total": len(task.checklist),
            "completed": sum(item["completed"] for item in task.checklist),
        },
        "subtasks": {"total": sum(children.values()), "done": children.get("done", 0)},
        "approval_status": task.approval_status,
        "blocked_reason": (task.blocked_reason or "")[:PREVIEW_CHARACTERS] or None,
        "completion_result": task.completion_result,
        "created_at": moment(task.created_at),
        "updated_at": moment(task.updated_at),
        "status_changed_at": moment(task.status_changed_at or task.created_at),
    }


def task_whole(task: Task, subtasks: Iterable[Task]) -> dict[str, Any]:
    """A task as its own panel shows it."""
    children = list(subtasks)
    return {
        **task_card(task, Counter(child.status for child in children)),
        "description": shown_text(task.description),
        "checklist_items": [{"text": item["text"], "completed": item["completed"]} for item in task.checklist],
        "dependencies": list(task.dependencies),
        "blocked_reason": task.blocked_reason,
        "completion_summary": task.completion_summary,
        "next_steps": task.next_steps,
        "status_changed_by": task.status_changed_by,
        "started_at": moment(task.started_at),
        "completed_at": moment(task.completed_at),
        "subtask_cards": [task_card(child) for child in children],
        "history": [dict(entry) for entry in task.history],
    }


def message_head(message: Message) -> dict[str, Any]:
    """A message as a list shows it."""
    return {
        "id": message.id,
        "sender_id": message.sender_id,
        "receiver_id": message.receiver_id,
        "message_type": message.message_type,
        "priority": message.priority,
        "subject": message.subject[:SUBJECT_CHARACTERS],
        "preview": " ".join(message.content[: PREVIEW_CHARACTERS * 2].split())[:PREVIEW_CHARACTERS],
        "created_at": moment(message.created_at),
        "read_at": moment(message.read_at),
        "conversation_id": _reference(message.metadata, "conversation_id"),
        "task_id": _reference(message.metadata, "task_id"),
        "broadcast_id": _reference(message.metadata, "broadcast_id"),
    }


def message_whole(message: Message) -> dict[str, Any]:
    """A message with its content."""
    return {**message_head(message), "subject": message.subject, "content": shown_text(message.content)}


def messages_whole(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Messages with their content, up to `PAGE_HTML_CHARACTERS` in all: beyond it `content` is None, in the oldest ones
    first."""
    room = PAGE_HTML_CHARACTERS
    found = []
    for message in reversed(messages):
        shown = message_whole(message) if room > 0 else {**message_head(message), "content": None}
        room -= len(shown["content"]["html"]) if shown["content"] else 0
        found.append(shown)
    return found[::-1]


def shown_text(text: str) -> dict[str, Any]:
    """An agent's text as safe HTML, and how long it really is. `as_written`: as Markdown it would be too large, or hide
    a word."""
    html = as_html(text)
    return {
        "html": as_written(text) if html is None else html,
        "as_written": html is None,
        "length": len(text),
        "truncated": len(text) > CHARACTERS_SHOWN,
    }


def conversation_head(conversation: Conversation) -> dict[str, Any]:
    return {
        "conversation_id": conversation.id,
        "initiator_id": conversation.initiator_id,
        "target_agent_id": conversation.target_agent_id,
        "task_id": conversation.task_id,
        "delegation_id": conversation.delegation_id,
        "purpose": conversation.purpose,
        "status": conversation.status,
        "started_at": moment(conversation.started_at),
        "ended_at": moment(conversation.ended_at),
        "ended_by": conversation.ended_by,
    }


def execution_row(execution: Execution) -> dict[str, Any]:
    return {
        "execution_id": execution.id,
        "agent_id": execution.agent_id,
        "task_id": execution.task_id,
        "session_id": execution.session_id,
        "status": execution.status,
        "started_at": moment(execution.started_at),
        "completed_at": moment(execution.completed_at),
        "duration_seconds": execution.duration_seconds,
        "exit_code": execution.exit_code,
        "error_message": execution.error_message,
    }


def _reference(metadata: Mapping[str, Any], name: str) -> str | None:
    value = metadata.get(name)
    return value if isinstance(value, str) else None
