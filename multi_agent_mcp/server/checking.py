"""Examines the tasks that this server's agent has delivered, in a thread: runs their checks one at a time, and goes on
with what an earlier server has left (docs/protocol.md, Checks)."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from multi_agent_mcp.errors import Refusal

if TYPE_CHECKING:
    from multi_agent_mcp.domain.agent import Agent
    from multi_agent_mcp.domain.task import Task
    from multi_agent_mcp.services.tasks.deliveries import Examined
    from multi_agent_mcp.wiring import Services

logger = logging.getLogger(__name__)

ANSWER_SECONDS = 20.0
"""How long a call waits for the outcome; later it is a notification."""
AGAIN_SECONDS = 60.0
"""The interval of trying again what could not be examined: a full disk, a damaged session.yaml."""
OTHERS_SECONDS = 3.0
"""How long a task is left to the process that has just delivered or approved it."""
CLOSING_SECONDS = 0.5


class Asked:
    """A call that waits for the outcome of one task's examination."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._given_up = False
        self._taken = False
        self._ended = threading.Event()
        self._outcome: Examined | None = None

    def takes(self) -> bool:
        """Whether the call still waits, and therefore gets the outcome, which is ready; else it becomes a
        notification."""
        with self._mutex:
            self._taken = not self._given_up
            return self._taken

    def answer(self, outcome: Examined | None) -> None:
        self._outcome = outcome
        self._ended.set()

    def wait(self) -> Examined | None:
        """The outcome; None if there is none yet, or the examination was cancelled."""
        if not self._ended.wait(ANSWER_SECONDS):
            with self._mutex:
                self._given_up = not self._taken
            if self._given_up:
                return None
            self._ended.wait()
        return self._outcome


class Checking:
    """The examinations of one agent. `wake` is called when its tasks may have changed."""

    def __init__(self, services: Services, agent_id: str, directory: Path) -> None:
        self._services = services
        self.agent_id = agent_id
        self._directory = directory
        self._since = services.clock()
        self._asked: dict[str, Asked] = {}
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._mutex = threading.Lock()

    def deliver(self, assignee: Agent, task_id: str, summary: str | None, next_steps: str | None) -> Examined:
        """Delivers a task and waits for the outcome of its checks, at most `ANSWER_SECONDS`. Raises as
        `Deliveries.deliver`."""
        deliveries = self._services.deliveries
        asked = self._asked[task_id] = Asked()  # first: the thread may be awake
        try:
            task = deliveries.deliver(assignee, task_id, summary, next_steps)
            if not task.checks or not task.is_examined:
                return deliveries.settle(task)
            self.wake()
            return asked.wait() or deliveries.outcome_of(task.id)
        finally:
            self._asked.pop(task_id, None)

    def wake(self) -> None:
        """Examines what is delivered, unless nothing is."""
        self._wake.set()
        with self._mutex:
            if self._thread is None and not self._closing.is_set() and self._pending():
                self._thread = threading.Thread(target=self._run, name=f"checks-{self.agent_id}", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Ends the running check; the next server runs it again."""
        self._closing.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(CLOSING_SECONDS)

    def _run(self) -> None:
        while not self._closing.is_set():
            self._wake.clear()
            pending = self._pending()
            waits = [self._left_to_others(task) or (0.0 if self._examine(task) else AGAIN_SECONDS) for task in pending]
            if not waits:
                self._wake.wait()
            elif any(waits):
                self._wake.wait(min(filter(None, waits)))

    def _left_to_others(self, task: Task) -> float:
        """For how many seconds more a task is left to the process that has just delivered or approved it: its call gets
        the outcome, and a notification would say the same again."""
        if task.id in self._asked or task.updated_at < self._since:
            return 0.0
        passed = (self._services.clock() - task.updated_at).total_seconds()
        return max(OTHERS_SECONDS - max(passed, 0.0), 0.0)

    def _pending(self) -> list[Task]:
        try:
            return self._services.deliveries.pending(self.agent_id)
        except Refusal as refusal:
            logger.warning("it cannot be seen which tasks are to be examined: %s", refusal)
            return []

    def _examine(self, task: Task) -> bool:
        """Examines one task; returns whether it need not be tried again later."""
        asked, outcome = self._asked.get(task.id), None
        try:
            outcome = self._services.deliveries.examine(
                task.id, self._directory, self._closing.is_set, told=lambda: asked is None or not asked.takes()
            )
        except Refusal as refusal:
            logger.warning("task %s could not be examined: %s", task.id, refusal)
            return False
        except Exception:
            logger.exception("task %s could not be examined", task.id)
            return False
        finally:
            if asked is not None:
                asked.answer(outcome)
        return True
