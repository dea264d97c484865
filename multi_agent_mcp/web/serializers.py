"""Serializes entities as JSON-ready values for the pages, with texts cut to the part that is shown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from multi_agent_mcp.domain.entity import fields_of
from multi_agent_mcp.domain.task import Task, compare
from multi_agent_mcp.domain.times import format_time
from multi_agent_mcp.web.markdown import CHARACTERS_SHOWN, as_html, as_written

if TYPE_CHECKING:
    from multi_agent_mcp.domain.agent import Execution, HandOff
    from multi_agent_mcp.domain.message import Conversation, Message
    from multi_agent_mcp.domain.proof import Receipt

PREVIEW_CHARACTERS = 200
SUBJECT_CHARACTERS = 300
PAGE_HTML_CHARACTERS = 200_000


def moment(value: datetime | None) -> str | None:
    return format_time(value) if value else None


def task_card(task: Task, subtasks: Mapping[str, int] | None = None) -> dict[str, Any]:
    """A task's fields for the board. `subtasks` are the numbers of its subtasks by status."""
    children = subtasks or {}
    shown = ("title", "status", "priority", "assignee_id", "created_by", "requester_id", "parent_task_id", "progress")
    dated = ("approval_status", "completion_result", "created_at", "updated_at", "done_when", "proof")
    return {
        "task_id": task.id,
        **fields_of(task, *shown, *dated),
        "checklist": {
            "total": len(task.checklist),
            "completed": sum(item["completed"] for item in task.checklist),
        },
        "subtasks": {"total": sum(children.values()), "done": children.get("done", 0)},
        "blocked_reason": (task.blocked_reason or "")[:PREVIEW_CHARACTERS] or None,
        "status_changed_at": moment(task.status_since),
        "is_examined": task.is_examined,
    }


def task_whole(task: Task, subtasks: Iterable[Task]) -> dict[str, Any]:
    """A task's fields for its own panel."""
    children = list(subtasks)
    shown = ("dependencies", "blocked_reason", "completion_summary", "next_steps", "history")
    return {
        **task_card(task, Counter(child.status for child in children)),
        **fields_of(task, *shown, "status_changed_by", "started_at", "completed_at"),
        "description": shown_text(task.description),
        "checklist_items": compare(task.description, task.checklist),
        "subtask_cards": [task_card(child) for child in children],
    }


def receipt_row(receipt: Receipt) -> dict[str, Any]:
    """A receipt's fields for its task's panel; its output as plain text."""
    shown = ("check", "command", "exit_code", "failure", "finished_at", "head", "dirty", "changed_during", "machine")
    facts = fields_of(receipt, *shown, "seconds", "passed")
    return {"receipt_id": receipt.id, **facts, "last_lines": receipt.last_lines()}


def message_head(message: Message) -> dict[str, Any]:
    """A message's fields for a list."""
    return {
        **fields_of(message, "id", "sender_id", "receiver_id", "message_type", "priority", "created_at", "read_at"),
        "subject": message.subject[:SUBJECT_CHARACTERS],
        "preview": " ".join(message.content[: PREVIEW_CHARACTERS * 2].split())[:PREVIEW_CHARACTERS],
        **{name: _reference(message.metadata, name) for name in ("conversation_id", "task_id", "broadcast_id")},
    }


def message_whole(message: Message) -> dict[str, Any]:
    """A message's fields with its content."""
    return {**message_head(message), "subject": message.subject, "content": shown_text(message.content)}


def messages_whole(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Messages with their content, up to `PAGE_HTML_CHARACTERS` in total: beyond that the `content` of older messages
    is None."""
    room = PAGE_HTML_CHARACTERS
    found = []
    for message in reversed(messages):
        shown = message_whole(message) if room > 0 else {**message_head(message), "content": None}
        room -= len(shown["content"]["html"]) if shown["content"] else 0
        found.append(shown)
    return found[::-1]


def shown_text(text: str) -> dict[str, Any]:
    """An agent's text as safe HTML, with its full length. `as_written`: it is shown as plain text, because rendered
    Markdown would be too large or hide a word."""
    html = as_html(text)
    return {
        "html": as_written(text) if html is None else html,
        "as_written": html is None,
        "length": len(text),
        "truncated": len(text) > CHARACTERS_SHOWN,
    }


def conversation_head(conversation: Conversation) -> dict[str, Any]:
    belongs = ("initiator_id", "target_agent_id", "task_id", "delegation_id")
    shown = (*belongs, "purpose", "status", "started_at", "ended_at", "ended_by")
    return {"conversation_id": conversation.id, **fields_of(conversation, *shown)}


def execution_row(execution: Execution) -> dict[str, Any]:
    shown = ("agent_id", "task_id", "session_id", "status", "started_at", "completed_at")
    ended = ("duration_seconds", "exit_code", "error_message")
    return {"execution_id": execution.id, **fields_of(execution, *shown, *ended)}


def handoff_row(hand_off: HandOff) -> dict[str, Any]:
    shown = fields_of(hand_off, "agent_id", "task_id", "kind", "created_at", "content")
    return {"handoff_id": hand_off.id, **shown}


def _reference(metadata: Mapping[str, Any], name: str) -> str | None:
    value = metadata.get(name)
    return value if isinstance(value, str) else None
