"""From a stored message to a line in the recipient's terminal."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable

from benchmarks.bench import Bench
from benchmarks.floors import FileEvents
from benchmarks.pane import Pane
from benchmarks.table import Finding
from benchmarks.team import Team
from benchmarks.timing import in_turns, ms, seconds, wait_until
from benchmarks.wire import Server

LINE = b"[IPC]"
IDLE_SECONDS = 0.1


def visible(bench: Bench) -> Finding:
    """From the call that stores the message to the pane showing the line. Each message is read before the next is
    sent, so that no doorbell is outstanding."""
    team = bench.team()
    with Pane() as pane, team.server("admin") as server:
        team.rings_in("admin", pane.socket, pane.id)
        server.settle()
        ring = _ringing(team, server, pane)
        ring()
        with FileEvents(bench.place()).watched() as events:
            measured, heard, typed = in_turns(bench.scale.rings, ring, events.latency, lambda: _one_call(pane))
    return Finding(measured / (heard + typed), ms(measured), f"{ms(heard)} inotify + {ms(typed)} tmux")


def _ringing(team: Team, server: Server, pane: Pane) -> Callable[[], float]:
    def ring() -> float:
        pane.forget()
        began = time.perf_counter()
        message = team.send()
        took = pane.visible_at(LINE) - began
        steps = team.services.tracking.steps
        wait_until(lambda: any(step["state"] == "submitted" for step in steps(message)))
        server.call("read_messages")
        time.sleep(IDLE_SECONDS)
        return took

    return ring


def _one_call(pane: Pane) -> float:
    call = ["tmux", "-S", pane.socket, "display-message", "-p", "x"]
    return seconds(lambda: subprocess.run(call, capture_output=True, check=True))
