"""Which process supervises a session: one at a time, and none after `down`.

Whoever asks or changes it holds the lock `WINDOWS`.
"""

from __future__ import annotations

import os

from multi_agent_mcp.errors import AlreadyExists
from multi_agent_mcp.store.workspace import Workspace
from multi_agent_mcp.system.process import is_alive, own_start


class Supervision:
    """The record of the process that supervises. It counts while that process lives."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self._record = workspace.supervision

    def begin(self) -> None:
        """This process supervises from now on. Raises `AlreadyExists` when another one does."""
        if pid := self.running():
            raise AlreadyExists("supervisor_runs", pid=pid)
        self._record.write({"pid": os.getpid(), "pid_started_at": own_start()})

    def running(self) -> int | None:
        """The id of the process that supervises."""
        try:
            record = self._record.read()
            pid, start = int(record["pid"]), record["pid_started_at"]
        except (ArithmeticError, ValueError, KeyError, TypeError):
            return None
        return pid if is_alive(pid, start) else None

    def end(self) -> None:
        """Nobody supervises any more: a process that still does ends when it looks next."""
        self._record.remove()
