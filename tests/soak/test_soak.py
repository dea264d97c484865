"""The short form of `scripts/soak`: once per suite, a team at work for a little while in bad conditions; and that its
verdict finds what it looks for."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.wiring import Services
from tests.conftest import Clock
from tests.end_to_end.support import REPOSITORY
from tests.services.tasks_support import again, running
from tests.soak.ledger import Ledger
from tests.soak.verdict import handed_twice, unseen, was_overtaken

MINUTES = "0.12"  # and about half of that to begin and to look at what is left


@pytest.mark.slow
@pytest.mark.tmux
def test_a_team_whose_servers_are_killed_all_the_time_loses_nothing_and_reads_nothing_twice() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.soak", "--minutes", MINUTES, "--agents", "8", "--seed", "suite", "--json"],
        cwd=REPOSITORY,
        capture_output=True,
        encoding="utf-8",
        check=False,
        timeout=600,
    )
    assert done.stdout, done.stderr
    report = json.loads(done.stdout)
    assert report["wrong"] == [], done.stderr
    assert done.returncode == 0
    assert report["operations"] > 0
    assert report["kills"] > 0
    assert report["messages acknowledged"] > 0


@pytest.mark.parametrize("early", [False, True])
def test_an_interrupt_that_was_marked_read_while_it_stood_is_found_though_its_task_was_reopened(
    services: Services, owner: Agent, clock: Clock, *, early: bool
) -> None:
    task = running(services)
    clock.advance(1)
    services.task_changes.set_status(owner, task.id, "blocked")
    clock.advance(1)
    inbox = services.workspace.notices("worker-a")
    if early:
        inbox.mark_read([name for name, _ in inbox.unread()], clock())
    clock.advance(1)
    services.task_changes.set_status(owner, task.id, "in_progress")
    found = [*unseen(Ledger(), "worker-a", [*inbox.history()], {task.id: again(services, task)})]
    assert ["UNSEEN" in line for line in found] == [True] * early


@pytest.mark.parametrize("early", [False, True])
def test_a_resumption_that_another_pause_overtook_is_no_loss(
    services: Services, owner: Agent, clock: Clock, *, early: bool
) -> None:
    interrupting, inbox = services.interrupting, services.workspace.notices("worker-a")
    interrupting.interrupt(owner, "worker-a", "pause", None, None)
    services.notifications.read("worker-a", "task")
    clock.advance(1)
    resumed = interrupting.resume(owner, "worker-a")
    clock.advance(1)
    if early:
        inbox.mark_read([name for name, _ in inbox.unread()], clock())
        clock.advance(1)
    interrupting.interrupt(owner, "worker-a", "pause", None, None)
    services.derived_notices.end("worker-a")
    (found,) = [notice for notice in inbox.history() if notice.id == resumed.id]
    assert found.read_at is not None
    assert was_overtaken(found, [*inbox.history(), *(notice for _, notice in inbox.unread())]) is not early


def test_what_a_dead_reader_had_may_come_once_more_even_before_its_host_knows_of_the_death() -> None:
    books = Ledger()
    for _ in range(2):
        books.hand_out("worker-a", ["m"])
    assert len([*handed_twice(books)]) == 1
    books.may_return("worker-a", ["m"])
    assert [*handed_twice(books)] == []
