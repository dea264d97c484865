"""Hand-offs: written, derived, and which of them count (docs/protocol.md, Hand-offs)."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest

from multi_agent_mcp.errors import ContentTooLarge, InvalidArguments, InvalidId, TaskNotFound, Unauthorized
from multi_agent_mcp.services.search import SearchQuery
from multi_agent_mcp.wiring import Services
from tests.conftest import Clock
from tests.services.support import read
from tests.services.tasks_support import UNKNOWN, open_session, running


def names(services: Services, agent_id: str = "worker-a") -> list[str]:
    return services.workspace.hand_offs(agent_id).home.names()


def test_it_is_a_file_with_the_keys_of_the_format(services: Services) -> None:
    task = running(services)
    kept = services.hand_offs.write(services.agents.get("worker-a"), "line\n---\n  last \n", None, None)
    assert re.fullmatch(r"\d{8}_\d{6}_[0-9a-f]{8}\.md", kept.path.name)
    assert kept.path.parent == services.path / "handoffs" / "worker-a"
    header, _, body = kept.path.read_text().partition("\n---\n\n")
    keys = [line.partition(":")[0] for line in header.splitlines() if line != "---"]
    assert keys == ["id", "agent_id", "task_id", "kind", "created_at"]
    assert body == "line\n---\n  last \n"
    assert (kept.hand_off.task_id, kept.hand_off.kind) == (task.id, "written")
    assert services.hand_offs.find(kept.hand_off.id) == kept
    (traced,) = services.tracking.trace(kept.hand_off.id)
    assert (services.path / traced["path"], traced["task_id"]) == (kept.path, task.id)


def test_what_makes_no_sense_is_refused_and_writes_nothing(services: Services) -> None:
    worker, others = services.agents.get("worker-a"), running(services, assignee_id="worker-b")
    for content, task_id, refusal in (
        ("x" * 4_001, None, ContentTooLarge),
        (" \n", None, InvalidArguments),
        ("\ud800", None, InvalidArguments),
        ("x", "nonsense", InvalidId),
        ("x", UNKNOWN, TaskNotFound),
        ("x", others.id, Unauthorized),
    ):
        with pytest.raises(refusal):
            services.hand_offs.write(worker, content, task_id, None)
    assert names(services) == []
    assert services.hand_offs.write(worker, "x" * 4_000, None, None).hand_off.task_id is None


def test_the_last_one_about_each_open_task_counts_and_the_others_are_archived(services: Services, clock: Clock) -> None:
    worker, task = services.agents.get("worker-a"), running(services)
    for content in ("first", "second"):
        clock.advance(1)
        services.hand_offs.write(worker, content, None, None)
    assert [kept.hand_off.content for kept in services.hand_offs.all("worker-a")] == ["second", "first"]
    assert len(names(services)) == 1
    services.task_changes.set_status(worker, task.id, "done")
    services.sessions.recover("worker-a")
    assert names(services) == []
    assert [kept.hand_off.content for kept in services.hand_offs.all(task_id=task.id)] == ["second", "first"]
    found = services.search.find(SearchQuery.parse(["second"])).found
    assert [(item.kind, item.title, item.task_id) for item in found] == [("handoff", task.title, task.id)]
    later = datetime.now(UTC) + timedelta(days=900)
    prunable = [item.kind for item in services.pruning.prunable(later, timedelta(days=30))]
    assert prunable.count("handoffs") == 2


def test_one_is_derived_once_after_each_progress_and_not_after_one_was_written(
    services: Services, clock: Clock
) -> None:
    worker, task = services.agents.get("worker-a"), running(services, "Build", description="with a roof")
    session = open_session(services, "worker-a")
    services.executions.log(services.executions.begin(session.record, task.id), "Calling tool: read_messages")

    def progress(percent: int) -> None:
        clock.advance(1)
        items = [{"text": "walls", "completed": True}, {"text": "roof", "completed": False}]
        services.task_reports.report_progress(worker, task.id, percent, f"at {percent}", items)
        clock.advance(1)

    clock.advance(1)
    assert services.hand_offs.derive("worker-a") is not None, "before any progress"
    assert services.hand_offs.derive("worker-a") is None
    progress(30)
    kept = services.hand_offs.derive("worker-a")
    assert kept is not None
    assert kept.hand_off.kind == "derived"
    for said in ("Build", "30%", "- [x] walls", "- [ ] roof", "at 30", "with a roof", "Calling tool: read_messages"):
        assert said in kept.hand_off.content
    assert services.hand_offs.derive("worker-a") is None
    progress(60)
    services.hand_offs.write(worker, "my own words", None, None)
    assert services.hand_offs.derive("worker-a") is None
    clock.advance(1)
    read(services, "admin")  # the reports take effect now
    services.hand_offs.derive("worker-a")
    assert services.hand_offs.derive("worker-b") is None, "it holds no task"


def test_the_new_assignee_is_shown_where_the_former_one_left_off(services: Services) -> None:
    task = running(services)
    kept = services.hand_offs.write(services.agents.get("worker-a"), "the roof is next", None, None)
    services.task_changes.assign(services.agents.get("admin"), task.id, "worker-b")
    session = open_session(services, "worker-b")
    work = services.next_action.next_action(services.agents.get("worker-b"), session)
    assert work["action"] == "work"
    assert work["hand_off"]["handoff_id"] == kept.hand_off.id
    assert work["hand_off"]["path"] == str(kept.path)
    assert "worker-a" in work["instruction"]
