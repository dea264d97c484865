"""What `hook` remembers of an agent between its runs: `{session}/.hooks/{agent}.json`. Derived, may be deleted.

A host runs `hook` twice for every tool call, nearly always with nothing to say. So one small file says which events
have something to say as long as three directories do not change, and this module asks the operating system for no
more than that: it imports nothing that the interpreter does not load quickly (pathlib, re and dataclasses take longer
than the whole question).
"""

from __future__ import annotations

import json
import os
import time
from typing import Any

RACY_NS = 50_000_000
"""A directory that changed less than this before it was looked at may change again within the same tick of the
kernel's clock; see `Folder`."""


def state_path(session_path: str, agent_id: str, purpose: str, suffix: str = "json") -> str:
    """Ids hold no dots, so a chat session's file is nobody else's."""
    name = agent_id if purpose == "task" else f"{agent_id}.{purpose}"
    return f"{session_path}/.hooks/{name}.{suffix}"


def seen_now(session_path: str, agent_id: str) -> list[int]:
    """When the directories that decide what an agent is told last changed: its mail, notifications and tasks."""
    return [_changed(f"{session_path}/{kind}/{agent_id}") for kind in ("ipc", "notifications", "tasks")]


def trustworthy(seen: list[int]) -> list[int] | None:
    """`seen`, unless one of the directories changed so lately that a further change could look the same."""
    return seen if time.time_ns() - max(seen) > RACY_NS else None


def read_state(session_path: str, agent_id: str, purpose: str) -> dict[str, Any]:
    """The remembered state; empty when there is none that can be read."""
    try:
        with open(state_path(session_path, agent_id, purpose), "rb") as file:
            state = json.load(file)
    except (OSError, ValueError):
        return {}
    return state if isinstance(state, dict) else {}


def surely_silent(session_path: str, agent_id: str, purpose: str, event: str, host_session: str | None) -> bool:
    """Whether this event surely has nothing to say: nothing has changed since `hook` last looked, and what it saw
    then is no news for this event. A session of the host that is not known yet is news."""
    state = read_state(session_path, agent_id, purpose)
    return (
        state.get("seen") is not None
        and event not in state.get("speaks", ())
        and host_session in (None, state.get("host_session"))
        and state["seen"] == seen_now(session_path, agent_id)
    )


def _changed(directory: str) -> int:
    try:
        return os.stat(directory).st_mtime_ns  # noqa: PTH116 - pathlib takes longer to import than all of this
    except OSError:
        return 0
