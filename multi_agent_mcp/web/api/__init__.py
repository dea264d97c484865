"""The JSON API that the page itself uses (docs/api.md): one function per endpoint, from an `ApiRequest` to a JSON
object."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from multi_agent_mcp.web.api import (
    agents,
    attention,
    conversations,
    executions,
    files,
    machines,
    messages,
    page_frame,
    panes,
    questions,
    search,
    stats,
    tasks,
    timeline,
)
from multi_agent_mcp.web.request import ApiRequest

Endpoint = Callable[[ApiRequest], dict[str, Any]]

ENDPOINTS: tuple[tuple[str, str, Endpoint], ...] = (
    ("GET", "/session", page_frame.show),
    ("GET", "/team", page_frame.team),
    ("GET", "/attention", attention.show),
    ("GET", "/tasks", tasks.board),
    ("POST", "/tasks", tasks.create),
    ("GET", "/tasks/groups", tasks.groups),
    ("GET", "/tasks/{task_id}", tasks.show),
    ("POST", "/tasks/{task_id}/status", tasks.set_status),
    ("POST", "/tasks/{task_id}/assignee", tasks.assign),
    ("POST", "/tasks/{task_id}/decision", tasks.decide),
    ("GET", "/agents", agents.tree),
    ("GET", "/agents/{agent_id}", agents.show),
    ("POST", "/agents/{agent_id}/interrupt", agents.interrupt),
    ("POST", "/agents/{agent_id}/resume", agents.resume),
    ("POST", "/agents/{agent_id}/release", agents.release),
    ("GET", "/agents/{agent_id}/files", files.of_agent),
    ("GET", "/agents/{agent_id}/pane", panes.show),
    ("GET", "/agents/{agent_id}/scrollback", panes.scrollback),
    ("POST", "/agents/{agent_id}/answer", panes.answer),
    ("POST", "/agents/{agent_id}/line", panes.line),
    ("GET", "/questions", questions.page),
    ("POST", "/questions/{question_id}/answer", questions.answer),
    ("GET", "/machines", machines.show),
    ("GET", "/messages", messages.page),
    ("POST", "/messages", messages.send),
    ("POST", "/messages/read", messages.mark_all_read),
    ("GET", "/messages/{message_id}", messages.show),
    ("POST", "/messages/{message_id}/read", messages.mark_read),
    ("POST", "/messages/{message_id}/reply", messages.reply),
    ("GET", "/conversations", conversations.page),
    ("POST", "/conversations", conversations.start),
    ("GET", "/conversations/{conversation_id}", conversations.show),
    ("POST", "/conversations/{conversation_id}/messages", conversations.say),
    ("POST", "/conversations/{conversation_id}/end", conversations.end),
    ("GET", "/conversations/{conversation_id}/messages/{message_id}", conversations.message),
    ("GET", "/executions", executions.page),
    ("GET", "/executions/{execution_id}/log", executions.log),
    ("GET", "/timeline", timeline.show),
    ("GET", "/health", page_frame.health),
    ("GET", "/search", search.find),
    ("GET", "/stats", stats.show),
)
"""Method, path below `/api`, handler. `/api/events` is a stream and handled in `app.py`."""
AT_THE_MACHINE = frozenset({panes.answer, panes.line})
"""The changes that anybody at this machine may make. All other changes are made in an agent's name, and so only on its
home machine."""
