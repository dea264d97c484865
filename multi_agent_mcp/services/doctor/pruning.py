"""`prune`: the only thing here that deletes what could still be read, and only when a human asks for it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from multi_agent_mcp.store.tree import Tree
from multi_agent_mcp.store.workspace import Workspace

SCRATCH_SECONDS = 3600.0
OVER = {
    "ipc": "ipc/*/archive/*/*.md",
    "notifications": "notifications/*/archive/*/*.md",
    "owner_wait": "owner_wait/archive/*.md",
    "claims": ".claims/*/*.json",
    "scratch": ".tmp/*.tmp",
}
"""What is over as soon as it lies here, by kind."""


@dataclass(frozen=True)
class Prunable:
    path: Path
    kind: str
    size: int


class Pruning:
    """Finds and deletes what is over and older than an age. Unread mail and unfinished tasks are never prunable."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace

    def prunable(self, now: datetime, age: timedelta) -> list[Prunable]:
        """What would go: archived mail and notifications, ended agent sessions, released wait-locks, idempotency
        claims, scratch files of killed processes."""
        tree, border = Tree(self.workspace.files), (now - age).timestamp()
        found = [
            Prunable(path, kind, status.st_size)
            for kind, pattern in OVER.items()
            for path, status in tree.find(pattern)
            if status.st_mtime < (time.time() - SCRATCH_SECONDS if kind == "scratch" else border)
        ]
        ended = {path for partition in self.workspace.sessions.shelves() for path in self._ended(partition)}
        return found + [
            Prunable(path, "sessions", status.st_size)
            for path, status in tree.find("sessions/*/*.md")
            if path in ended and status.st_mtime < border
        ]

    def delete(self, items: list[Prunable]) -> None:
        for item in items:
            self.workspace.files.remove(item.path)

    def _ended(self, partition: str) -> Iterator[Path]:
        """The files of ended agent sessions, by their names: a hand-written header may hold any id."""
        directory = self.workspace.sessions.folder(partition)
        return (directory.path / name for name, entry in directory.entries().items() if entry.closed)
