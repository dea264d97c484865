"""What `hook` remembers of an agent between its runs: `{session}/.hooks/{agent}.json`. Derived, may be deleted.

A host runs `hook` twice for every tool call, nearly always with nothing to say. So one small file says which events
have something to say as long as three directories do not change, and which files were unread then: should a directory
have changed, the heads of the other files tell whether one of them is unread. This module imports nothing that
the interpreter does not load quickly: pathlib and dataclasses alone take longer than the whole question.
"""

from __future__ import annotations

import json
import os
import time
from typing import Any

from multi_agent_mcp.system.file_status import careful, is_settled, modified_at

HEAD_BYTES = 4096


def state_path(session_path: str, agent_id: str, purpose: str, suffix: str = "json") -> str:
    """Ids hold no dots, so a chat session's file is nobody else's."""
    name = agent_id if purpose == "task" else f"{agent_id}.{purpose}"
    return f"{session_path}/.hooks/{name}.{suffix}"


def seen_now(session_path: str, agent_id: str) -> list[int]:
    """When the directories that decide about announcements last changed: an agent's mail, notifications and tasks."""
    return [modified_at(f"{session_path}/{kind}/{agent_id}") for kind in ("ipc", "notifications", "tasks")]


def settled_now(session_path: str, agent_id: str) -> list[int | None]:
    """As `seen_now`, with None for a directory that changed so lately that a further change could look the same."""
    looked_at = time.time_ns()
    return [changed if is_settled(changed, looked_at) else None for changed in seen_now(session_path, agent_id)]


def read_state(session_path: str, agent_id: str, purpose: str) -> dict[str, Any]:
    """The remembered state; empty when there is none that can be read."""
    try:
        with open(state_path(session_path, agent_id, purpose), "rb", opener=careful) as file:
            state = json.load(file)
    except (OSError, ValueError, RecursionError):
        return {}
    return state if isinstance(state, dict) else {}


def surely_silent(session_path: str, agent_id: str, purpose: str, event: str, host_session: str | None) -> bool:
    """Whether this event surely has nothing to say: what `hook` saw at its last run was announced, and
    nothing was added since. A session of the host that is not known yet has to be noted."""
    state = read_state(session_path, agent_id, purpose)
    try:
        (*boxes, tasks), speaks, unread = state["seen"], state["speaks"], state["unread"]
        if event in speaks or host_session not in (None, state["host_session"]):
            return False
        *boxes_now, tasks_now = seen_now(session_path, agent_id)
        if tasks != tasks_now:
            return False
        paths = (f"{session_path}/ipc/{agent_id}", f"{session_path}/notifications/{agent_id}")
        found = zip(paths, boxes, boxes_now, unread, strict=True)
        return not any(_added(path, set(names)) for path, before, after, names in found if before != after)
    except (KeyError, TypeError, ValueError, OSError):
        return False  # damaged by hand, or not made yet


def _added(directory: str, known: set[str]) -> bool:
    """Whether a file that was not unread before may be so now. One that was read says so in its head."""
    with os.scandir(directory) as found:
        names = [item.name for item in found if item.name.endswith(".md") and item.name[0] != "."]
    return not all(name in known or _is_read(f"{directory}/{name}") for name in names)


def _is_read(path: str) -> bool:
    """As we write it. A header that others wrote is left to the full parser."""
    with open(path, "rb", opener=careful) as file:
        header, _, _ = file.read(HEAD_BYTES).partition(b"\n---")
    return b"\nread_at: '2" in header or b"\nread_at: 2" in header
