"""Heartbeats: every machine says every few seconds how far it is. One that has not been heard of for long is away."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from math import isfinite
from typing import Any

from nats.aio.msg import Msg

from multi_agent_mcp.domain.dialog import Asked
from multi_agent_mcp.domain.ids import is_name
from multi_agent_mcp.domain.times import format_time, json_values, now
from multi_agent_mcp.hub.stream import Hub

BEAT_SECONDS = 5.0
DEAD_SECONDS = 15.0
DISK, DOUBLE = TROUBLES = ("disk", "double")
"""What a machine may say that is wrong with it: its disk does not take what the others write; another relay says that
it is this machine, too."""


@dataclass(frozen=True)
class Beat:
    """What a machine says of itself. `position`: up to which revision its files are; `last`: the newest revision that
    it has put there; `time`: its clock (seconds since the epoch); `queued`: how many messages wait there; `conflicts`:
    how many edits are set aside there; `replaced`: the identity of a hub that it found to be older than it was; `ends`:
    it will not be heard of for now; `asking`: who waits for a human in a pane there; `troubles`: which of `TROUBLES` it
    has; `relay`: which process says this; `members`: by the machine with the hub, all that take part."""

    position: int
    last: int
    time: float
    queued: int = 0
    conflicts: int = 0
    replaced: str | None = None
    ends: bool = False
    asking: tuple[Asked, ...] = ()
    troubles: tuple[str, ...] = ()
    relay: str = ""
    members: tuple[str, ...] = ()

    @property
    def news(self) -> tuple[object, ...]:
        """What is reported to other processes at once."""
        return self.queued, self.conflicts, self.asking, self.troubles, self.members

    @classmethod
    def parse(cls, data: bytes) -> Beat:
        """Raises `ValueError`, `LookupError`, `TypeError`, `AttributeError`, `ArithmeticError` or `RecursionError` for
        anything else."""
        facts = json.loads(data)
        known = int(facts["position"]), int(facts["last"]), float(facts["time"])
        if not isfinite(known[2]):  # no JSON for a browser
            raise ValueError(facts["time"])
        counts = int(facts.get("queued", 0)), int(facts.get("conflicts", 0))
        asking = tuple(map(Asked.parse, facts.get("asking", ())))
        troubles = tuple(item for item in TROUBLES if item in facts.get("troubles", ()))
        ends, relay = bool(facts.get("ends")), str(facts.get("relay", ""))
        members = tuple(filter(is_name, facts.get("members", ())))
        return cls(*known, *counts, facts.get("replaced"), ends, asking, troubles, relay, members)

    def as_json(self) -> dict[str, Any]:
        return asdict(self, dict_factory=json_values)


@dataclass
class Peer:
    """Another machine, as far as its heartbeats tell. `since`: from when on it was heard of; of one that is away, when
    it was for the last time. `seen`: the same on this machine's monotonic clock. `said`: its newest."""

    up: bool
    since: str
    seen: float = 0.0
    said: Beat | None = None
    clock_offset: float = 0.0

    def as_answer(self, position: int) -> dict[str, Any]:
        """As `.share/state.json` has it; `position` is how far this machine is. What a machine that is away has queued
        nobody knows."""
        state: dict[str, Any] = {"up": self.up, "since": self.since}
        if self.said is not None:
            state |= {
                "behind": max(position - self.said.position, 0),
                "clock_offset": round(self.clock_offset, 1) + 0.0,
            }
            if self.up:
                said = self.said.as_json()
                state |= {name: said[name] for name in ("queued", "conflicts", "asking", "troubles")}
        return state


class Heartbeats:
    """This machine's, and every machine that was heard of. `own` is what this one says, `on_beat` is called with what
    another one says, `on_news` when one comes or is given up. `listened`: every machine that is up would have been
    heard of by now."""

    def __init__(
        self, hub: Hub, own: Callable[[], Beat], on_beat: Callable[[Beat], None], on_news: Callable[[], None]
    ) -> None:
        self.hub = hub
        self.peers: dict[str, Peer] = {}
        self.listened = False
        self.relay = secrets.token_hex(8)
        self._double_heard = float("-inf")
        self._remembered: Mapping[str, Peer] = {}
        self._own = own
        self._on_beat = on_beat
        self._on_news = on_news
        self._soon = asyncio.Event()

    def is_up(self, machine: str) -> bool:
        """Whether it was heard of just now."""
        peer = self.peers.get(machine)
        return peer is not None and peer.up

    def soon(self) -> None:
        """The others want to know something at once."""
        self._soon.set()

    def remember(self, machines: Mapping[str, Mapping[str, Any]], at: str) -> None:
        """What an earlier relay knew of them, and last at this time."""
        self._remembered = {
            name: Peer(up=False, since=at if facts.get("up") else str(facts.get("since")))
            for name, facts in machines.items()
            if name != self.hub.machine
        }

    async def run(self) -> None:
        """Beats for ever, and gives up those that have not been heard of for long."""
        asyncio.get_running_loop().call_later(DEAD_SECONDS, self._miss_remembered)
        while True:
            self._soon.clear()
            with suppress(Exception):  # it is cut off just now
                await self.hub.beat(self._own().as_json())
            self._bury()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._soon.wait(), BEAT_SECONDS)

    async def end(self) -> None:
        """This machine leaves: the others need not wait until they miss it."""
        with suppress(Exception):
            await self.hub.beat(replace(self._own(), ends=True).as_json())

    async def heard(self, message: Msg) -> None:
        """Takes a heartbeat; nonsense is passed over."""
        machine = message.subject.rpartition(".")[2]
        with suppress(Exception):
            beat = Beat.parse(message.data)
            if machine == self.hub.machine:
                self._heard_as_this(beat)
                return
            self._on_beat(beat)
            self._note(machine, beat)

    @property
    def has_double(self) -> bool:
        """Whether another relay has been heard of just now that says it is this machine: one of a copied directory."""
        return time.monotonic() - self._double_heard < DEAD_SECONDS

    def _heard_as_this(self, beat: Beat) -> None:
        if beat.relay != self.relay and not beat.ends:
            is_news, self._double_heard = not self.has_double, time.monotonic()
            if is_news:
                self._on_news()

    def _note(self, machine: str, beat: Beat) -> None:
        peer = self.peers.get(machine)
        if beat.ends:
            self._give_up(peer)
            return
        if peer is None or not peer.up:
            peer = self.peers[machine] = Peer(up=True, since=format_time(now()))
            self.soon()  # it does not know of this one yet
            self._on_news()
        elif peer.said is not None and peer.said.news != beat.news:
            self._on_news()
        peer.seen, peer.said, peer.clock_offset = time.monotonic(), beat, beat.time - time.time()

    def _bury(self) -> None:
        for peer in self.peers.values():
            if time.monotonic() - peer.seen > DEAD_SECONDS:
                self._give_up(peer)

    def _give_up(self, peer: Peer | None) -> None:
        if peer is not None and peer.up:
            peer.up, peer.since = False, format_time(now() - timedelta(seconds=time.monotonic() - peer.seen))
            self._on_news()

    def _miss_remembered(self) -> None:
        self.peers = {**self._remembered, **self.peers}
        self.listened = True
        self._on_news()
