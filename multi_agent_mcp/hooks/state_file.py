"""What `hook` remembers of an agent between its runs: `{session}/.hooks/{agent}.json`. Derived, may be deleted.

A host runs `hook` twice for every tool call, nearly always with nothing to say. So one small file says which events
have something to say as long as three directories do not change; should mail or notifications have changed, only the
files that were changed since then are looked at, and of those only the heads. However much is unread, the file stays
small. This module imports nothing that the interpreter does not load quickly: pathlib and dataclasses alone take longer
than the whole question.
"""

from __future__ import annotations

import json
import os
import time
from typing import Any

from multi_agent_mcp.system.file_status import RACY_NS, careful, in_place, is_settled, modified_at

HEAD_BYTES = 4096


def state_path(session_path: str, agent_id: str, purpose: str, suffix: str = "json") -> str:
    """Ids hold no dots, so a chat session's file is nobody else's."""
    name = agent_id if purpose == "task" else f"{agent_id}.{purpose}"
    return f"{session_path}/.hooks/{name}.{suffix}"


def look(session_path: str, agent_id: str) -> dict[str, Any]:
    """When the directories that decide about announcements last changed: an agent's mail, notifications and tasks; and
    when that was asked. In nanoseconds."""
    looked_at = time.time_ns()
    kinds = ("ipc", "notifications", "tasks")
    return {"seen": [modified_at(f"{session_path}/{kind}/{agent_id}") for kind in kinds], "looked_at": looked_at}


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
        if event in state["speaks"] or host_session not in (None, state["host_session"]):
            return False
        looked_at, now = state["looked_at"], look(session_path, agent_id)["seen"]
        mail, notices, tasks = (
            before == after and is_settled(before, looked_at) for before, after in zip(state["seen"], now, strict=True)
        )
        boxes = zip((mail, notices), ("ipc", "notifications"), state["seen"], now, strict=False)
        changed = ((kind, before, after) for unchanged, kind, before, after in boxes if not unchanged)
        return tasks and not any(
            after < before or _has_news(f"{session_path}/{kind}/{agent_id}", before) for kind, before, after in changed
        )
    except (KeyError, TypeError, ValueError, OSError):
        return False  # damaged by hand, or not made yet


def changed_since(directory: str, moment: int) -> list[str]:
    """The names of the files that were put there or changed when the directory's time was `moment`, or later: by their
    change times, which nobody can set."""
    changed = []
    with in_place(directory) as place, os.scandir(place) as found:
        for item in found:
            if item.name.endswith(".md") and item.name[0] != ".":
                try:
                    if item.stat(follow_symlinks=False).st_ctime_ns > moment - RACY_NS:
                        changed.append(item.name)
                except FileNotFoundError:  # moved on at this moment
                    continue
    return changed


def _has_news(directory: str, moment: int) -> bool:
    """Whether a file that has changed since may be unread. One that was read says so in its head."""
    return not all(_is_read(f"{directory}/{name}") for name in changed_since(directory, moment))


def _is_read(path: str) -> bool:
    """As we write it. A header that others wrote is left to the full parser."""
    with open(path, "rb", opener=careful) as file:
        header, _, _ = file.read(HEAD_BYTES).partition(b"\n---")
    return b"\nread_at: '2" in header or b"\nread_at: 2" in header
