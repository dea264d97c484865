"""Tasks: many finished ones, many open ones, long histories, long lines of subtasks and dependencies."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.bench import Bench
from benchmarks.past import Past
from benchmarks.scale.calls import called, fresh_call
from benchmarks.scale.growth import Cost
from benchmarks.team import Team
from benchmarks.timing import processor_seconds
from multi_agent_mcp.services.tasks.creation import NewTask


@contextmanager
def started(bench: Bench, size: int) -> Iterator[Cost]:
    """A whole server process from its start until it has answered its first call and rests, beside finished tasks."""
    team = bench.lived("finished tasks", size, Past.finished_tasks)

    def cost() -> float:
        with team.server("worker") as server:
            server.call("get_my_tasks")
            server.rest()
            return server.processor_seconds()

    yield cost


@contextmanager
def my_tasks(bench: Bench, size: int) -> Iterator[Cost]:
    """`get_my_tasks` after somebody gave the agent a task, and all that its server does about that."""
    team = bench.lived("finished tasks", size, Past.finished_tasks)
    owner = team.services.agents.get("owner")
    with team.server("worker") as server:
        server.rest()

        def change() -> None:
            team.services.task_creation.create(owner, [NewTask(title="news", assignee_id="worker")])

        yield called(server, "get_my_tasks", before=change)


@contextmanager
def report_beside_finished(bench: Bench, size: int) -> Iterator[Cost]:
    """The admin reads one report of progress."""
    with _report(bench.lived("finished tasks", size, Past.finished_tasks)) as cost:
        yield cost


@contextmanager
def report_beside_open(bench: Bench, size: int) -> Iterator[Cost]:
    """The same beside tasks that are still to be done."""
    with _report(bench.lived("open tasks", size, Past.open_tasks)) as cost:
        yield cost


@contextmanager
def long_history(bench: Bench, size: int) -> Iterator[Cost]:
    """One change of a task that was changed so often; the first, which may put the past elsewhere, is not counted."""
    team = bench.lived("changes of one task", size, Past.task_with_history)
    changes, worker = team.services.task_changes, team.services.agents.get("worker")
    statuses = iter(["blocked", "in_progress"] * 50)

    def change() -> None:
        changes.set_status(worker, team.known, next(statuses), "for a while")

    change()
    yield lambda: processor_seconds(change)


@contextmanager
def block_line(bench: Bench, size: int) -> Iterator[Cost]:
    """The owner blocks the topmost of subtasks that are each the only one of the one before; each time of another
    session."""

    def cost() -> float:
        team = bench.team()
        root = Past(team.services.workspace).subtasks_in_line(size)
        owner = team.services.agents.get("owner")
        return processor_seconds(lambda: team.services.task_changes.set_status(owner, root, "blocked", "stop"))

    yield cost


@contextmanager
def dependency_chain(bench: Bench, size: int) -> Iterator[Cost]:
    """`get_next_action` of an agent whose tasks wait for each other; the first of them is in its hands."""
    team = bench.lived("tasks in a chain", size, Past.dependency_chain)
    with fresh_call(team, "worker", "get_next_action") as cost:
        yield cost


@contextmanager
def _report(team: Team) -> Iterator[Cost]:
    worker, owner = team.services.agents.get("worker"), team.services.agents.get("owner")
    (task,) = team.services.task_creation.create(owner, [NewTask(title="reported on", assignee_id="worker")])
    team.services.task_changes.start(worker, task.id)
    with team.server("admin") as server:
        server.rest()
        yield called(
            server, "read_messages", before=lambda: team.services.assignments.report_progress(worker, task.id, 50)
        )
