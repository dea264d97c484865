"""Who rings from a long-running process: a server for its own agent, and others for people without a server."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Self

from multi_agent_mcp.doorbell.ringing import PERMANENT, TAKEN_AWAY, Doorbell
from multi_agent_mcp.errors import Refusal

if TYPE_CHECKING:
    from filelock import FileLock

    from multi_agent_mcp.domain.delivery import Delivery, Due, FirstPrompt
    from multi_agent_mcp.domain.dialog import Asked

logger = logging.getLogger(__name__)

IDLE = "idle"
QUIET_SECONDS = 5.0
RETRY_SECONDS = (0.5, 1.0, 2.0, 5.0, 15.0, 60.0)
HOLD_LOOK_SECONDS = 30.0
"""The interval of checking whether an agent's host has met a usage limit; one stat(2)."""
LONGEST_SECONDS = 24 * 3600.0
TAKE_OVER_AFTER = timedelta(seconds=2)
"""The interval of checking whether the process that rings still lives."""
STEP_BACK_SECONDS = 2 * TAKE_OVER_AFTER.total_seconds()
"""How long a process whose pane was taken away leaves ringing to another that waits for it."""


class Silence:
    """Whether the host has ended its first turn without having called us: `prompt` returns what it was told first,
    if none of our tools was called yet; `state` the state of its screen."""

    def __init__(self, prompt: Callable[[], FirstPrompt | None], state: Callable[[], str | None]) -> None:
        self.prompt = prompt
        self._state = state
        self._idle_since: float | None = None

    def remaining(self) -> float | None:
        """How many seconds the screen must stay idle until it is certain that no turn is running or about to begin;
        None while it is not idle."""
        now = time.monotonic()
        if self._state() != IDLE:
            self._idle_since = None
            return None
        if self._idle_since is None:
            self._idle_since = now
        return max(QUIET_SECONDS - (now - self._idle_since), 0.0)


class DoorbellThread:
    """Sleeps until `wake()` (the agent's files changed, something was read) or the end of a pause. It tries again after
    growing pauses as long as a deferral lasts or a line of ours is left in the composer. An idle agent makes no calls,
    so this thread also repairs its notifications, before it rings.

    A host may outlive its pane, and its server with it: where the pane is gone, or another program's, it gives the lock
    away for a moment with each attempt, so that the agent's server in a new pane rings.

    `prepare` runs first in the thread: it registers the pane, imports the modules that ringing needs, and returns the
    fields of the session's pane, which replace those of the agent's record. What it refuses may pass (tmux hangs, the
    disk is full): then it runs again, after growing pauses.
    """

    def __init__(
        self,
        doorbell: Doorbell,
        agent_id: str,
        purpose: str,
        prepare: Callable[[], Mapping[str, Any]],
        silence: Silence | None = None,
        remind: Callable[[], timedelta | None] = lambda: None,
    ) -> None:
        """`remind` is called when nothing is unread: it may write something, and returns after what time to call it
        again, None if that is not before a file changes."""
        self._doorbell = doorbell
        self._agent_id = agent_id
        self._purpose = purpose
        self._prepare = prepare
        self._prepares_at: float | None = 0.0
        """When to prepare, on the monotonic clock; None once that has succeeded."""
        self._refusals = 0
        self._silence = silence
        self._remind = remind
        self._place: Mapping[str, Any] = {}
        self._wake = threading.Event()
        self._closing = False
        self._left = True
        """Whether a line of ours may be left in the composer; at the start, one of an earlier process."""
        self._lock: FileLock | None = None
        self._back_until = 0.0
        self._thread = threading.Thread(target=self._run, name=f"doorbell-{agent_id}", daemon=True)

    def claim(self) -> None:
        """Takes the serving lock, so that no sender rings from now on."""
        self._lock = self._doorbell.serve(self._agent_id, self._purpose)

    def start(self) -> None:
        self._thread.start()

    def wake(self) -> None:
        self._wake.set()

    def close(self) -> None:
        """Ends the thread and releases the lock, so that senders ring again."""
        self._closing = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join(timeout=0.1)
        if self._lock is not None:
            self._lock.release()

    def _run(self) -> None:
        deferrals = 0
        while not self._closing:
            self._wake.clear()
            until_prepared = self._make_ready()
            pause, deferrals = self._attempt(deferrals)
            due = (until_prepared, pause, self._doorbell.notifications.due_after())
            pauses = [length for length in due if length is not None]
            self._sleep(min(pauses) if pauses else None)

    def _make_ready(self) -> timedelta | None:
        """Prepares if that is due; returns the pause until the next attempt, None once it has succeeded."""
        if self._prepares_at is None:
            return None
        if (remaining := self._prepares_at - time.monotonic()) > 0:
            return timedelta(seconds=remaining)
        try:
            self._place, self._prepares_at = self._prepare(), None
        except Refusal as refusal:
            if not self._refusals:
                logger.warning("the doorbell is not ready, trying again: %s", refusal)
            pause, self._refusals = self._later(self._refusals)
            self._prepares_at = time.monotonic() + pause.total_seconds()
            return pause
        return None

    def _sleep(self, pause: timedelta | None) -> None:
        """Sleeps for a pause, or until woken; what begins to hold rings meanwhile, which no directory of the agent's
        tells, ends the sleep, so that its end is not missed."""
        if pause is not None:
            self._wake.wait(min(pause.total_seconds(), LONGEST_SECONDS))  # a person may have written the year 9999
            return
        with suppress(Refusal):
            while not self._wake.wait(HOLD_LOOK_SECONDS) and not self._doorbell.has_ring_to_come(self._agent_id):
                pass

    def _attempt(self, deferrals: int) -> tuple[timedelta | None, int]:
        """Rings if due. Returns the pause until the next attempt (None: until woken) and the deferrals in a row."""
        delivery = None
        with contextlib.suppress(Refusal):
            if self._lock is None:
                if (remaining := self._back_until - time.monotonic()) > 0:
                    return timedelta(seconds=remaining), deferrals
                self.claim()
                if self._lock is None:
                    return TAKE_OVER_AFTER, 0  # another process rings
            self._doorbell.notifications.repair(self._agent_id)
            if self._left:
                finished = self._doorbell.finish(self._agent_id, self._purpose, self._place)
                self._left = finished is not None and finished.state == "stored"
            delivery, decision = self._ring()
            self._left = self._left or (delivery is not None and delivery.left)
            if delivery is None and not self._left:
                return self._after_silence(decision.after, deferrals)
        if delivery is not None and not self._left:
            if delivery.state != "stored":
                return self._doorbell.pauses.shortest, 0
            if delivery.reason in PERMANENT:
                return None, 0
            if delivery.reason in TAKEN_AWAY:
                self._step_back()
        return self._later(deferrals)

    def _step_back(self) -> None:
        lock, self._lock = self._lock, None
        self._back_until = time.monotonic() + STEP_BACK_SECONDS
        if lock is not None:
            lock.release()

    def _after_silence(self, pause: timedelta | None, deferrals: int) -> tuple[timedelta | None, int]:
        """As `_attempt`, when nothing is due to be rung about: a prompt that was not heard is repeated, an idle agent
        reminded of a task."""
        prompt = self._silence.prompt() if self._silence is not None and pause is None else None
        if self._silence is None or prompt is None:
            return (self._remind() if pause is None else pause), 0
        remaining = self._silence.remaining()
        if remaining is None:
            return self._later(deferrals)
        if remaining:
            return timedelta(seconds=remaining), 0
        delivery = self._doorbell.repeat(self._agent_id, prompt, self._place)
        self._left = delivery is not None and delivery.left
        return (None, 0) if delivery is None else self._later(deferrals)

    @staticmethod
    def _later(deferrals: int) -> tuple[timedelta, int]:
        return timedelta(seconds=RETRY_SECONDS[min(deferrals, len(RETRY_SECONDS) - 1)]), deferrals + 1

    def _ring(self) -> tuple[Delivery | None, Due[Any]]:
        return self._doorbell.ring(self._agent_id, self._purpose, self._place)


# Doorbells for people who have no server of their own (docs/protocol.md, When to ring).
#
# The process that stores an item for them rings once and ends; nothing would announce items that arrive during the
# pause. So the long-running processes `supervise`, `watch` and `web` ring when the pause is over: for each person one
# of them, which holds a lock for as long as it lives.

LOOK_SECONDS = 1.0
AGAIN = "again"
"""The last part of the lock's name, where the locks of servers have their purpose."""


class PeopleDoorbells:
    """A context manager: while it is entered, each person with unread items has a thread that rings."""

    def __init__(self, doorbell: Doorbell, dialogs: Callable[[], Iterable[Asked]] = tuple) -> None:
        """`dialogs` returns those that are in agents' panes."""
        self._doorbell = doorbell
        self._dialogs = dialogs
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
                for asked in self._dialogs():
                    self._doorbell.announce_dialog(asked)
            self._closing.wait(LOOK_SECONDS)

    def _look(self) -> None:
        for agent in self._doorbell.workspace.registry.all().values():
            if agent.may_be_human and not agent.removed and self._doorbell.workspace.is_here(agent):
                self._doorbell.notifications.repair(agent.id)
                version = self._doorbell.version(agent.id)
                if version != self._seen.get(agent.id, (0, frozenset())):
                    self._seen[agent.id] = version
                    self._doorbell.announce_questions(agent.id)
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
