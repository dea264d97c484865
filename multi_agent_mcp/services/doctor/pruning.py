"""`prune`: deletes what is over and old. Nothing else in the program deletes what could still be read."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path, PurePath

from multi_agent_mcp.services.doctor.tree import SCRATCH_SECONDS, Node, walk
from multi_agent_mcp.store.workspace import Workspace

PATTERNS = {
    "ipc/*/archive/*/*.md": "ipc",
    "notifications/*/archive/*/*.md": "notifications",
    "owner_wait/archive/*.md": "owner_wait",
    ".claims/*/*.json": "claims",
    ".tmp/*.tmp": "scratch",
}
"""Path in the session directory → kind. Ended agent sessions are recognised by their headers instead."""


@dataclass(frozen=True)
class Prunable:
    """A file that may go; `size` in bytes."""

    path: Path
    kind: str
    size: int


class Pruning:
    """Finds and deletes what is over and older than an age. Unread mail and unfinished tasks are never prunable."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace

    def prunable(self, now: datetime, age: timedelta) -> list[Prunable]:
        """Archived mail and notifications, ended agent sessions, released wait-locks, idempotency keys, and scratch
        files of killed processes, whose age does not depend on `age`."""
        oldest, oldest_scratch = (now - age).timestamp(), time.time() - SCRATCH_SECONDS
        return [
            Prunable(node.path, kind, node.status.st_size)
            for node, kind in self._candidates()
            if node.status.st_mtime < (oldest_scratch if kind == "scratch" else oldest)
        ]

    def delete(self, items: list[Prunable]) -> None:
        for item in items:
            self.workspace.files.remove(item.path)

    def _candidates(self) -> Iterator[tuple[Node, str]]:
        ended = self._ended_sessions()
        for node in walk(self.workspace.path):
            kind = "sessions" if node.path in ended else _kind(PurePath(node.name))
            if kind is not None and not node.is_directory:
                yield node, kind

    def _ended_sessions(self) -> set[Path]:
        """By their files' names: a hand-written header may hold any id."""
        folders = map(self.workspace.sessions.directory, self.workspace.sessions.partitions())
        return {folder.path / name for folder in folders for name, entry in folder.entries().items() if entry.closed}


def _kind(path: PurePath) -> str | None:
    for pattern, kind in PATTERNS.items():
        if len(path.parts) == pattern.count("/") + 1 and path.match(pattern):
            return kind
    return None
