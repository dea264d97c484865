"""Runs everything that only reads: all reading tools, all pages, doctor, timeline, hooks."""

from __future__ import annotations

import json
from pathlib import Path

from multi_agent_mcp.errors import Refusal
from multi_agent_mcp.hooks.answers import Event
from multi_agent_mcp.services.validation import Draft
from tests.fuzz.ground import AGENT, ask, context, seat
from tests.fuzz.guest import guest

READING = ("get_unread_count", "list_agents", "get_next_action", "get_pending_delegations", "get_task_conversations")
PAGES = ("/session", "/tasks", "/agents", "/messages", "/conversations", "/executions", "/timeline", "/health")


def look_everywhere(root: Path, *, lenient: bool = False) -> None:
    """`lenient`: who takes part may be nonsense, so opening a seat may be refused."""
    try:
        _by_tools(root)
        _by_pages(root)
    except Refusal:
        if not lenient:
            raise
    _by_services(root, lenient=lenient)


def _by_tools(root: Path) -> None:
    for agent_id, purpose in ((AGENT, "task"), (AGENT, "chat"), ("admin", "task")):
        taken = seat(root, agent_id, purpose)
        for tool in (*READING, "get_dashboard", "get_notifications", "read_messages"):
            ask(taken, tool, {})
        ask(taken, "read_messages", {"unread_only": False})
        taken.binding.close()


def _by_pages(root: Path) -> None:
    visitor = guest(root)
    for page in PAGES:
        reply = visitor.get(f"/api{page}")
        assert reply.status == 200, (page, reply.text)
        json.dumps(reply.json, allow_nan=False)


def _by_services(root: Path, *, lenient: bool) -> None:
    services = context(root)
    for finding in services.doctor(lambda _: None).examine(verify=True):
        json.dumps(finding.as_answer())
    try:
        for agent_id in services.agents.all():
            services.hooks.answer(agent_id, "task", Event("UserPromptSubmit", "host-1"))
            services.hooks.wake(agent_id, "task")
        json.dumps(services.snapshots.take().as_answer(), allow_nan=False)
        sent = services.messages.send(services.agents.get("admin"), Draft(content="x", receiver_id=AGENT))
        services.tracking.trace(sent.message_id)
        services.timeline.of(None, None)
    except Refusal:
        if not lenient:
            raise
