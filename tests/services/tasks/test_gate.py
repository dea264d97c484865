"""The gate that its author cannot move: what a person has approved decides, and a change of it waits for a review."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.message import signed_data
from multi_agent_mcp.domain.task import Task
from multi_agent_mcp.errors import InvalidArguments, Unauthorized
from multi_agent_mcp.wiring import Services
from tests.services.tasks_support import agent, new, open_session

CHECKS = "checks: {tests: 'true'}\n"


@pytest.fixture
def gated(services: Services) -> Services:
    _write(services, CHECKS)
    services.approvals.approve()
    return services


def _write(services: Services, text: str) -> None:
    services.workspace.settings_path.write_text(f"language: en\n{text}")


def _delivered(services: Services, place: Path, *done_when: str) -> Task:
    task = new(services, done_when=list(done_when))
    services.task_changes.start(agent(services, "worker-a"), task.id)
    services.deliveries.deliver(agent(services, "worker-a"), task.id, "built")
    services.deliveries.examine(task.id, place, lambda: False)
    return services.task_changes.get(task.id)


def test_a_new_session_is_approved_as_it_was_written(services: Services) -> None:
    assert services.approvals.look().state == "approved"


def test_what_a_person_approved_proves_without_a_review(gated: Services, tmp_path: Path) -> None:
    assert _delivered(gated, tmp_path, "tests").status == "done"
    assert [item.kind for item in gated.attention.checks_changed(gated.agents.owner())] == []


@pytest.mark.parametrize(
    ("text", "changed"),
    [
        ("checks: {tests: 'echo mended'}\n", "checks.tests"),
        ("checks: {tests: {run: 'true', directory: sub}}\n", "checks.tests"),
        ("checks: {tests: 'true', lint: 'true'}\n", "checks.lint"),
        (f"{CHECKS}protected: [a/**]\n", "protected"),
        (f"{CHECKS}done_when: [tests]\n", "done_when"),
        (f"{CHECKS}features: {{questions: off}}\n", "features"),
        (f"{CHECKS}reservations: enforce\n", "reservations"),
        (f"{CHECKS}roles: {{worker: {{edits: [a/**]}}}}\n", "roles"),
        ("checks: [\n", "session.yaml"),
    ],
)
def test_each_setting_that_decides_is_part_of_what_is_approved(gated: Services, text: str, changed: str) -> None:
    _write(gated, text)
    found = gated.approvals.look()
    assert (found.state, found.changed) == ("changed", (changed,))


def test_a_changed_check_is_run_and_waits_for_a_review(gated: Services, tmp_path: Path) -> None:
    _write(gated, "checks: {tests: 'echo easier'}\n")
    task = _delivered(gated, tmp_path, "tests")
    assert (task.status, task.done_when) == ("review", ("tests", "review"))
    assert [receipt.passed for receipt in gated.checks.receipts_of(task.id)] == [True]
    assert (task.delivery or {})["checks_changed"] is True
    (item,) = gated.attention.checks_changed(gated.agents.owner())
    assert (item.kind, item.command) == ("checks_changed", "multi-agent-mcp checks approve")
    assert gated.deliveries.decide(agent(gated, "admin"), task.id, approve=True).status == "done"
    gated.approvals.approve()
    assert _delivered(gated, tmp_path, "tests").status == "done"


def test_a_condition_that_was_approved_counts_until_a_person_approves_its_removal(gated: Services) -> None:
    _write(gated, f"{CHECKS}done_when: [tests]\n")
    gated.approvals.approve()
    _write(gated, CHECKS)
    assert new(gated).done_when == ("tests",)
    gated.approvals.approve()
    assert new(gated).done_when == ()


def test_an_approval_that_is_missing_or_forged_is_none(gated: Services, tmp_path: Path) -> None:
    record = gated.workspace.approval
    known = record.read()
    assert isinstance(known, dict)
    forgeries: list[Any] = [
        None,
        [],
        {**known, "by": "admin"},
        {**known, "at": "2020-01-01T00:00:00.000000Z"},
        {**known, "content": {**known["content"], "done_when": ["x"]}},
        {**known, "signature": signed_data(b"{}", "another key")},
    ]
    for forged in forgeries:
        gated.workspace.files.replace(gated.workspace.path / "approved.json", json.dumps(forged).encode())
        assert gated.approvals.look().state == "missing"
        assert _delivered(gated, tmp_path, "tests").status == "review"


def test_who_has_come_or_gone_decides_nothing_but_another_role_does(gated: Services) -> None:
    gated.agents.add(Agent(id="worker-c", parent_id="admin"))
    gated.agents.remove("worker-b")
    assert gated.approvals.look().state == "approved"
    gated.agents.registry.update("worker-a", role="admin")
    gated.agents.add(Agent(id="friend", role="admin", parent_id="admin"))
    gated.agents.registry.update("worker-c", edits=["**"])
    assert gated.approvals.look().changed == ("friend", "worker-a", "worker-c")


def test_an_agents_process_cannot_approve(gated: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MULTI_AGENT_MCP_AGENT", "worker-a")
    with pytest.raises(Unauthorized):
        gated.approvals.approve()
    monkeypatch.delenv("MULTI_AGENT_MCP_AGENT")
    gated.agents.registry.update("worker-a", pane_pid=os.getppid())
    with pytest.raises(Unauthorized):
        gated.approvals.approve()
    gated.agents.registry.update("worker-a", pane_pid=None)
    open_session(gated, "worker-a")  # this process is its server
    with pytest.raises(Unauthorized):
        gated.approvals.approve()


def test_where_no_person_is_at_home_nothing_can_be_signed(gated: Services) -> None:
    gated.workspace.key_path("owner").unlink()
    with pytest.raises(InvalidArguments):
        gated.approvals.approve()


def _added(services: Services, meanwhile: Callable[[], object] = lambda: None) -> tuple[str, tuple[str, ...]]:
    """A person adds an admin, and somebody else does something at the same time."""
    with services.approvals.following() as followed:
        followed.agents.append(services.agents.add(Agent(id="admin-2", role="admin", parent_id="owner")))
        meanwhile()
    return services.approvals.look().state, followed.others


def test_the_agent_that_a_person_adds_is_approved_if_all_was(gated: Services) -> None:
    assert _added(gated) == ("approved", ())
    gated.agents.remove("admin-2")
    _write(gated, f"{CHECKS}reservations: enforce\n")
    gated.agents.add(Agent(id="friend", role="admin", parent_id="owner"))
    with gated.approvals.following() as followed:
        followed.agents.append(gated.agents.add(Agent(id="admin-3", role="admin", parent_id="owner")))
    assert gated.approvals.look().changed == ("reservations", "admin-3", "friend")


@pytest.mark.parametrize(
    ("meanwhile", "changed"),
    [
        (lambda s: _write(s, "checks: {tests: 'echo easier'}\n"), "checks.tests"),
        (lambda s: _write(s, f"{CHECKS}features: {{proof: off}}\n"), "features"),
        (lambda s: s.agents.registry.update("worker-a", role="admin"), "worker-a"),
        (lambda s: s.agents.registry.update("admin-2", role="owner"), "admin-2"),
        (lambda s: s.agents.registry.update("admin-2", commands={"deny": []}), "admin-2"),
        (lambda s: s.agents.add(Agent(id="friend", role="admin", parent_id="admin")), "friend"),
    ],
)
def test_what_somebody_changes_while_a_person_adds_an_agent_is_not_approved(
    gated: Services, meanwhile: Callable[[Services], object], changed: str
) -> None:
    assert _added(gated, lambda: meanwhile(gated)) == ("changed", (changed,))
    assert changed in gated.approvals.look().changed


def test_a_session_whose_agents_are_gone_is_not_new(gated: Services) -> None:
    assert not gated.approvals.is_first()
    (gated.path / "agents.json").write_text("{}")
    assert not gated.approvals.is_first()


def test_without_a_persons_key_an_approval_made_elsewhere_counts(services: Services) -> None:
    services.workspace.settings_path.write_text("checks: {tests: 'true'}\n")
    services.approvals.approve()
    file = services.path / "approved.json"
    made_elsewhere = file.read_text()
    for kept in (file, services.path / ".checks" / "approved" / "last.json", services.path / "secrets" / "owner.key"):
        kept.unlink()
    with pytest.raises(InvalidArguments) as refusal:
        services.approvals.approve()
    assert {"people": "owner", "file": file}.items() <= refusal.value.values.items()
    assert services.approvals.look().state == "missing"
    file.write_text(made_elsewhere)
    assert services.approvals.look().state == "approved"
    services.workspace.settings_path.write_text("checks: {tests: 'false'}\n")
    assert services.approvals.look().changed == ("checks.tests",)
