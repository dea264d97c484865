"""Heartbeats: every machine reports its position every few seconds. One that has not reported for long is away."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from math import isfinite
from typing import Any

from nats.aio.msg import Msg

from multi_agent_mcp.domain.dialog import Asked
from multi_agent_mcp.domain.entity import is_name
from multi_agent_mcp.domain.times import format_time, json_values, now
from multi_agent_mcp.hub.sizes import BEAT_BYTES
from multi_agent_mcp.hub.stream import Hub

BEAT_SECONDS = 5.0
DEAD_SECONDS = 15.0
DISK, DOUBLE = TROUBLES = ("disk", "double")
"""The troubles that a machine may report: its disk refuses the others' values; another relay runs under its name."""
ASKING_MAX = 50
"""The most agents of which a heartbeat says what they are asked: so many fit into one."""
OLDER, LOGS = "older", "logs"
"""The troubles of a machine as they are seen here: it says that it has had more of the hub than the hub has now, which
looks whole here; its logs occupy as much as they may."""


@dataclass(frozen=True, kw_only=True)
class Beat:
    """One heartbeat. `position`: how many of the hub's values have passed there; `time`: its clock (seconds since the
    epoch); `queued`: the number of messages that wait there; `conflicts`: the number of edits set aside there;
    `replaced`: the identity of a hub that it found to be older than before; `ends`: it stops reporting for now;
    `asking`: the agents that wait for a human in a pane there; `troubles`: those of `TROUBLES` that it has; `relay`:
    the id of the relay process; `members`: all machines of the team, only from the machine with the hub."""

    position: int
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
        """The values whose changes are reported to other processes at once."""
        return self.queued, self.conflicts, self.asking, self.troubles, self.members, self.replaced

    @classmethod
    def parse(cls, data: bytes) -> Beat:
        """Parses a heartbeat. Raises `ValueError`, `LookupError`, `TypeError`, `AttributeError`, `ArithmeticError` or
        `RecursionError` for anything else."""
        if len(data) > BEAT_BYTES:
            raise ValueError(len(data))
        facts = json.loads(data)
        sent_at = float(facts["time"])
        if not isfinite(sent_at):  # a browser's JSON has no such number
            raise ValueError(facts["time"])
        return cls(
            position=int(facts["position"]),
            time=sent_at,
            queued=int(facts.get("queued", 0)),
            conflicts=int(facts.get("conflicts", 0)),
            replaced=facts.get("replaced") if is_name(facts.get("replaced")) else None,
            ends=bool(facts.get("ends")),
            asking=tuple(map(Asked.parse, facts.get("asking", ())[:ASKING_MAX])),
            troubles=tuple(item for item in TROUBLES if item in facts.get("troubles", ())),
            relay=str(facts.get("relay", "")),
            members=tuple(filter(is_name, facts.get("members", ()))),
        )

    def as_json(self) -> dict[str, Any]:
        return asdict(self, dict_factory=json_values)


@dataclass
class Peer:
    """Another machine, by its heartbeats. `since`: the time of the first one since it is up, or of the last one if it
    is away. `seen`: the time of the last one on this machine's monotonic clock. `said`: the last one."""

    up: bool
    since: str
    seen: float = 0.0
    said: Beat | None = None
    clock_offset: float = 0.0

    def as_answer(self, position: int, identity: str | None = None) -> dict[str, Any]:
        """Returns the machine's entry in `.share/state.json`; `position` is this machine's, `identity` the hub that it
        follows. Of a machine that is away, mail that waits there is unknown."""
        state: dict[str, Any] = {"up": self.up, "since": self.since}
        if self.said is not None:
            state |= {
                "behind": max(position - self.said.position, 0),
                "clock_offset": round(self.clock_offset, 1) + 0.0,
            }
            if self.up:
                said = self.said.as_json()
                state |= {name: said[name] for name in ("queued", "conflicts", "asking", "troubles")}
                if identity is not None and self.said.replaced == identity:
                    state["troubles"] = [*said["troubles"], OLDER]
        return state


class Heartbeats:
    """Sends this machine's heartbeats and tracks those of others. `own` makes this machine's, `on_beat` is called with
    those of others, `on_news` when a machine comes, goes or reports news. `listened`: it has run for so long that every
    machine that is up has been heard."""

    def __init__(
        self, hub: Hub, own: Callable[[], Beat], on_beat: Callable[[Beat], None], on_news: Callable[[], None]
    ) -> None:
        self.hub = hub
        self.peers: dict[str, Peer] = {}
        self.listened = False
        self._double_heard = float("-inf")
        self._remembered: Mapping[str, Peer] = {}
        self._own = own
        self._on_beat = on_beat
        self._on_news = on_news
        self._soon = asyncio.Event()

    def is_up(self, machine: str) -> bool:
        """Returns whether a machine has reported within `DEAD_SECONDS`."""
        peer = self.peers.get(machine)
        return peer is not None and peer.up

    def soon(self) -> None:
        """Makes `run` send a heartbeat at once."""
        self._soon.set()

    def remember(self, machines: Mapping[str, Mapping[str, Any]], at: str) -> None:
        """Takes the machines as an earlier relay last knew them, at this time."""
        self._remembered = {
            name: Peer(up=False, since=at if facts.get("up") else str(facts.get("since")))
            for name, facts in machines.items()
            if name != self.hub.machine
        }

    async def run(self) -> None:
        """Sends heartbeats forever, and marks machines as away that have not reported for `DEAD_SECONDS`."""
        asyncio.get_running_loop().call_later(DEAD_SECONDS, self._miss_remembered)
        while True:
            self._soon.clear()
            with suppress(Exception):  # the connection may be lost at the moment
                await self.hub.beat(self._own().as_json())
            self._bury()
            with suppress(TimeoutError):
                async with asyncio.timeout(BEAT_SECONDS):
                    await self._soon.wait()

    async def end(self) -> None:
        """Sends a last heartbeat, so that the others need not wait until they miss this machine."""
        with suppress(Exception):
            await self.hub.beat(replace(self._own(), ends=True).as_json())

    async def heard(self, message: Msg) -> None:
        """Takes a heartbeat; invalid ones are ignored."""
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
        """Whether another relay has recently reported under this machine's name: one in a copied directory."""
        return time.monotonic() - self._double_heard < DEAD_SECONDS

    def _heard_as_this(self, beat: Beat) -> None:
        if beat.relay != self.hub.relay and not beat.ends:
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
            self.soon()  # it does not know this machine yet
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
