"""The state of `hook` between its runs, per agent: `{session}/.hooks/{agent}.json`. Derived, may be deleted.

A host runs `hook` twice for every tool call, nearly always with nothing to announce. So one small file says which
events have something to announce while three directories are unchanged; if mail or notifications have changed, only the
heads of the files changed since are examined. The file stays small, however much is unread. This module imports only
what the interpreter loads quickly: pathlib and dataclasses alone take longer than the whole check.
"""

from __future__ import annotations

import json
import os
import time

from multi_agent_mcp.system.file_status import RACY_NS, careful, in_place, is_settled, modified_at, signature_of

TYPE_CHECKING = False  # a hook cannot wait for `typing`
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

HEAD_BYTES = 4096
EMPTY_NS = 5_000_000_000
"""For so long an empty file counts as one that is being written (docs/format.md, Quarantine)."""
_KINDS = ("ipc", "notifications", "tasks")


def state_path(session_path: str, agent_id: str, purpose: str, suffix: str = "json") -> str:
    """The path of the state file; ids contain no dots, so a chat session's file belongs to no other agent."""
    name = agent_id if purpose == "task" else f"{agent_id}.{purpose}"
    return f"{session_path}/.hooks/{name}.{suffix}"


def look(session_path: str, agent_id: str) -> dict[str, Any]:
    """The modification times of the agent's mail, notifications and tasks directories, which determine announcements
    (`seen`), and the present time (`looked_at`), in nanoseconds."""
    looked_at = time.time_ns()
    return {"seen": [modified_at(f"{session_path}/{kind}/{agent_id}") for kind in _KINDS], "looked_at": looked_at}


def dated(look: Mapping[str, Any], session_path: str, agent_id: str) -> dict[str, Any]:
    """The look (see `look`) as it may be trusted: if a file that has just come is still empty, as if it had been at the
    time of that change, since what is written into the file changes no directory."""
    looked_at, places = look["looked_at"], [f"{session_path}/{kind}/{agent_id}" for kind in _KINDS]
    recent = {place: at for place, at in zip(places, look["seen"], strict=True) if looked_at - at < EMPTY_NS}
    files = (f"{place}/{name}" for place in recent for name in changed_since(place, looked_at - EMPTY_NS))
    is_written = any((found := signature_of(path)) is not None and not found[1] for path in files)
    return {**look, "looked_at": min(recent.values())} if is_written else {**look}


def read_state(session_path: str, agent_id: str, purpose: str) -> dict[str, Any]:
    """Reads the state; empty if there is none that can be read."""
    try:
        with open(state_path(session_path, agent_id, purpose), "rb", opener=careful) as file:
            state = json.load(file)
    except (OSError, ValueError, RecursionError):
        return {}
    return state if isinstance(state, dict) else {}


def surely_silent(session_path: str, agent_id: str, purpose: str, event: str, host_session: str | None) -> bool:
    """Whether this event certainly has nothing to announce: the last run has announced everything, and nothing was
    added since. False for an unknown session of the host, which has to be recorded."""
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
        return False  # damaged by hand, or not written yet


def changed_since(directory: str, moment: int) -> list[str]:
    """The names of the files that were added or changed at `moment` or later (nanoseconds), by their change times,
    which cannot be set by hand."""
    changed = []
    with in_place(directory) as place, os.scandir(place) as found:
        for item in found:
            if item.name.endswith(".md") and item.name[0] != ".":
                try:
                    if item.stat(follow_symlinks=False).st_ctime_ns > moment - RACY_NS:
                        changed.append(item.name)
                except FileNotFoundError:  # archived at this moment
                    continue
    return changed


def _has_news(directory: str, moment: int) -> bool:
    """Whether a file that has changed since `moment` may be unread, by the files' heads."""
    return not all(_is_read(f"{directory}/{name}") for name in changed_since(directory, moment))


def _is_read(path: str) -> bool:
    """Whether a file's head has `read_at` as this program writes it; other forms are left to the full parser."""
    with open(path, "rb", opener=careful) as file:
        header, _, _ = file.read(HEAD_BYTES).partition(b"\n---")
    return b"\nread_at: '2" in header or b"\nread_at: 2" in header
