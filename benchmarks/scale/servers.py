"""Many idle servers that run at the same time."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path

from benchmarks.bench import Bench
from benchmarks.table import Finding
from benchmarks.team import Team
from benchmarks.wire import Server
from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.services.team import setup as teams

PRIVATE_MEGABYTES = 52


def live(bench: Bench) -> Finding:
    """The processor time that each needs for a minute of waiting; much private memory (52 MB each) is a miss, too."""
    count, minutes = bench.scale.servers, bench.scale.minutes
    team = bench.team()
    _add(team, count)
    with ExitStack() as stack:
        servers = [stack.enter_context(team.server(f"w{number:04}")) for number in range(count)]
        for server in servers:
            server.call("get_unread_count")
        servers[0].rest()  # the last ones may have no file events left to wait for
        before = _used(servers)
        time.sleep(minutes * 60)
        each = (_used(servers) - before) / count / minutes * 1000
        private = sum(_private_megabytes(server.pid) for server in servers) / count
    told = f"{each:.1f} ms, {private:.1f} MB private ({count} servers, {minutes:g} min)"
    return Finding(each, told, sound=private <= PRIVATE_MEGABYTES)


def _add(team: Team, count: int) -> None:
    agents = tuple(Agent(id=f"w{number:04}", parent_id="admin") for number in range(count))
    teams.add_missing(team.services.agents, teams.TeamFile(agents))


def _used(servers: list[Server]) -> float:
    return sum(server.processor_seconds() for server in servers)


def _private_megabytes(pid: int) -> float:
    """Returns the memory that the process shares with no other: `Private_…` of proc_pid_smaps_rollup(5)."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_")) / 1024
