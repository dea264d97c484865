"""What a tool call of a host does to files, found without any slow import (docs/protocol.md, Edits).

Which tools edit which files is data of the hosts (`hosts/*.yaml`: `edits`, `patches`, `shells`), here all hosts' in
one, as `.edits/hook.json` has them: a tool's name and the keys of its input.
"""

from __future__ import annotations

import os
import re
import time
from collections import namedtuple

from multi_agent_mcp.store import edit_log
from multi_agent_mcp.system.file_status import is_settled, modified_at, tree_of, within

TYPE_CHECKING = False  # a hook cannot wait for `typing`, nor for its NamedTuple
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

_PATCHED = r"(?m)^\*\*\* (?:(?:Add|Update|Delete) File|Move to): (.+?)\s*$"  # compiled where it is needed
PATCH = "*** Begin Patch"
_GUARDED = r"\b(stash|checkout|switch)\b"


class ToolCall(namedtuple("ToolCall", ("paths", "command", "cwd"), defaults=((), "", ""))):
    """A call of one of the host's own tools: the absolute paths of the files that it edits, the command that it runs in
    a shell, if any, and the directory where."""

    paths: Sequence[str]
    command: str
    cwd: str

    @property
    def patches_in_shell(self) -> bool:
        """Whether it edits files by a patch in a shell: Codex takes that for itself, and runs no hook afterwards."""
        return bool(self.paths) and PATCH in self.command

    @property
    def may_be_guarded(self) -> bool:
        """Whether the command may take work from others in the same repository."""
        _, git, rest = self.command.partition("git")
        return bool(git) and re.search(_GUARDED, rest) is not None


def tool_call(event: Mapping[str, Any], tools: Mapping[str, Mapping[str, Sequence[str]]]) -> ToolCall:
    """Parses a hook's event."""
    given, name = event.get("tool_input"), str(event.get("tool_name", ""))
    if not isinstance(given, dict):
        return ToolCall()
    cwd = event.get("cwd")
    base = cwd if isinstance(cwd, str) and cwd else os.getcwd()  # noqa: PTH109 - pathlib takes long to import

    def text(kind: str) -> str:
        values = (given.get(key) for key in tools.get(kind, {}).get(name, ()))
        return next((value for value in values if isinstance(value, str) and "\0" not in value), "")

    path, patch, command = text("edits"), text("patches"), text("shells")
    patch = patch or (command if PATCH in command else "")
    paths = [*([path] if path else []), *(re.findall(_PATCHED, patch) if patch else ())]
    return ToolCall([os.path.join(base, found) for found in dict.fromkeys(paths)], command, base)  # noqa: PTH118 - as above


class Noted(namedtuple("Noted", ("is_done", "is_noted"), defaults=(False,))):
    """What the quick look at an event has done: whether nothing remains to be done, and whether the edits of the call
    are in the log."""

    is_done: bool
    is_noted: bool


def look(session_path: str, agent_id: str, event: Mapping[str, Any]) -> Noted:
    """Notes the edits of a call that was made, or checks one that is to be made, as far as that is possible quickly."""
    if event.get("hook_event_name") not in ("PreToolUse", "PostToolUse") or "tool_input" not in event:
        return Noted(is_done=True)
    known = edit_log.settings(session_path)
    if known is None:
        return Noted(is_done=False)
    call = tool_call(event, known["tools"])
    if event["hook_event_name"] == "PreToolUse":
        is_judged = call.may_be_guarded or call.patches_in_shell or may_be_reserved(session_path, agent_id, call)
        return Noted(is_done=not is_judged)
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
        holder != agent_id and any(_matches(patterns, path) for path in paths) for holder, patterns in index["reserved"]
    )


def relative_paths(call: ToolCall) -> list[str]:
    """The files that the call edits, relative to the working tree."""
    found = ((tree_of(path) or call.cwd, path) for path in call.paths)
    return [path for tree, whole in found if (path := within(tree, whole)) is not None]


def _matches(patterns: Iterable[tuple[bool, str]], path: str) -> bool:
    found = False
    for includes, expression in patterns:
        if re.match(expression, path):
            found = includes
    return found


def _is_news(session_path: str, agent_id: str, edited: edit_log.Edited, since: float) -> bool:
    """Whether other agents with open tasks edit the same file, and that has not been told in this episode."""
    others = {
        edit.agent_id
        for edit in edit_log.others_at(session_path, agent_id, edited, since)
        if edit.task_id and os.path.exists(f"{session_path}/tasks/{edit.agent_id}/{edit.task_id}.md")  # noqa: PTH110
    }
    told_at, agents = edit_log.told(session_path).get(edit_log.told_key(edited), (0, ()))
    return bool(others) and (told_at < since or not others | {agent_id} <= set(agents))
