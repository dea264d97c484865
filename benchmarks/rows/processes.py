"""The cost of one agent's server: start-up time, memory, and space in the agent's context."""

from __future__ import annotations

import json
from collections.abc import Callable

from benchmarks.bench import Bench
from benchmarks.floors import bare_server
from benchmarks.pane import Pane
from benchmarks.table import Finding
from benchmarks.team import KILOBYTE
from benchmarks.timing import in_turns, wait_until
from benchmarks.wire import Server

FEW = 5


def spawn(bench: Bench) -> Finding:
    """Starts our server and the bare one, with the same handshake in raw lines: initialize, initialized, tools/list."""
    team, place = bench.team(), bench.place()
    measured, floor = in_turns(
        bench.scale.spawns, lambda: _listed(lambda: team.server("admin")), lambda: _listed(lambda: bare_server(place))
    )
    return Finding(measured / floor, f"{measured:.2f} s", f"{floor:.2f} s")


def memory(bench: Bench) -> Finding:
    """After a few calls and a doorbell in a real pane, so that everything it ever needs is loaded."""
    team = bench.team()
    with Pane() as pane, team.server("admin") as ours, bare_server(bench.place()) as bare:
        team.rings_in("admin", pane.socket, pane.id)
        ours.settle()
        for _ in range(FEW):
            message = team.send()
            ours.call("send_message", content=KILOBYTE, receiver_id="worker")
            bare.call("write", content=KILOBYTE)
            wait_until(lambda sent=message: bool(team.services.tracking.steps(sent)))  # type: ignore[misc]
            ours.call("read_messages")
        measured, floor = ours.resident_megabytes(), bare.resident_megabytes()
    return Finding(measured - floor, f"{measured:.1f} MB", f"{floor:.1f} MB")


def tools(bench: Bench) -> Finding:
    """The largest list that any role and purpose is shown, as it is in the agent's context."""
    team = bench.team()
    sizes = {}
    for agent_id in ("owner", "admin", "worker"):
        for purpose in ("task", "chat"):
            with team.server(agent_id, MULTI_AGENT_MCP_PURPOSE=purpose) as server:
                sizes[f"{agent_id}, {purpose}"] = _size(server)
    largest = max(sizes, key=sizes.__getitem__)
    return Finding(sizes[largest] / 1024, f"{sizes[largest]} bytes ({largest})")


def _listed(start: Callable[[], Server]) -> float:
    """Seconds until the list was answered; the process's end is not counted."""
    server = start()
    with server:
        server.tools()
        return server.age()


def _size(server: Server) -> int:
    return len(json.dumps(server.tools(), ensure_ascii=False, separators=(",", ":")).encode())
