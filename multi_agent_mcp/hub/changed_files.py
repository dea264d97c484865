"""The files of a session that are sent to the hub, and those of them that have changed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from multi_agent_mcp.domain.ids import is_name
from multi_agent_mcp.store import quarantine

HAND_MADE = frozenset({"ipc", "tasks", "delegations", "conversations", "agents.json", "session.yaml"})
"""Files and directories in which people may write by hand."""
TRAVELLING = HAND_MADE | {"notifications", "sessions", "executions", "owner_wait", "audit"}
_BY_AGENT = frozenset({"ipc", "notifications", "sessions", "executions"})
"""Directories that hold one directory for each agent, named by its id."""
_ASIDE = frozenset({quarantine.DIRECTORY})


def travels(path: Path) -> bool:
    """Returns whether a path, relative to the session's directory, is of a file that other machines have, too."""
    if not path.parts or path.parts[0] not in TRAVELLING or path.name.startswith(".") or _ASIDE & set(path.parts):
        return False
    if path.parts[0] in _BY_AGENT and not (len(path.parts) > 2 and is_name(path.parts[1])):
        return False  # such as a copy of an agent's directory, `ipc/worker-a.bak`
    logs = (".log",) if path.parts[0] == "executions" else (".jsonl",) if path.parts[0] == "audit" else ()
    return len(path.parts) == 1 or path.suffix in (".md", *logs)


class Changed(NamedTuple):
    """A changed file. `at` is its `st_ctime`, which cannot be set, in seconds since the epoch."""

    at: float
    path: Path
    status: os.stat_result


def changed_since(base: Path, since: float) -> Iterator[Changed]:
    """Yields the files below `base` that are sent to the hub and were changed since then."""
    pending = [str(base)]
    while pending:
        with suppress(FileNotFoundError), os.scandir(pending.pop()) as directory:  # it may be removed meanwhile
            for item in directory:
                path = Path(item.path).relative_to(base)
                if item.is_dir(follow_symlinks=False):
                    if path.parts[0] in TRAVELLING and item.name not in _ASIDE:
                        pending.append(item.path)
                elif travels(path) and item.is_file(follow_symlinks=False):
                    status = _status(item)
                    if status is not None and status.st_ctime >= since:
                        yield Changed(status.st_ctime, path, status)


def _status(item: os.DirEntry[str]) -> os.stat_result | None:
    """Returns a file's status; None if it was removed or archived meanwhile."""
    try:
        return item.stat(follow_symlinks=False)
    except FileNotFoundError:
        return None
