"""Which process supervises a session: one at a time, and none after `down`.

All state of what it looks after is in files: the opened windows in `.supervisor/`, the need for sessions in tasks,
delegations and mail. So a supervisor can be killed and another one started at any time."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager

from multi_agent_mcp.errors import AlreadyExists
from multi_agent_mcp.session import Service, Session
from multi_agent_mcp.store.locks import WINDOWS
from multi_agent_mcp.system.process import is_alive, own_start


class Supervision(Service):
    """The record of the process that supervises, valid while that process lives."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._locks = session.workspace.locks
        self._record = session.workspace.supervision

    def locked(self) -> AbstractContextManager[None]:
        """The lock for examining the team's windows and opening or closing some."""
        return self._locks.held(WINDOWS)

    def begin(self) -> None:
        """Makes this process the supervisor. Raises `AlreadyExists` if there is another one."""
        with self.locked():
            if pid := self.running():
                raise AlreadyExists("supervisor_runs", pid=pid)
            self._record.write({"pid": os.getpid(), "pid_started_at": own_start()})

    def is_running(self) -> bool:
        """Whether a process supervises."""
        return self.running() is not None

    def running(self) -> int | None:
        """The id of the process that supervises, or None."""
        try:
            record = self._record.read()
            pid, start = int(record["pid"]), record["pid_started_at"]
        except (ArithmeticError, ValueError, KeyError, TypeError):
            return None
        return pid if is_alive(pid, start) else None

    @property
    def has_died(self) -> bool:
        """Whether the process that supervised has ended, but not by `down`."""
        return self._record.read() is not None and self.running() is None

    def end(self) -> None:
        """Removes the record; a running supervisor ends at its next look. The caller holds the lock."""
        self._record.remove()
