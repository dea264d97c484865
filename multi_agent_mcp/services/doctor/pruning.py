"""`prune`: the only thing here that deletes what could still be read, and only when a human asks for it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from multi_agent_mcp.errors import StorageError
from multi_agent_mcp.store.workspace import Workspace
from multi_agent_mcp.system.disk import storage_errors

SCRATCH_SECONDS = 3600.0


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
        scratch = ((path, "scratch", time.time() - SCRATCH_SECONDS) for path in self._scratch())
        old = ((path, kind, (now - age).timestamp()) for path, kind in self._candidates())
        return [  # what goes meanwhile, because others are at work, is passed over
            Prunable(path, kind, status.st_size)
            for path, kind, border in (*old, *scratch)
            if (status := _status(path)) is not None and status.st_mtime < border and self._is_inside(path)
        ]

    def delete(self, items: list[Prunable]) -> None:
        for item in items:
            with storage_errors(item.path):
                item.path.unlink(missing_ok=True)

    def _is_inside(self, path: Path) -> bool:
        try:
            self.workspace.files.containment.require(path.parent)
        except StorageError:
            return False
        return True

    def _candidates(self) -> Iterator[tuple[Path, str]]:
        base = self.workspace.path
        for kind in ("ipc", "notifications"):
            for path in (base / kind).glob("*/archive/*/*.md"):
                yield path, kind
        for path in (base / "owner_wait" / "archive").glob("*.md"):
            yield path, "owner_wait"
        for path in (base / ".claims").glob("*/*.json"):
            yield path, "claims"
        for shelf in self.workspace.sessions.shelves():
            folder = self.workspace.sessions.folder(shelf)
            for name, entry in folder.entries().items():  # by their names: a hand-written header may hold any id
                if entry.closed:
                    yield folder.path / name, "sessions"

    def _scratch(self) -> Iterator[Path]:
        return (self.workspace.path / ".tmp").glob("*.tmp")


def _status(path: Path) -> os.stat_result | None:
    """None for what has gone since it was listed."""
    try:
        return path.lstat()
    except FileNotFoundError:
        return None
