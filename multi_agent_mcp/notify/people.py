"""Doorbells for people who have no server of their own (docs/protocol.md, When to ring).

The process that stores an item for them rings once and ends; nothing would announce items that arrive during the pause.
So the long-running processes `supervise`, `watch` and `web` ring when the pause is over: for each person one of them,
which holds a lock for as long as it lives.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from datetime import timedelta
from typing import Any, Self

from multi_agent_mcp.domain.delivery import Delivery, Due
from multi_agent_mcp.errors import Refusal
from multi_agent_mcp.notify.doorbell import Doorbell
from multi_agent_mcp.notify.doorbell_thread import TAKE_OVER_AFTER, DoorbellThread

LOOK_SECONDS = 1.0
AGAIN = "again"
"""The last part of the lock's name, where the locks of servers have their purpose."""


class PeopleDoorbells:
    """A context manager: while it is entered, each person with unread items has a thread that rings."""

    def __init__(self, doorbell: Doorbell) -> None:
        self._doorbell = doorbell
        self._seen: dict[str, tuple[int, frozenset[str]]] = {}
        self._threads: dict[str, _PersonsDoorbell] = {}
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="people", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._thread.join(LOOK_SECONDS)
        for thread in list(self._threads.values()):
            thread.close()

    def _run(self) -> None:
        while not self._closing.is_set():
            with suppress(Refusal):  # the disk or a lock: it may pass
                self._look()
            self._closing.wait(LOOK_SECONDS)

    def _look(self) -> None:
        for agent in self._doorbell.workspace.registry.all().values():
            if agent.may_be_human and not agent.removed and self._doorbell.workspace.is_here(agent):
                version = self._doorbell.version(agent.id)
                if version != self._seen.get(agent.id, (0, frozenset())):
                    self._seen[agent.id] = version
                    self._wake(agent.id)

    def _wake(self, agent_id: str) -> None:
        if agent_id in self._threads:
            self._threads[agent_id].wake()
        else:
            self._threads[agent_id] = _PersonsDoorbell(self._doorbell, agent_id, "task", prepare=dict)
            self._threads[agent_id].start()


class _PersonsDoorbell(DoorbellThread):
    """The doorbell thread of one person; pauses while that person's own server lives."""

    def claim(self) -> None:
        self._lock = self._doorbell.serve(self._agent_id, AGAIN)

    def _attempt(self, deferrals: int) -> tuple[timedelta | None, int]:
        if self._doorbell.workspace.served_purposes(self._agent_id):
            return TAKE_OVER_AFTER, 0
        return super()._attempt(deferrals)

    def _ring(self) -> tuple[Delivery | None, Due[Any]]:
        return self._doorbell.ring_again(self._agent_id)
