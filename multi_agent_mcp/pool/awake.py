"""For how long this machine was awake since a time, whatever its clock did meanwhile (docs/protocol.md, Whoever is
free)."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from multi_agent_mcp.session import Service
from multi_agent_mcp.store.records import Record

STEP_SECONDS = 2.0
"""How far clock and uptime may drift apart before it counts as a step: clocks are also set right little by little."""
KEPT = 50
"""How many stretches of time are kept, the last ones."""


class Stretch(NamedTuple):
    """Time in which the clock went on as the uptime did: it began at this uptime, and the clock is ahead by `offset`
    seconds."""

    began: float
    offset: float


class Uptimes(NamedTuple):
    """Times by the uptime of this machine, in seconds."""

    now: float
    stretches: tuple[Stretch, ...]

    def of(self, at: datetime) -> float:
        """The uptime at a time; of a time that the clock has shown twice, or never, the latest that it can be."""
        end = self.now
        for stretch in reversed(self.stretches):
            found = at.timestamp() - stretch.offset
            if found <= end and (found >= stretch.began or stretch is self.stretches[0]):
                return found
            end = stretch.began
        return self.stretches[-1].began


@dataclass(eq=False)
class AwakeTime(Service):
    """The uptime of this machine. A clock that is set, and a machine that sleeps, begin a new stretch; the file of all
    stretches may be deleted."""

    uptime: Callable[[], float] = field(default=time.monotonic, init=False)
    """The same for all processes; it stands still while the machine sleeps."""

    def look(self) -> Uptimes:
        """The uptime now. Notes whether the clock was set, or the machine slept, since any process has last looked.
        Raises `StorageError`."""
        now = self.uptime()
        here = Stretch(now, self.clock().timestamp() - now)
        known = self._read()
        if not _goes_on(known, here):
            with self.workspace.locks.held("awake"):
                known = self._read()
                if not _goes_on(known, here):
                    known = [*(one for one in known if one.began < now), here][-KEPT:]
                    self._record.write(known, durable=False)
        return Uptimes(now, tuple(known))

    def _read(self) -> list[Stretch]:
        try:
            return [Stretch(float(began), float(offset)) for began, offset in self._record.read() or ()]
        except (TypeError, ValueError):  # damaged
            return []

    @property
    def _record(self) -> Record:
        return Record(self.workspace.files, self.workspace.path / ".supervisor" / "awake.json")


def _goes_on(known: list[Stretch], here: Stretch) -> bool:
    """Whether this is in the last stretch known."""
    return bool(known) and known[-1].began <= here.began and abs(here.offset - known[-1].offset) <= STEP_SECONDS
