"""The JSON API that the page itself uses (docs/api.md): one function per endpoint, from an `ApiRequest` to a JSON
object."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from multi_agent_mcp.web.api import agents, messages, overview, tasks
from multi_agent_mcp.web.request import ApiRequest

Endpoint = Callable[[ApiRequest], dict[str, Any]]

ENDPOINTS: tuple[tuple[str, str, Endpoint], ...] = (
    ("GET", "/session", overview.show_session),
    ("GET", "/team", overview.team),
    ("GET", "/attention", overview.attention),
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
    ("GET", "/agents/{agent_id}/files", agents.files),
    ("GET", "/agents/{agent_id}/pane", agents.pane),
    ("GET", "/agents/{agent_id}/scrollback", agents.scrollback),
    ("POST", "/agents/{agent_id}/answer", agents.answer_dialog),
    ("POST", "/agents/{agent_id}/line", agents.type_line),
    ("GET", "/questions", messages.list_questions),
    ("POST", "/questions/{question_id}/answer", messages.answer_question),
    ("GET", "/machines", overview.machines),
    ("GET", "/messages", messages.list_messages),
    ("POST", "/messages", messages.send),
    ("POST", "/messages/read", messages.mark_all_read),
    ("GET", "/messages/{message_id}", messages.show_message),
    ("POST", "/messages/{message_id}/read", messages.mark_read),
    ("POST", "/messages/{message_id}/reply", messages.reply),
    ("GET", "/conversations", messages.list_conversations),
    ("POST", "/conversations", messages.start_conversation),
    ("GET", "/conversations/{conversation_id}", messages.show_conversation),
    ("POST", "/conversations/{conversation_id}/messages", messages.say),
    ("POST", "/conversations/{conversation_id}/end", messages.end_conversation),
    ("GET", "/conversations/{conversation_id}/messages/{message_id}", messages.show_message_of_conversation),
    ("GET", "/executions", tasks.list_executions),
    ("GET", "/executions/{execution_id}/log", tasks.execution_log),
    ("GET", "/timeline", overview.show_timeline),
    ("GET", "/health", overview.health),
    ("GET", "/search", overview.search),
    ("GET", "/stats", overview.statistics),
)
"""Method, path below `/api`, handler. `/api/events` is a stream and handled in `app.py`."""
AT_THE_MACHINE = frozenset({agents.answer_dialog, agents.type_line})
"""The changes that anybody at this machine may make. All other changes are made in an agent's name, and so only on its
home machine."""
