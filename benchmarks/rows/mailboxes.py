"""The effect of a long history on frequent operations: a crowded mailbox beside one with few messages."""

from __future__ import annotations

from benchmarks.bench import Bench
from benchmarks.table import Finding
from benchmarks.team import Team, hot_files
from benchmarks.timing import in_turns, ms, wait_until

WARM_UP = 3


def unread_warm(bench: Bench) -> Finding:
    """Asks the same server process repeatedly."""
    return _warm(bench, bench.crowded)


def unread_fresh(bench: Bench) -> Finding:
    """The first call of a server that was just started."""
    return _fresh(bench, bench.crowded)


def unread_heaped(bench: Bench) -> Finding:
    """After the server has tidied the mailbox up, which it does in the background when it starts."""
    return _warm(bench, bench.heaped())


def unread_heaped_fresh(bench: Bench) -> Finding:
    """The very first look at a mailbox that nobody has tidied up; each mailbox serves once."""
    teams = [bench.heaped() for _ in range(bench.scale.rounds)]
    measured, floor = in_turns(len(teams), lambda: _first_count(teams.pop()), lambda: _first_count(bench.calm))
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


def _warm(bench: Bench, team: Team) -> Finding:
    with team.server("admin") as many, bench.calm.server("admin") as few:
        for server in (many, few):
            server.settle()
        wait_until(lambda: hot_files(team) <= 2 * bench.scale.few, within=120)
        in_turns(WARM_UP, lambda: many.timed("get_unread_count"), lambda: few.timed("get_unread_count"))
        measured, floor = in_turns(
            bench.scale.calls, lambda: many.timed("get_unread_count"), lambda: few.timed("get_unread_count")
        )
    return _finding(measured, floor)


def _fresh(bench: Bench, team: Team) -> Finding:
    measured, floor = in_turns(bench.scale.spawns, lambda: _first_count(team), lambda: _first_count(bench.calm))
    return _finding(measured, floor)


def _first_count(team: Team) -> float:
    with team.server("admin") as server:
        return server.timed("get_unread_count")


def _finding(measured: float, floor: float) -> Finding:
    return Finding(measured / floor, ms(measured), ms(floor))
