"""What to do next, and being done with it."""

from __future__ import annotations

import time
from typing import Annotated, Literal

from pydantic import Field

from multi_agent_mcp.server.call import Call
from multi_agent_mcp.server.toolbox import TASK, Answer, Tool

LOOK_AGAIN_SECONDS = 2.0
"""File events wake a waiting call; a dependency that another agent finishes lies in a folder that is not watched."""


def get_next_action(call: Call, timeout_seconds: Annotated[float, Field(ge=0, le=600)] = 0) -> Answer:
    """What to do next, with what it needs: work, review, read_messages, a delegation, a conversation, wait or exit.
    With timeout_seconds (at most 600) it waits until there is something."""
    deadline = time.monotonic() + timeout_seconds
    changes = call.binding.changes
    while True:
        seen = changes.count
        with call.services.agents.read_once():
            if call.purpose == "chat":
                action = call.services.chat_action.next_action(call.me, call.session.record)
            else:
                action = call.services.next_action.next_action(call.me, call.session)
        remaining = deadline - time.monotonic()
        if action["action"] != "wait" or remaining <= 0 or changes.closed or call.interrupted():
            return action
        changes.wait(seen, min(remaining, LOOK_AGAIN_SECONDS))


def report_completed(
    call: Call,
    result: Literal["success", "failed", "blocked"],
    summary: str | None = None,
    next_steps: str | None = None,
) -> Answer:
    """End your work on this session's task: success, failed, or blocked (also after an interrupt).
    Your superior is told."""
    task = call.services.next_action.report_completed(call.me, call.session, result, summary, next_steps)
    return {
        "task_id": task.id,
        "status": task.status,
        "action": "exit",
        "instruction": call.services.texts("next.exit"),
    }


TOOLS = (
    Tool(get_next_action, always_load=True),
    Tool(report_completed, purposes=TASK, always_load=True),
)
