"""What `hook` looks at first of a host's call: who edits the same files, and who has reserved them (docs/protocol.md,
Edits). Like `hooks/first_look.py` it imports only what the interpreter loads quickly."""

from __future__ import annotations

import os
import time

from multi_agent_mcp.domain.matching import matches
from multi_agent_mcp.hooks.first_look import Noted, ToolCall, relative_paths, tool_call
from multi_agent_mcp.repository import edit_log
from multi_agent_mcp.system.file_status import is_settled, modified_at

TYPE_CHECKING = False  # a hook cannot wait for `typing`
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


def look(session_path: str, agent_id: str, event: Mapping[str, Any]) -> Noted:
    """Notes the edits of a call that was made, or checks one that is to be made, as far as that is possible quickly."""
    known = edit_log.settings(session_path)
    if known is None:
        return Noted(is_done=False)
    call = tool_call(event, known["tools"])
    if event["hook_event_name"] == "PreToolUse":
        is_judged = call.may_be_guarded or call.patches_in_shell or may_be_reserved(session_path, agent_id, call)
        return Noted(is_done=not is_judged)
    if not known.get("notes", True):
        return Noted(is_done=True)
    edited = edit_log.located(session_path, call.paths, call.cwd, known["repositories"])
    if not edited:
        return Noted(is_done=edited is not None)
    task_id = edit_log.task_in_hand(session_path, agent_id)
    edit_log.append(session_path, agent_id, edited, task_id)
    since = time.time() - known["minutes"] * 60
    is_news = task_id is not None and any(_is_news(session_path, agent_id, one, since) for one in edited)
    return Noted(is_done=not is_news, is_noted=True)


def may_be_reserved(session_path: str, agent_id: str, call: ToolCall) -> bool:
    """Whether another agent may have reserved one of these files where that is enforced, by the index of reservations
    alone. True if that is out of date."""
    seen = [modified_at(f"{session_path}/{name}") for name in ("reservations", "session.yaml")]
    if not call.paths or not seen[0]:
        return False
    paths = relative_paths(call)
    index = edit_log.read_json(f"{edit_log.directory(session_path)}/reservations.json") or {}
    if index.get("seen") != seen or not is_settled(seen[0], index.get("looked_at", 0)):
        return True
    return any(
        holder != agent_id and any(matches(patterns, path) for path in paths) for holder, patterns in index["reserved"]
    )


def _is_news(session_path: str, agent_id: str, edited: edit_log.Edited, since: float) -> bool:
    """Whether other agents with open tasks edit the same file, and that has not been told in this episode."""
    others = {
        edit.agent_id
        for edit in edit_log.others_at(session_path, agent_id, edited, since)
        if edit.task_id and os.path.exists(f"{session_path}/tasks/{edit.agent_id}/{edit.task_id}.md")  # noqa: PTH110
    }
    told_at, agents = edit_log.told(session_path).get(edit_log.told_key(edited), (0, ()))
    return bool(others) and (told_at < since or not others | {agent_id} <= set(agents))
