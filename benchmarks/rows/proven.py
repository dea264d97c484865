"""Done means proven: what a task without conditions pays for those that have some."""

from __future__ import annotations

import itertools

from benchmarks.bench import Bench
from benchmarks.table import Finding
from benchmarks.team import Team
from benchmarks.timing import in_turns, ms
from benchmarks.wire import Server
from multi_agent_mcp.services.tasks.board import NewTask


def unconditional(bench: Bench) -> Finding:
    """`report_completed` for a task without `done_when`, in a session with a check and with reviews that wait, against
    a session that has neither. Both have as many open tasks."""
    with_checks, plain = bench.team(), bench.team()
    settings = with_checks.services.workspace.settings_path
    settings.write_text(f"{settings.read_text()}\nchecks:\n  tests: exit 1\n", encoding="utf-8")
    with_checks = Team(with_checks.root)
    _waiting(with_checks, bench.scale.few, "tests", "review")
    _waiting(plain, bench.scale.few)
    with with_checks.server("worker") as one, plain.server("worker") as other:
        one.settle()
        other.settle()
        numbers = itertools.count()
        measured, floor = in_turns(
            bench.scale.calls,
            lambda: _finished(with_checks, one, next(numbers)),
            lambda: _finished(plain, other, next(numbers)),
        )
    return Finding(measured / floor, ms(measured), ms(floor))


def _waiting(team: Team, count: int, *done_when: str) -> None:
    new = [NewTask(title=f"waits {number}", assignee_id="admin", done_when=done_when) for number in range(count)]
    team.services.task_creation.create(team.services.agents.get("owner"), new)


def _finished(team: Team, server: Server, number: int) -> float:
    """Seconds of the report; the task is made and begun before."""
    services = team.services
    new = NewTask(title=f"task {number}", assignee_id="worker", done_when=())
    (task,) = services.task_creation.create(services.agents.get("owner"), [new])
    server.call("update_task_status", task_id=task.id, status="in_progress")
    return server.timed("report_completed", result="success")
