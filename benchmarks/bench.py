"""One run of the benchmarks: its extent, its directory, and the teams that several rows share."""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from benchmarks.past import Past
from benchmarks.team import Team


@dataclass(frozen=True)
class Scale:
    """The extent of a run: the number of repetitions, and the sizes of the data."""

    calls: int = 150
    spawns: int = 11
    rings: int = 30
    rounds: int = 3
    read: int = 10_000
    few: int = 100
    processes: int = 8
    sends: int = 200
    tasks: int = 5_000
    letters: int = 20_000
    cards: int = 1_000
    servers: int = 200
    minutes: float = 10
    entities: int = 100_000
    flood: int = 20_000
    largest: int = 1_000_000
    """`--scale` makes nothing larger."""


FULL = Scale()
QUICK = Scale(
    calls=40,
    spawns=3,
    rings=6,
    rounds=1,
    read=2_000,
    tasks=600,
    letters=2_000,
    cards=300,
    servers=20,
    minutes=0.5,
    entities=5_000,
    flood=2_000,
    largest=10_000,
)


class Bench:
    """The argument of every row: the directory, the scale, and the teams."""

    def __init__(self, directory: Path, scale: Scale) -> None:
        self.directory = directory
        self.scale = scale
        self._numbers = itertools.count()
        self._lived: dict[tuple[str, int], Team] = {}

    def place(self) -> Path:
        """A fresh directory on the disk that is measured."""
        path = self.directory / f"{next(self._numbers)}"
        path.mkdir()
        return path

    def team(self) -> Team:
        """A fresh team with empty mailboxes."""
        return Team.made(self.place())

    def lived(self, name: str, size: int, live: Callable[[Past, int], object], *, signed: bool = False) -> Team:
        """The team whose past of this name `live` has made up in this size, once a run: rows that only look share it.
        What `live` returns is the team's `known`."""
        if (name, size) not in self._lived:
            team, began = self.team(), time.monotonic()
            sign = team.services.signatures.sign if signed else None
            team.known = live(Past(team.services.workspace, sign=sign), size)
            print(f"    made {size} {name} in {time.monotonic() - began:.0f} s", file=sys.stderr)
            self._lived[name, size] = team
        return self._lived[name, size]

    @cached_property
    def crowded(self) -> Team:
        """A team whose admin has read many messages in the course of its life."""
        team = self.team()
        team.live_through(self.scale.read)
        return team

    @cached_property
    def calm(self) -> Team:
        """Returns a team with few read messages, for comparison with `crowded`."""
        team = self.team()
        team.live_through(self.scale.few)
        return team

    @cached_property
    def planned(self) -> Team:
        """A team with many tasks and much mail: what the console has to show."""
        team = self.team()
        team.plan(self.scale.tasks)
        team.live_through(self.scale.letters)
        return team
