"""The waiter: a process that a host keeps in the background and that ends when the agent is to be woken
(docs/protocol.md, Waiter)."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import Timeout

from multi_agent_mcp.hooks.first_look import state_path
from multi_agent_mcp.store.locks import waiter_lock
from multi_agent_mcp.store.records import Record
from multi_agent_mcp.system.file_events import Changes, Watch
from multi_agent_mcp.system.process import host_of, is_alive, started_at

if TYPE_CHECKING:
    from multi_agent_mcp.hooks.answers import Hooks

POLL_SECONDS = 1.0
PREDECESSOR_SECONDS = 5.0
PROBE_SECONDS = 0.1
CONNECTED_AFTER = timedelta(seconds=2)
CONNECTED_BY_SECONDS = 10.0
"""A host that has just started runs its hooks before it has connected its servers, and a model woken then finds none of
our tools. So a server is given two seconds after its start, and ten to appear at all."""


class HostProcess:
    """The program that started this process, directly or through a shell."""

    def __init__(self) -> None:
        self._parent = os.getppid()
        self.pid = host_of(os.getpid())
        self._start = started_at(self.pid)

    def lives(self) -> bool:
        """Whether the host and a shell in between live. When the parent ends, another one takes its place."""
        return os.getppid() == self._parent and (self.pid <= 1 or is_alive(self.pid, self._start))


class Waiter:
    """Waits for mail and notifications for an agent's session of this purpose. `beginning`: the host's session has just
    begun.

    Claude's `asyncRewake` hooks work so: every SessionStart and Stop starts another one, and they may outlive their
    host. So only one per agent waits, and it watches the host."""

    def __init__(
        self, hooks: Hooks, agent_id: str, purpose: str, host: HostProcess, *, beginning: bool = False
    ) -> None:
        self.hooks = hooks
        self.workspace = hooks.workspace
        self.agent_id = agent_id
        self.purpose = purpose
        self.host = host
        self.connected = not beginning
        self.began = time.monotonic()
        armed_path = Path(state_path(str(self.workspace.path), agent_id, purpose, "armed"))
        self.armed = Record(self.workspace.files, armed_path)

    def wait(self) -> str | None:
        """Returns the doorbell's line when the agent is to be woken; None if another waiter of this host waits already,
        or when the host has ended. Raises `AgentNotFound`."""
        self.workspace.registry.get(self.agent_id)
        with self._alone() as alone:
            return self._wait() if alone else None

    def _wait(self) -> str | None:
        changes = Changes()
        inboxes = (self.workspace.mailbox(self.agent_id), self.workspace.notices(self.agent_id))
        with Watch([inbox.path for inbox in inboxes], lambda _: changes.notify()):
            self.armed.write(os.getpid(), durable=False)
            try:
                while self.host.lives():
                    seen = changes.count
                    if not self._is_connected():
                        time.sleep(PROBE_SECONDS)
                        continue
                    line, decision = self.hooks.wake(self.agent_id, self.purpose)
                    if line is not None:
                        return line
                    pause = decision.after.total_seconds() if decision.after else POLL_SECONDS
                    changes.wait(seen, min(pause, POLL_SECONDS))
            finally:
                self.armed.remove()
        return None

    def _is_connected(self) -> bool:
        """Whether the host has probably connected our server."""
        if not self.connected:
            since = self.hooks.sessions.alive_since(self.agent_id)
            settled = since is not None and self.hooks.clock() - since >= CONNECTED_AFTER
            self.connected = settled or time.monotonic() - self.began > CONNECTED_BY_SECONDS
        return self.connected

    @contextmanager
    def _alone(self) -> Iterator[bool]:
        """Holds the lock of the only waiter; gives False if another one has it. Waits for a waiter of another host,
        which will notice that its host has ended, but not for one of the same host."""
        lock = self.workspace.locks.lock(waiter_lock(self.agent_id, self.purpose))
        deadline = time.monotonic() + PREDECESSOR_SECONDS
        while True:
            try:
                lock.acquire(timeout=PROBE_SECONDS)
                break
            except Timeout:
                if self._predecessor() == self.host.pid or time.monotonic() > deadline or not self.host.lives():
                    yield False
                    return
        try:
            yield True
        finally:
            lock.release()

    def _predecessor(self) -> int | None:
        """The process id of the armed waiter's host; None if not known (yet)."""
        pid = self.armed.read()
        return host_of(pid) if isinstance(pid, int) else None
