"""Attention for a process that shows it all the time, to as many windows as there are: looking into the panes and
examining the session cost something, so both are done now and then, for all of them together."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from threading import Lock, Thread

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.times import is_recent
from multi_agent_mcp.services.attention import Attention, Item, Panes
from multi_agent_mcp.services.doctor.finding import Finding

LOOK_EVERY = timedelta(seconds=2)
EXAMINE_EVERY = timedelta(minutes=5)
"""An examination reads every file of the session."""


class RecentAttention:
    """What waits for a person, with panes that were looked at within `LOOK_EVERY`, and what `doctor` found last."""

    def __init__(
        self, attention: Attention, examine: Callable[[], list[Finding]], clock: Callable[[], datetime]
    ) -> None:
        self._attention = attention
        self._examine = examine
        self._clock = clock
        self._looking = Lock()
        self._panes = Panes()
        self._looked_at: datetime | None = None
        self._examining = Lock()
        self._findings: tuple[Finding, ...] = ()
        self._examined_at: datetime | None = None

    def of(self, person: Agent) -> list[Item]:
        """The worst first. Waits for no examination: what it finds is there the next time."""
        if not self._is_recent(self._examined_at, EXAMINE_EVERY):
            Thread(target=self._examine_once, daemon=True).start()
        return self._attention.of(person, self._findings, self._look())

    def found(self, findings: Iterable[Finding]) -> None:
        """Somebody has examined the session just now."""
        self._findings, self._examined_at = tuple(findings), self._clock()

    def look_again(self) -> None:
        """A pane has changed: the next one to ask gets to see it."""
        self._looked_at = None

    def _look(self) -> Panes:
        with self._looking:
            if not self._is_recent(self._looked_at, LOOK_EVERY):
                self._panes, self._looked_at = self._attention.look(self._panes), self._clock()
            return self._panes

    def _examine_once(self) -> None:
        if self._examining.acquire(blocking=False):
            try:
                self.found(self._examine())
            finally:
                self._examining.release()

    def _is_recent(self, moment: datetime | None, length: timedelta) -> bool:
        return moment is not None and is_recent(moment, self._clock(), length)
