"""`stats` as people call it."""

from __future__ import annotations

import time

import pytest

from tests.cli.conftest import Ask, Run


def test_what_was_done_is_counted_by_agent_task_and_day(ask: Ask, run: Run) -> None:
    task = ask("task", "add", "write it", "--assignee", "worker-a")["task_id"]
    for status in ("in_progress", "done"):
        ask("task", "status", task, status)
    ask("send", "admin", "hello")
    found = ask("stats", "--days", "2")
    agents = {agent["agent_id"]: agent for agent in found["agents"]}
    assert (agents["worker-a"]["done"], agents["owner"]["sent"], agents["admin"]["received"]) == (1, 1, 1)
    assert [(item["task_id"], item["status"]) for item in found["tasks"]] == [(task, "done")]
    assert [sum(day["done"].values()) for day in found["days"]] == [0, 1]
    assert "write it" in run("stats").stdout


@pytest.mark.usefixtures("session")
@pytest.mark.parametrize("command", ["stats", "timeline --svg drawn.svg"])
def test_an_impossible_time_zone_counts_as_utc(run: Run, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "NOWHERE+99")
    time.tzset()
    try:
        assert run(*command.split()).exit_code == 0
    finally:
        monkeypatch.undo()
        time.tzset()
