"""The other machines, as far as their heartbeats tell."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from multi_agent_mcp.domain.times import format_time, now

DEAD_SECONDS = 15.0


@dataclass
class Peer:
    """Another machine, as far as its heartbeats tell. `seen` is on this machine's monotonic clock."""

    seen: float
    up: bool
    since: str
    position: int = 0
    clock_offset: float = 0.0


class Peers:
    """Every machine that was heard of. `on_news` is called when one comes or is given up."""

    def __init__(self, on_news: Callable[[], None]) -> None:
        self._on_news = on_news
        self._known: dict[str, Peer] = {}

    def is_up(self, machine: str) -> bool:
        """Whether it was heard of just now."""
        peer = self._known.get(machine)
        return peer is not None and peer.up

    def heard(self, machine: str, position: int, sent_at: float) -> bool:
        """A heartbeat: how far the machine is, and its clock (seconds since the epoch). Returns whether it is new."""
        known = self._known.get(machine)
        is_new = known is None or not known.up
        if known is None or not known.up:
            known = self._known[machine] = Peer(time.monotonic(), True, format_time(now()))
            self._on_news()
        known.seen, known.position, known.clock_offset = time.monotonic(), position, sent_at - time.time()
        return is_new

    def bury(self) -> None:
        """Gives up those that have not been heard of for long."""
        for peer in self._known.values():
            if peer.up and time.monotonic() - peer.seen > DEAD_SECONDS:
                peer.up, peer.since = False, format_time(now())
                self._on_news()

    def as_answer(self, position: int) -> dict[str, dict[str, Any]]:
        """As `.share/state.json` has it; `position` is how far this machine is."""
        return {
            name: {
                "up": peer.up,
                "since": peer.since,
                "behind": max(position - peer.position, 0),
                "clock_offset": round(peer.clock_offset, 1),
            }
            for name, peer in self._known.items()
        }
