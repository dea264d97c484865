"""People's commands on a session with a long history, executions and their logs, ended sessions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.bench import Bench
from benchmarks.past import Past
from benchmarks.scale.calls import fresh_call
from benchmarks.scale.growth import Case, Cost
from benchmarks.timing import command_seconds, peak_megabytes


def over_archive(*words: str, memory: bool = False, signed: bool = False) -> Case:
    """A whole command beside archived messages: its processor time, or the most memory it had, in megabytes."""

    @contextmanager
    def case(bench: Bench, size: int) -> Iterator[Cost]:
        name = "signed archived messages" if signed else "archived messages"
        command = bench.lived(name, size, Past.archived_mail, signed=signed).command(*words)
        yield lambda: peak_megabytes(command) if memory else command_seconds(command)

    return case


def empty(*words: str) -> Case:
    """A whole command on an empty session; at "size" 0 an interpreter that does nothing."""

    @contextmanager
    def case(bench: Bench, size: int) -> Iterator[Cost]:
        team = bench.team()
        ours = [*team.command()[:3], *words] if words[-1] == "--help" else team.command(*words)
        command = ours if size else [ours[0], "-c", "pass"]
        yield lambda: command_seconds(command)

    return case


@contextmanager
def executions(bench: Bench, size: int) -> Iterator[Cost]:
    """The newest ten."""
    team = bench.lived("executions", size, Past.executions)
    with fresh_call(team, "worker", "get_my_execution_history") as cost:
        yield cost


@contextmanager
def log(bench: Bench, size: int) -> Iterator[Cost]:
    """The last 100 lines."""
    team = bench.lived("lines of one log", size, _logged)
    with fresh_call(team, "worker", "get_execution_log", execution_id=team.known, tail=100) as cost:
        yield cost


@contextmanager
def log_memory(bench: Bench, size: int) -> Iterator[Cost]:
    """The peak resident memory of a server that has read the last 100 lines of a log, in megabytes."""
    team = bench.lived("lines of one log", size, _logged)

    def cost() -> float:
        with team.server("worker") as server:
            server.call("get_execution_log", execution_id=team.known, tail=100)
            return server.resident_megabytes(peak=True)

    yield cost


@contextmanager
def ended_sessions(bench: Bench, size: int) -> Iterator[Cost]:
    """A whole server process from its start until it has answered its first call and rests."""
    team = bench.lived("ended sessions", size, Past.ended_sessions)

    def cost() -> float:
        with team.server("worker") as server:
            server.call("get_unread_count")
            server.rest()
            return server.processor_seconds()

    cost()  # what takes the old ones away is done
    yield cost


def _logged(past: Past, lines: int) -> str:
    execution_id = past.executions(1)
    past.log(execution_id, lines)
    return execution_id
