"""Problems of an agent, derived from the known facts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from multi_agent_mcp.domain.stuck import AgentFacts, PaneLook, Patience, stuck, stuck_notice

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
PATIENCE = Patience(timedelta(minutes=30))


def ago(minutes: float) -> datetime:
    return NOW - timedelta(minutes=minutes)


def pane(minutes: float, *, state: str = "idle", served: bool = False) -> PaneLook:
    return PaneLook("claude", state, served, ago(minutes))


@pytest.mark.parametrize(
    ("facts", "cause", "since"),
    [
        (AgentFacts(alive=True, active_at=ago(600)), None, None),  # it waits, and has nothing to do
        (AgentFacts(alive=True, active_at=ago(29), task_id="t", task_since=ago(600)), None, None),
        (AgentFacts(alive=True, active_at=ago(30), task_id="t", task_since=ago(600)), "silent", 30),
        (AgentFacts(alive=True, active_at=ago(600), task_id="t", task_since=ago(29)), None, None),
        (AgentFacts(task_id="t", task_since=ago(31)), "silent", 31),
        (AgentFacts(alive=True, active_at=ago(5), unread_since=ago(60)), None, None),
        (AgentFacts(alive=True, active_at=ago(60), unread_since=ago(40)), "unanswered", 40),
        (AgentFacts(active_at=ago(60), pane=pane(1)), "no_server", 1),
        (AgentFacts(active_at=ago(60), pane=pane(0.9)), None, None),
        (AgentFacts(active_at=ago(60), pane=pane(9), left=True), None, None),
        (AgentFacts(active_at=ago(60), pane=pane(9, served=True)), None, None),  # it has just gone
        (AgentFacts(alive=True, pane=pane(9)), None, None),  # it has just come
        (AgentFacts(alive=True, pane=pane(2, state="login", served=True)), "login", 2),
        (AgentFacts(pane=pane(2, state="login"), task_id="t", task_since=ago(99)), "login", 2),
        (
            AgentFacts(alive=True, pane=pane(2, state="offline", served=True), task_id="t", task_since=ago(99)),
            "offline",
            2,
        ),
        (AgentFacts(alive=True, pane=pane(0.9, state="offline", served=True)), None, None),
        (AgentFacts(alive=True, active_at=NOW + timedelta(hours=1), task_id="t", task_since=ago(99)), None, None),
    ],
)
def test_what_has_lasted_too_long_is_told_and_nothing_else(
    facts: AgentFacts, cause: str | None, since: float | None
) -> None:
    found = stuck(facts, NOW, PATIENCE)
    assert (found.cause if found else None) == cause
    assert found is None or since is None or found.since == ago(since)


def test_one_beginning_is_told_once_to_one_superior_whoever_finds_it_and_when() -> None:
    silent = AgentFacts(alive=True, active_at=ago(60), task_id="tsk_1", task_since=ago(90))
    gone = AgentFacts(active_at=ago(60), task_id="tsk_1", task_since=ago(90))
    later = NOW + timedelta(minutes=7)
    notices = [
        stuck_notice("worker-a", found, "admin", "why")
        for found in (stuck(silent, NOW, PATIENCE), stuck(gone, later, PATIENCE))
        if found is not None
    ]
    assert notices[0] == notices[1]
    assert notices[0].created_at == ago(30)
    again = stuck(AgentFacts(active_at=ago(59), task_id="tsk_1", task_since=ago(90)), NOW, PATIENCE)
    assert again is not None
    assert stuck_notice("worker-a", again, "admin", "why").id != notices[0].id
