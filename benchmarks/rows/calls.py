"""Single calls over stdio, alternately to our server and to the bare server."""

from __future__ import annotations

from contextlib import ExitStack

from benchmarks.bench import Bench
from benchmarks.floors import bare_server
from benchmarks.table import Finding
from benchmarks.team import KILOBYTE
from benchmarks.timing import in_turns, ms

WARM_UP = 3


def send(bench: Bench) -> Finding:
    """Sends while the recipient's server runs, which sees the file and decides whether to ring (it has no pane)."""
    return _send(bench, served=True)


def send_unserved(bench: Bench) -> Finding:
    """The sender itself has to find out whether there is anything to ring."""
    return _send(bench, served=False)


def _send(bench: Bench, *, served: bool) -> Finding:
    team = bench.team()
    with ExitStack() as stack:
        bare = stack.enter_context(bare_server(bench.place()))
        ours = stack.enter_context(team.server("worker"))
        if served:
            stack.enter_context(team.server("admin")).settle()
        ours.settle()

        def send_message() -> float:
            return ours.timed("send_message", content=KILOBYTE, receiver_id="admin")

        def write() -> float:
            return bare.timed("write", content=KILOBYTE)

        in_turns(WARM_UP, send_message, write)
        measured, floor = in_turns(bench.scale.calls, send_message, write)
    return Finding(measured / floor, ms(measured), ms(floor))
