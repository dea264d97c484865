"""Attention for a process that shows it continuously in any number of windows: reading the panes and examining the
session are expensive, so their results are cached and shared by all windows."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from threading import Lock, Thread
from typing import TYPE_CHECKING

from multi_agent_mcp.domain.times import is_recent
from multi_agent_mcp.services.attention import Attention, Item, Panes

if TYPE_CHECKING:
    from multi_agent_mcp.domain.agent import Agent
    from multi_agent_mcp.services.doctor.finding import Finding
    from multi_agent_mcp.services.overview.unchanged import WhileUnchanged

LOOK_EVERY = timedelta(seconds=2)
EXAMINE_EVERY = timedelta(minutes=5)
"""An examination reads every file of the session."""


class RecentAttention:
    """The items that wait for a person, from panes read within `LOOK_EVERY` and the last findings of `doctor`."""

    def __init__(
        self,
        attention: Attention,
        examine: Callable[[], list[Finding]],
        unchanged: WhileUnchanged,
        clock: Callable[[], datetime],
    ) -> None:
        self._attention = attention
        self._examine = examine
        self._unchanged = unchanged
        self._clock = clock
        self._looking = Lock()
        self._panes = Panes()
        self._looked_at: datetime | None = None
        self._examining = Lock()
        self._findings: tuple[Finding, ...] = ()
        self._examined_at: datetime | None = None

    def of(self, person: Agent) -> list[Item]:
        """Returns the items, worst first. An examination that is due runs in the background; its findings are part of
        later results."""
        if not self._is_recent(self._examined_at, EXAMINE_EVERY):
            Thread(target=self._examine_once, daemon=True).start()
        panes, findings = self._look(), self._findings
        seen = repr(replace(panes, at=None)), findings
        return self._unchanged.get(
            f"attention {person.id}", lambda: self._attention.of(person, findings, panes), of=seen
        )

    def found(self, findings: Iterable[Finding]) -> None:
        """Stores the findings of an examination that has just been made."""
        self._findings, self._examined_at = tuple(findings), self._clock()

    def look_again(self) -> None:
        """Drops the cached panes because one has changed: the next call reads them again."""
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
