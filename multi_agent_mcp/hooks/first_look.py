"""What `hook` looks at first, at every tool call, nearly always to find that there is nothing to announce
(docs/protocol.md, Hooks, Edits). This module imports only what the interpreter loads quickly: pathlib and dataclasses
alone take longer than the whole look.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections import namedtuple

from multi_agent_mcp.system.file_status import (
    RACY_NS,
    careful,
    in_place,
    is_settled,
    modified_at,
    signature_of,
    tree_of,
    within,
)

TYPE_CHECKING = False  # a hook cannot wait for `typing`, nor for its NamedTuple
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

# The state of `hook` between its runs, per agent: `{session}/.hooks/{agent}.json`. Derived, may be deleted.
#
# One small file says which events have something to announce while three directories are unchanged; if mail or
# notifications have changed, only the heads of the files changed since are examined. The file stays small, however much
# is unread.

HEAD_BYTES = 4096
EMPTY_NS = 5_000_000_000
"""For so long an empty file counts as one that is being written (docs/format.md, Quarantine)."""
_KINDS = ("ipc", "notifications", "tasks")


def state_path(session_path: str, agent_id: str, purpose: str, suffix: str = "json") -> str:
    """The path of the state file; ids contain no dots, so a chat session's file belongs to no other agent."""
    name = agent_id if purpose == "task" else f"{agent_id}.{purpose}"
    return f"{session_path}/.hooks/{name}.{suffix}"


def boxes_now(session_path: str, agent_id: str) -> dict[str, Any]:
    """The modification times of the agent's mail, notifications and tasks directories, which determine announcements
    (`seen`), and the present time (`looked_at`), in nanoseconds."""
    looked_at = time.time_ns()
    return {"seen": [modified_at(f"{session_path}/{kind}/{agent_id}") for kind in _KINDS], "looked_at": looked_at}


def dated(look: Mapping[str, Any], session_path: str, agent_id: str) -> dict[str, Any]:
    """The look (see `boxes_now`) as it may be trusted: if a file that has just come is still empty, as if it had been
    at the time of that change, since what is written into the file changes no directory."""
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
    added since. False for an unknown session or process of the host, which has to be recorded."""
    state = read_state(session_path, agent_id, purpose)
    try:
        if event in state["speaks"] or host_session not in (None, state["host_session"]):
            return False
        if not _was_started_by(state.get("host", {}).get("pid", 0)):
            return False
        looked_at, now = state["looked_at"], boxes_now(session_path, agent_id)["seen"]
        mail, notices, tasks = (
            before == after and is_settled(before, looked_at) for before, after in zip(state["seen"], now, strict=True)
        )
        boxes = zip((mail, notices), ("ipc", "notifications"), state["seen"], now, strict=False)
        changed = ((kind, before, after) for unchanged, kind, before, after in boxes if not unchanged)
        return tasks and not any(
            after < before or _has_news(session_path, kind, agent_id, before) for kind, before, after in changed
        )
    except (KeyError, TypeError, ValueError, OSError):
        return False  # damaged, or not written yet


def _was_started_by(pid: int) -> bool:
    """Whether a process, if it is known, has started this one, directly or by others. A host that continues its
    conversation is another process."""
    parent = os.getppid()
    while pid and parent != pid and parent > 1:
        try:
            with open(f"/proc/{parent}/stat", "rb") as file:
                parent = int(file.read().rpartition(b")")[2].split()[1])
        except FileNotFoundError:
            return not os.path.exists("/proc/self")  # noqa: PTH110
    return pid in (0, parent)


def changed_since(directory: str, moment: int) -> list[str]:
    """The names of the files that were added or changed at `moment` or later (nanoseconds), by their change times,
    which nobody can set."""
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


def _has_news(session_path: str, kind: str, agent_id: str, moment: int) -> bool:
    """Whether a file that has changed since `moment` may be unread: by the files' heads, and by what the agent's
    running sessions say that they have handed out, as a read file that was put back is new."""
    directory = f"{session_path}/{kind}/{agent_id}"
    names = changed_since(directory, moment)
    if not all(_is_read(f"{directory}/{name}") for name in names):
        return True
    handed_out = _sessions_of(session_path, agent_id) if names else b""
    return not all(name.encode() in handed_out for name in names)


def _sessions_of(session_path: str, agent_id: str) -> bytes:
    """The files of the agent's running sessions, one after the other."""
    content = []
    with os.scandir(f"{session_path}/sessions/{agent_id}") as found:
        for item in found:
            if item.name.endswith(".md"):
                with open(item.path, "rb", opener=careful) as file:
                    content.append(file.read())
    return b"".join(content)


def _is_read(path: str) -> bool:
    """Whether a file's head has `read_at` as this program writes it; other forms are left to the full parser."""
    with open(path, "rb", opener=careful) as file:
        header, _, _ = file.read(HEAD_BYTES).partition(b"\n---")
    return b"\nread_at: '2" in header or b"\nread_at: 2" in header


# What a tool call of a host does to files. Which tools edit which files is data of the hosts (`hosts/*.yaml`: `edits`,
# `patches`, `shells`), here all hosts' in one, as `.edits/hook.json` has them: a tool's name and the keys of its input.

_PATCHED = r"(?m)^\s*\*\*\* *(?:(?:Add|Update|Delete) File|Move to): ?(.+?)\s*$"  # compiled where it is needed
"""Hosts take headers with blanks before them and before the path, some as a part of it."""
PATCH = "*** Begin Patch"
PATH_MAX, PATHS_MAX = 4_096, 1_000
"""The longest path that a system opens (path_resolution(7)), and the most files of one call that are looked at."""
_GUARDED = r"\b(stash|checkout|switch|clean)\b"
_QUOTING = r"""\\\n|[\\'"]"""


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
        _, git, rest = re.sub(_QUOTING, "", self.command).partition("git")
        return bool(git) and re.search(_GUARDED, rest) is not None


def _directory() -> str:
    """The working directory, by the name that it had if it was removed meanwhile."""
    try:
        return os.getcwd()  # noqa: PTH109 - here and below: pathlib takes long to import
    except FileNotFoundError:
        known = "/proc/self/cwd"
        return os.readlink(known).removesuffix(" (deleted)") if os.path.islink(known) else "/"  # noqa: PTH114, PTH115


def tool_call(event: Mapping[str, Any], tools: Mapping[str, Mapping[str, Sequence[str]]]) -> ToolCall:
    """Parses a hook's event."""
    given, name = event.get("tool_input"), str(event.get("tool_name", ""))
    if not isinstance(given, dict):
        return ToolCall()
    cwd = event.get("cwd")
    base = cwd if isinstance(cwd, str) and cwd else _directory()

    def text(kind: str) -> str:
        values = (given.get(key) for key in tools.get(kind, {}).get(name, ()))
        return next((value for value in values if isinstance(value, str) and "\0" not in value), "")

    path, patch, command = text("edits"), text("patches"), text("shells")
    patch = patch or (command if PATCH in command else "")
    patched = re.findall(_PATCHED, patch) if patch else ()
    paths = [*([path] if path else []), *(name for found in patched for name in (found, found.strip()) if name)]
    sound = dict.fromkeys(_located(base, found) for found in paths if len(found) <= PATH_MAX)
    return ToolCall([*sound][:PATHS_MAX], command, base)


def _located(base: str, path: str) -> str:
    """The absolute path that a host means: hosts take addresses, and `~`, too."""
    if path.startswith("file://"):
        from urllib.parse import unquote, urlsplit

        path = unquote(urlsplit(path).path)
    return os.path.join(base, os.path.expanduser(path))  # noqa: PTH111, PTH118 - as above


REPOSITORY = "multi_agent_mcp.repository.first_look"
"""The module of an optional folder that looks at calls, by name."""


class Noted(namedtuple("Noted", ("is_done", "is_noted"), defaults=(False,))):
    """What the quick look at an event has done: whether nothing remains to be done, and whether the edits of the call
    are in the log."""

    is_done: bool
    is_noted: bool


def look_at_call(session_path: str, agent_id: str, event: Mapping[str, Any]) -> Noted:
    """Notes the edits of a call that was made, or checks one that is to be made, as far as that is possible quickly."""
    if event.get("hook_event_name") not in ("PreToolUse", "PostToolUse") or "tool_input" not in event:
        return Noted(is_done=True)
    if event["hook_event_name"] == "PreToolUse" and _may_be_ruled(session_path):
        return Noted(is_done=False)
    try:
        look = __import__(REPOSITORY, fromlist=["look"]).look
    except ModuleNotFoundError:  # that folder is not here, and nobody else looks at calls
        return Noted(is_done=True)
    noted: Noted = look(session_path, agent_id, event)
    return noted


def _may_be_ruled(session_path: str) -> bool:
    """Whether agents of the session may have rules (`services/team/rules.py`)."""
    own = (b'"edits"', b'"commands"', b"\\u")  # or written in another way
    files = ("agents.json", "approved.json", ".checks/approved/last.json")
    for name, words in (("session.yaml", (b"roles",)), *((name, own) for name in files)):
        try:
            with open(f"{session_path}/{name}", "rb", opener=careful) as file:
                data = file.read()
        except OSError:
            continue
        if any(word in data for word in words):
            return True
    return False


def relative_paths(call: ToolCall) -> list[str]:
    """The files that the call edits, relative to the working tree: as it names them, and what links lead to."""
    named = dict.fromkeys(path for one in call.paths for path in (one, os.path.realpath(one)))
    found = ((tree_of(path) or call.cwd, path) for path in named)
    return [*dict.fromkeys(path for tree, whole in found if (path := within(tree, whole)) is not None)]
