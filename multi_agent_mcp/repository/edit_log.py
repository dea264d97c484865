"""The files that agents edit: `.edits/{agent_id}.jsonl`, a line for each edit, best effort (docs/protocol.md, Edits).

A host's hook appends a line after every edit, and looks in the other agents' files for the same path. So this module
imports only what the interpreter loads quickly, and reads no YAML: what it must know of the settings and the hosts is
in `.edits/hook.json`, which the next slow hook writes again when it is missing or older than session.yaml.
"""

from __future__ import annotations

import json
import os
import time
from collections import namedtuple

from multi_agent_mcp.system.file_status import careful, common_directory, modified_at, tree_of, within

TYPE_CHECKING = False  # a hook cannot wait for `typing`, nor for its NamedTuple
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Any

ROTATE_BYTES = 1 << 20
HEAD_BYTES = 2048
TASKS_LOOKED_AT = 200
HEADER_BYTES = 65_536
_IN_PROGRESS = b"\nstatus: in_progress\n"
_REPORTED = b"\nreported_at: '"  # the last key but those of others, after the history


class Edited(namedtuple("Edited", ("path", "repository"))):
    """A file that was edited: its path relative to the working tree, and the repository's id (`Repositories`), None
    outside of any."""

    path: str
    repository: str | None


class Edit(namedtuple("Edit", ("at", "path", "repository", "task_id", "agent_id"))):
    """A line of the log."""

    at: str
    path: str
    repository: str | None
    task_id: str | None
    agent_id: str


def directory(session_path: str) -> str:
    return f"{session_path}/.edits"


def settings(session_path: str) -> dict[str, Any] | None:
    """What a hook must know; None if it has to be written again (`repository/edits.py`)."""
    found = read_json(f"{directory(session_path)}/hook.json")
    is_current = found is not None and found.get("settings_at") == modified_at(f"{session_path}/session.yaml")
    return found if is_current else None


def located(session_path: str, paths: Iterable[str], cwd: str, known: Mapping[str, str]) -> list[Edited] | None:
    """The files at these absolute paths that are not the session's own, with the `known` ids of repositories; None if
    an id is not known yet. Outside of a working tree the directory of the host, `cwd`, is taken for one; a file
    outside of both is nobody's to agree on."""
    root = os.path.dirname(session_path)  # noqa: PTH120 - pathlib takes long to import
    found = []
    for path in paths:
        tree = tree_of(path)
        if within(root, path) is not None:
            continue
        repository = known.get(common_directory(tree)) if tree is not None else None
        if tree is not None and repository is None:
            return None
        if (place := within(tree or cwd, path)) is not None:
            found.append(Edited(place, repository))
    return found


def append(session_path: str, agent_id: str, edited: Iterable[Edited], task_id: str | None) -> None:
    """Appends a line for each file. Raises `OSError`."""
    path = f"{directory(session_path)}/{agent_id}.jsonl"
    lines = [
        json.dumps({"at": stamp(time.time()), "path": one.path, "task_id": task_id, "repository": one.repository})
        for one in edited
    ]
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600)
    try:
        os.write(descriptor, "".join(f"{line}\n" for line in lines).encode())
        is_full = os.fstat(descriptor).st_size > ROTATE_BYTES
    finally:
        os.close(descriptor)
    if is_full:
        os.replace(path, f"{path}.1")  # noqa: PTH105 - pathlib takes long to import


def others_at(session_path: str, agent_id: str, edited: Edited, since: float) -> list[Edit]:
    """The edits of the same file by other agents since a moment (seconds since the epoch), newest first for each."""
    return [edit for edit in edits_at(session_path, edited, since) if edit.agent_id != agent_id]


def edits_at(session_path: str, edited: Edited, since: float) -> list[Edit]:
    """The edits of a file by all agents since a moment, newest first for each agent."""
    needle = f'"path": {json.dumps(edited.path)}, '.encode()
    cutoff = stamp(since)
    found: list[Edit] = []
    for agent_id, data in _logs(session_path, since):
        end = data.rfind(needle)
        while end >= 0:
            start = data.rfind(b"\n", 0, end) + 1
            edit = _parsed(data[start : (data.find(b"\n", end) + 1) or None], agent_id)
            if edit is not None and edit.at < cutoff:
                break
            if edit is not None and edit.repository == edited.repository:
                found.append(edit)
            end = data.rfind(needle, 0, start)
    return found


def all_edits(session_path: str, since: float) -> Iterator[Edit]:
    """Yields all edits since a moment, of each agent newest first."""
    cutoff = stamp(since)
    for agent_id, data in _logs(session_path, since):
        for line in reversed(data.splitlines()):
            edit = _parsed(line, agent_id)
            if edit is not None and edit.at >= cutoff:
                yield edit


def task_in_hand(session_path: str, agent_id: str) -> str | None:
    """The id of a task that the agent works on, by the headers of its files; None if there is none."""
    place = f"{session_path}/tasks/{agent_id}"
    try:
        names = sorted(name for name in os.listdir(place) if name.endswith(".md"))  # noqa: PTH208 - as above
    except OSError:
        return None
    for name in names[:TASKS_LOOKED_AT]:
        try:
            with open(f"{place}/{name}", "rb", opener=careful) as file:
                if _IN_PROGRESS in (head := file.read(HEAD_BYTES)):
                    header, _, _ = (head + file.read(HEADER_BYTES)).partition(b"\n---\n")
                    if _REPORTED in header:
                        continue
                    return name.removesuffix(".md")
        except OSError:
            continue
    return None


def stamp(moment: float) -> str:
    """A moment (seconds since the epoch) as times are written in files: such texts sort by time."""
    micros = round(moment * 1_000_000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(micros // 1_000_000))}.{micros % 1_000_000:06d}Z"


def _logs(session_path: str, since: float) -> Iterator[tuple[str, bytes]]:
    """Yields the agents' logs that were written since a moment, the newer part of each first."""
    place = directory(session_path)
    try:
        names = sorted(os.listdir(place))  # noqa: PTH208 - as above
    except OSError:
        return
    for name in names:
        agent_id, _, suffix = name.partition(".")
        if suffix in ("jsonl", "jsonl.1") and modified_at(f"{place}/{name}") >= since * 1e9:
            try:
                with open(f"{place}/{name}", "rb", opener=careful) as file:
                    yield agent_id, file.read()
            except OSError:
                continue


def _parsed(line: bytes, agent_id: str) -> Edit | None:
    try:
        facts = json.loads(line)
        return Edit(str(facts["at"]), str(facts["path"]), facts["repository"], facts["task_id"], agent_id)
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def read_json(path: str) -> dict[str, Any] | None:
    try:
        with open(path, "rb", opener=careful) as file:
            found = json.load(file)
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


# What has been told of overlaps, so that a further edit of the same episode is silent.


def told(session_path: str) -> dict[str, Any]:
    """Returns when (seconds since the epoch) and to whom the overlaps of files were told last:
    `{key: [moment, [agent_id]]}`."""
    return read_json(f"{directory(session_path)}/told.json") or {}


def told_key(edited: Edited) -> str:
    return f"{edited.repository or ''}:{edited.path}"
