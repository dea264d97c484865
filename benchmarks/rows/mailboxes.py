"""The effect of a long history on frequent operations: a crowded mailbox beside one with few messages."""

from __future__ import annotations

from benchmarks.bench import Bench
from benchmarks.table import Finding
from benchmarks.team import Team
from benchmarks.timing import in_turns, ms

WARM_UP = 3


def unread_warm(bench: Bench) -> Finding:
    """Asks the same server process repeatedly."""
    with bench.crowded.server("admin") as many, bench.calm.server("admin") as few:
        for server in (many, few):
            server.settle()
        in_turns(WARM_UP, lambda: many.timed("get_unread_count"), lambda: few.timed("get_unread_count"))
        measured, floor = in_turns(
            bench.scale.calls, lambda: many.timed("get_unread_count"), lambda: few.timed("get_unread_count")
        )
    return _finding(measured, floor)


def unread_fresh(bench: Bench) -> Finding:
    """The first call of a server that was just started."""
    crowded, calm = bench.crowded, bench.calm
    measured, floor = in_turns(bench.scale.spawns, lambda: _first_count(crowded), lambda: _first_count(calm))
    return _finding(measured, floor)


def read_one(bench: Bench) -> Finding:
    """The message is stored beforehand; the call hands it over and marks it read."""
    crowded, calm = bench.crowded, bench.calm
    with crowded.server("admin") as many, calm.server("admin") as few:
        for server in (many, few):
            server.settle()

        def of_many() -> float:
            crowded.send()
            return many.timed("read_messages")

        def of_few() -> float:
            calm.send()
            return few.timed("read_messages")

        in_turns(WARM_UP, of_many, of_few)
        measured, floor = in_turns(bench.scale.calls, of_many, of_few)
    return _finding(measured, floor)


def _first_count(team: Team) -> float:
    with team.server("admin") as server:
        return server.timed("get_unread_count")


def _finding(measured: float, floor: float) -> Finding:
    return Finding(measured / floor, ms(measured), ms(floor))
