"""Which files of a session travel, and which of them have changed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

HAND_MADE = frozenset({"ipc", "tasks", "delegations", "conversations", "agents.json", "session.yaml"})
"""What people write by hand, too."""
TRAVELLING = HAND_MADE | {"notifications", "sessions", "executions", "owner_wait", "audit"}
_ASIDE = frozenset({"quarantine"})


def travels(path: Path) -> bool:
    """Whether a path, relative to the session's directory, is of a file that other machines have, too."""
    if not path.parts or path.parts[0] not in TRAVELLING or path.name.startswith(".") or _ASIDE & set(path.parts):
        return False
    logs = (".log",) if path.parts[0] == "executions" else (".jsonl",) if path.parts[0] == "audit" else ()
    return len(path.parts) == 1 or path.suffix in (".md", *logs)


def changed_since(base: Path, since: float) -> Iterator[tuple[float, Path]]:
    """The files below that travel and were changed since then, and when (seconds since the epoch; by `st_ctime`, which
    nobody can set back)."""
    pending = [str(base)]
    while pending:
        with suppress(FileNotFoundError), os.scandir(pending.pop()) as directory:  # it has been removed meanwhile
            for item in directory:
                path = Path(item.path).relative_to(base)
                if item.is_dir(follow_symlinks=False):
                    if path.parts[0] in TRAVELLING and item.name not in _ASIDE:
                        pending.append(item.path)
                elif travels(path) and item.is_file(follow_symlinks=False):
                    changed_at = _changed_at(item)
                    if changed_at is not None and changed_at >= since:
                        yield changed_at, path


def _changed_at(item: os.DirEntry[str]) -> float | None:
    """None for a file that was removed or archived meanwhile."""
    try:
        return item.stat(follow_symlinks=False).st_ctime
    except FileNotFoundError:
        return None
