"""What is proven of a task whose agent works in a worktree: its commit, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.task import Task
from multi_agent_mcp.errors import NotCommitted, NotProven
from multi_agent_mcp.services.repository.worktrees import Worktree
from multi_agent_mcp.services.tasks.deliveries import Examined
from multi_agent_mcp.system.git import git
from multi_agent_mcp.wiring import Services
from tests.conftest import Clock
from tests.server.seat import Seat
from tests.services.repository.test_worktrees import commit, made
from tests.services.tasks_support import again, moved, new, shown

CHECK = 'test "$(cat a.txt)" = good'


@pytest.fixture
def worktree(services: Services, project: Path) -> Worktree:
    """The worktree of worker-a; the check of the session fails in it as yet."""
    services.workspace.settings_path.write_text(f"checks: {{tests: '{CHECK}'}}\n")
    return made(services)


def begun(services: Services, *conditions: str) -> Task:
    return moved(services, new(services, done_when=conditions), "in_progress")


def says_done(services: Services, task: Task, elsewhere: Path, summary: str = "good now") -> Examined:
    """The assignee says so; its server, started in another directory, examines it."""
    worker = services.agents.get("worker-a")
    delivered = services.deliveries.deliver(worker, task.id, summary)
    if not delivered.checks or not delivered.is_examined:
        return services.deliveries.settle(delivered)
    services.deliveries.examine(task.id, elsewhere, lambda: False)
    return services.deliveries.outcome_of(task.id)


def test_what_is_not_committed_is_not_done_and_its_superior_hears_of_the_second_time(
    services: Services, worktree: Worktree, tmp_path: Path
) -> None:
    task = begun(services, "tests")
    Path(worktree.path, "a.txt").write_text("good\n")
    for _ in range(3):
        with pytest.raises(NotCommitted, match=r"a\.txt"):
            says_done(services, task, tmp_path)
    assert services.checks.receipts_of(task.id) == []
    (notice,) = shown(services, "admin")
    assert (notice["action"], notice["reason"], notice["task_id"]) == ("not_committed", "a.txt", task.id)
    head = commit(worktree, "a.txt", "good\n")
    outcome = says_done(services, task, tmp_path)
    (receipt,) = services.checks.receipts_of(task.id)
    assert (outcome.task.proof, receipt.head, receipt.dirty) == ("proven", head, False)


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("report_completed", {"result": "success"}),
        ("report_task_completion", {"status": "completed", "message": "done"}),
        ("update_task_status", {"status": "done"}),
    ],
)
def test_every_way_to_say_done_is_refused(
    services: Services, worktree: Worktree, tool: str, arguments: dict[str, Any]
) -> None:
    task = begun(services, "review")
    Path(worktree.path, "new.txt").write_text("x")
    seat = Seat(services, "worker-a")
    named = {} if tool == "report_completed" else {"task_id": task.id}
    answer = seat.call(tool, None, **arguments, **named)
    assert answer["error"] == "not_committed"
    assert "new.txt" in answer["message"]
    with pytest.raises(NotCommitted):
        services.deliveries.set_status(services.agents.get("worker-a"), task.id, "done")


def test_a_superior_s_word_does_not_make_it_done_either(services: Services, worktree: Worktree) -> None:
    task = begun(services, "tests")
    commit(worktree, "a.txt", "good\n")
    services.deliveries.verify(task.id)
    Path(worktree.path, "new.txt").write_text("x")
    with pytest.raises(NotCommitted):
        services.deliveries.set_status(services.agents.get("admin"), task.id, "done")
    Path(worktree.path, "new.txt").unlink()
    assert services.deliveries.set_status(services.agents.get("admin"), task.id, "done")[0].status == "done"


def test_a_review_is_of_what_was_reported_whatever_was_committed_since(
    services: Services, admin: Agent, worktree: Worktree, tmp_path: Path
) -> None:
    task = begun(services, "tests", "review")
    head = commit(worktree, "a.txt", "good\n")
    assert says_done(services, task, tmp_path).task.status == "review"
    (notice,) = shown(services, "admin")
    assert (notice["action"], notice["head"], notice["reason"]) == ("review_requested", head, "good now")
    commit(worktree, "a.txt", "evil\n")
    done = services.deliveries.decide(admin, task.id, approve=True)
    assert (done.status, done.proof) == ("done", "proven")
    delivery = services.worktrees.delivery(task.id)
    assert delivery is not None
    assert delivery.commit == head


def test_checks_of_what_was_reported_run_elsewhere_once_the_agent_goes_on(
    services: Services, admin: Agent, worktree: Worktree, tmp_path: Path
) -> None:
    task = begun(services, "tests", "review")
    commit(worktree, "a.txt", "good\n")
    services.deliveries.deliver(services.agents.get("worker-a"), task.id, "good now")
    Path(worktree.path, "a.txt").write_text("half way\n")
    services.deliveries.examine(task.id, tmp_path, lambda: False)
    assert again(services, task).status == "review"
    assert Path(worktree.path, "a.txt").read_text() == "half way\n"
    assert len(git(worktree.path, "worktree", "list").splitlines()) == 2
    assert not Path(f"{worktree.path}.check").exists()


def test_another_commit_needs_another_review(
    services: Services, admin: Agent, worktree: Worktree, tmp_path: Path
) -> None:
    task = begun(services, "review", "review:owner")
    first = commit(worktree, "a.txt", "first\n")
    says_done(services, task, tmp_path)
    services.notifications.read("admin", "task")
    services.deliveries.decide(admin, task.id, approve=True)
    assert says_done(services, task, tmp_path, "in other words").task.status == "review"  # the same commit
    second = commit(worktree, "a.txt", "second\n")
    says_done(services, task, tmp_path)
    for state in (None, first):
        with pytest.raises(NotProven, match=second):
            services.deliveries.decide(admin, task.id, approve=True, state=state)
    assert services.deliveries.decide(admin, task.id, approve=True, state=second[:10]).status == "review"
    owner = services.agents.get("owner")
    with pytest.raises(NotProven):
        services.deliveries.decide(owner, task.id, approve=True)
    services.notifications.read("owner", "task")
    assert services.deliveries.decide(owner, task.id, approve=True).status == "done"


def test_of_several_receipts_of_a_commit_the_newest_counts(
    services: Services, clock: Clock, admin: Agent, worktree: Worktree, tmp_path: Path
) -> None:
    flag = tmp_path / "outside"
    services.workspace.settings_path.write_text(f"checks: {{tests: 'test ! -e {flag}'}}\n")
    task = begun(services, "tests", "review")
    says_done(services, task, tmp_path)
    flag.touch()
    clock.advance(1)
    assert services.deliveries.verify(task.id)[1].failed == "tests"
    assert services.deliveries.decide(admin, task.id, approve=True).status == "review"
    services.deliveries.examine(task.id, tmp_path, lambda: False)
    assert again(services, task).status == "in_progress"


def test_a_receipt_of_another_command_counts_nothing(
    services: Services, admin: Agent, worktree: Worktree, tmp_path: Path
) -> None:
    services.workspace.settings_path.write_text("checks: {tests: 'true'}\n")
    task = begun(services, "tests", "review")
    says_done(services, task, tmp_path)
    services.workspace.settings_path.write_text("checks: {tests: 'exit 3'}\n")
    assert services.deliveries.decide(admin, task.id, approve=True).status == "review"


def test_what_failed_alike_three_times_is_not_run_again_and_the_superior_is_told(
    services: Services, worktree: Worktree, tmp_path: Path
) -> None:
    task = begun(services, "tests")
    outcomes = [says_done(services, task, tmp_path) for _ in range(5)]
    assert {outcome.check for outcome in outcomes} == {"failed"}
    assert len(services.checks.receipts_of(task.id)) == 3
    assert [notice["action"] for notice in shown(services, "admin")] == ["check_repeats"]
    assert services.deliveries.verify(task.id)[1].failed == "tests"
    assert len(services.checks.receipts_of(task.id)) == 4
    commit(worktree, "a.txt", "good\n")
    assert says_done(services, task, tmp_path).task.status == "done"


def test_what_a_check_makes_is_in_nobody_s_way_and_what_it_changes_is(
    services: Services, worktree: Worktree, tmp_path: Path
) -> None:
    services.workspace.settings_path.write_text(
        "checks: {tests: 'echo 1 > report.xml; mkdir -p .cache; date +%N > .cache/last', lint: 'test -e report.xml'}\n"
    )
    task = begun(services, "tests", "lint")
    assert says_done(services, task, tmp_path).task.status == "done"
    services.workspace.settings_path.write_text("checks: {tests: 'date +%N >> a.txt'}\n")
    Path(worktree.path, "report.xml").unlink()
    (Path(worktree.path) / ".cache" / "last").unlink()
    task = begun(services, "tests")
    outcome = says_done(services, task, tmp_path)
    assert (outcome.check, [item.changed_during for item in services.checks.receipts_of(task.id)]) == (
        "failed",
        [True, True],
    )
