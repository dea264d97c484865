"""One stretch of work, and its end."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from multi_agent_mcp.domain.agent import Execution

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
RUNNING = Execution(id="exec_0123456789ab", agent_id="worker-a", task_id="tsk_0123456789ab", started_at=NOON)


def test_an_execution_runs_until_it_is_finished() -> None:
    assert (RUNNING.running, RUNNING.status, RUNNING.exit_code, RUNNING.duration_seconds) == (
        True,
        "running",
        None,
        None,
    )
    done = RUNNING.finish(NOON + timedelta(seconds=90.25))
    assert (done.running, done.status, done.exit_code, done.duration_seconds) == (False, "completed", 0, 90.25)
    assert (done.completed_at, done.error_message) == (NOON + timedelta(seconds=90.25), None)


def test_an_end_with_a_reason_is_a_failure() -> None:
    failed = RUNNING.finish(NOON, error_message="blocked")
    assert (failed.status, failed.exit_code, failed.error_message, failed.duration_seconds) == (
        "failed",
        1,
        "blocked",
        0.0,
    )


def test_finishing_twice_changes_nothing() -> None:
    done = RUNNING.finish(NOON)
    assert done.finish(NOON + timedelta(hours=1), error_message="too late") is done


def test_a_clock_that_was_set_back_gives_no_negative_duration() -> None:
    assert RUNNING.finish(NOON - timedelta(seconds=5)).duration_seconds == 0.0
