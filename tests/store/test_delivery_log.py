"""The delivery log: an entry for each attempt to ring, read by message and from its end."""

from __future__ import annotations

import pytest

from multi_agent_mcp.domain.times import format_time
from multi_agent_mcp.store.durable_files import Files
from multi_agent_mcp.store.records import DeliveryLog
from tests.store.support import NOON


@pytest.fixture
def log(files: Files) -> DeliveryLog:
    log = DeliveryLog(files, files.base / ".doorbell" / "worker-a.jsonl")
    log.add("deferred", NOON, ["one"], reason="busy")
    log.add("rung", NOON, ["one", "two"], pane="%1", attempt=1)
    log.add("submitted", NOON, ["one", "two"], pane="%1", attempt=1)
    log.add("deferred", NOON, ["two"], reason="busy")
    return log


def test_the_steps_of_a_message_are_told_oldest_first(log: DeliveryLog) -> None:
    steps = log.steps()
    assert [step["state"] for step in steps["one"]] == ["deferred", "rung", "submitted"]
    assert steps["two"][-1] == {"state": "deferred", "at": format_time(NOON), "reason": "busy"}
    assert steps.keys() == {"one", "two"}


def test_rings_are_the_entries_that_got_across_newest_first(log: DeliveryLog) -> None:
    assert [entry["state"] for entry in log.rings()] == ["submitted", "rung"]


def test_a_deferral_is_news_unless_it_is_the_last_entry_of_its_message(log: DeliveryLog) -> None:
    assert log.without_deferral(["one", "two", "three"], "busy") == ["one", "three"]
    assert log.without_deferral(["two"], "draft") == ["two"]


def test_only_what_names_a_message_itself_is_an_entry_about_it(log: DeliveryLog) -> None:
    log.add("deferred", NOON, ["three hundred", 'a "quoted" one'], reason="busy")
    log.add("rung", NOON, ["four"], pane="three hundred")
    assert log.without_deferral(["three", "three hundred", 'a "quoted" one'], "busy") == ["three"]
