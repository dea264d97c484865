"""Done means proven, across machines: each runs its own checks only, and everybody sees the receipts."""

from __future__ import annotations

from pathlib import Path

from multi_agent_mcp.services.tasks.board import NewTask
from tests.hub.support import Machine, eventually


def test_what_is_checked_here_and_approved_there_is_done_here(desk: Machine, laptop: Machine, tmp_path: Path) -> None:
    here, there = desk.services, laptop.services
    settings = here.workspace.settings_path
    settings.write_text(settings.read_text() + "checks: {tests: echo tested}\n")
    here.approvals.approve()
    admin, owner = here.agents.get("admin"), here.agents.get("owner")
    new = NewTask(title="the house", assignee_id="admin", done_when=("tests", "review"))
    (task,) = here.task_creation.create(owner, [new])
    here.task_changes.start(admin, task.id)
    here.deliveries.deliver(admin, task.id, "built")
    here.deliveries.examine(task.id, tmp_path, lambda: False)
    (receipt,) = here.checks.receipts_of(task.id)
    eventually(lambda: there.checks.receipts_of(task.id) == [receipt])
    assert not there.checks.known()
    eventually(lambda: there.task_changes.get(task.id).status == "review")
    assert there.deliveries.decide(there.agents.get("owner"), task.id, approve=True).status == "review"
    eventually(lambda: here.deliveries.pending("admin"))
    here.deliveries.examine(task.id, tmp_path, lambda: False)
    eventually(lambda: there.task_changes.get(task.id).proof == "proven")
