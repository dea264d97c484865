"""Tasks: many finished ones, many open ones, long histories, long lines of subtasks and dependencies."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.bench import Bench
from benchmarks.past import Past
from benchmarks.scale.calls import called, fresh_call
from benchmarks.scale.growth import Cost
from benchmarks.team import Team


@contextmanager
def started(bench: Bench, size: int) -> Iterator[Cost]:
    """A whole server process from its start until it has answered its first call and rests, beside finished tasks."""
    team = bench.lived("finished tasks", size, Past.finished_tasks)

    def cost() -> float:
        with team.server("worker") as server:
            server.call("get_my_tasks")
            server.rest()
            return server.processor_seconds()

    cost()  # what is kept about an archive is made by whoever looks first
    yield cost


@contextmanager
def my_tasks(bench: Bench, size: int) -> Iterator[Cost]:
    """`get_my_tasks` after somebody gave the agent a task, and all that its server does about that."""
    team = bench.lived("finished tasks", size, Past.finished_tasks)
    with team.server("worker") as server:
        server.rest()
        yield called(server, "get_my_tasks", news=lambda: Past(team.services.workspace).open_tasks(1))


@contextmanager
def report_beside_finished(bench: Bench, size: int) -> Iterator[Cost]:
    """The admin reads one report of progress."""
    with _report(bench.lived("finished tasks", size, Past.finished_tasks)) as cost:
        yield cost


@contextmanager
def report_beside_open(bench: Bench, size: int) -> Iterator[Cost]:
    """The admin reads one report of progress beside open tasks."""
    with _report(bench.lived("open tasks", size, Past.open_tasks)) as cost:
        yield cost


@contextmanager
def long_history(bench: Bench, size: int) -> Iterator[Cost]:
    """One change of a task that was changed so often; the first, which may put the past elsewhere, is not counted."""
    team = bench.lived("changes of one task", size, Past.task_with_history)
    with team.server("worker") as server:
        server.rest()
        blocked = called(server, "update_task_status", task_id=team.known, status="blocked")
        reopened = called(server, "update_task_status", task_id=team.known, status="in_progress")
        blocked()
        reopened()
        yield lambda: (blocked() + reopened()) / 2


@contextmanager
def block_line(bench: Bench, size: int) -> Iterator[Cost]:
    """The owner blocks the topmost of subtasks that are each the only one of the one before; each time of another
    session."""

    def cost() -> float:
        team = bench.team()
        root = Past(team.services.workspace).subtasks_in_line(size)
        with fresh_call(team, "owner", "update_task_status", task_id=root, status="blocked") as blocked:
            return blocked()

    yield cost


@contextmanager
def dependency_chain(bench: Bench, size: int) -> Iterator[Cost]:
    """`get_next_action` of an agent whose tasks wait for each other; the first of them is in its hands."""
    team = bench.lived("tasks in a chain", size, Past.dependency_chain)
    with fresh_call(team, "worker", "get_next_action") as cost:
        yield cost


@contextmanager
def _report(team: Team) -> Iterator[Cost]:
    task_id = Past(team.services.workspace).tasks_in_progress(1)
    with team.server("admin") as server, team.server("worker") as worker:
        server.rest()
        worker.rest()
        yield called(
            server,
            "read_messages",
            news=lambda: worker.call("report_task_progress", task_id=task_id, progress=50),
        )
