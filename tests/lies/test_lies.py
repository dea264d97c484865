"""No lie reaches `done`, and the truth does."""

from __future__ import annotations

from pathlib import Path

import pytest

from multi_agent_mcp.wiring import Services
from tests.lies.lies import KINDS, Place, edited_meanwhile, git, place, printing, processes_in


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind is not printing])
def test_a_lie_does_not_reach_done_and_leaves_nothing_running(services: Services, tmp_path: Path, kind: object) -> None:
    with place(services, tmp_path / "work") as at:
        assert callable(kind)
        kind(at)
        task = at.says_done()
        assert (task.status, task.delivery) == ("in_progress", None)
        at.superior_says_done()
        assert services.task_changes.get(task.id).status == "in_progress"
        assert processes_in(at.directory) == []
        failed = [receipt for receipt in services.checks.receipts_of(task.id) if not receipt.passed]
        assert kind is edited_meanwhile or len(failed) == 1


def test_the_truth_is_done_at_once(services: Services, tmp_path: Path) -> None:
    with place(services, tmp_path / "work") as at:
        task = at.says_done()
        (receipt,) = services.checks.receipts_of(task.id)
        assert (task.status, task.proof, task.receipts) == ("done", "proven", [receipt.id])
        assert (receipt.exit_code, receipt.changed_during, receipt.dirty) == (0, False, False)


def edit(at: Place) -> None:
    at.write("code.txt", "bad\n")


def hide(at: Place) -> None:
    """An edit that git was told not to see."""
    git(at.directory, "update-index", "--assume-unchanged", "code.txt")
    at.write("code.txt", "bad\n")


@pytest.mark.parametrize("deed", [edit, hide])
def test_what_is_edited_after_its_check_is_not_done_when_it_is_approved(
    services: Services, tmp_path: Path, deed: object
) -> None:
    with place(services, tmp_path / "work", ("tests", "review")) as at:
        assert at.says_done().status == "review"
        assert callable(deed)
        deed(at)
        admin = services.agents.get("admin")
        assert services.deliveries.decide(admin, at.task.id, approve=True).status == "review"
        assert [task.id for task in services.deliveries.pending("worker-a")] == [at.task.id]
        services.deliveries.examine(at.task.id, at.directory, lambda: False)  # the assignee's server
        assert services.task_changes.get(at.task.id).status == "in_progress"


def test_a_forged_receipt_counts_for_nothing(services: Services, tmp_path: Path) -> None:
    with place(services, tmp_path / "work", ("tests", "review")) as at:
        at.says_done()
        (path,) = (services.path / "receipts" / at.task.id).glob("*.md")
        task = services.task_changes.get(at.task.id)
        forged = path.with_name("rcp_0123456789ab.md")
        forged.write_text(path.read_text().replace(path.stem, forged.stem))
        assert services.checks.proof_of(task) == {"tests": path.stem}
        path.unlink()
        assert services.checks.proof_of(task) is None
