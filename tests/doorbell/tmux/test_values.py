"""Nothing that tmux hands out is believed before it was looked at."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.doorbell.channels import HookChannel
from multi_agent_mcp.doorbell.tmux.client import number
from multi_agent_mcp.doorbell.tmux.snapshot import FACTS_FORMAT, PaneMarker, machine_time, parse_facts
from multi_agent_mcp.store.durable_files import Files

NO_NUMBERS = ["", "-1", "+1", " 1", "1 ", "1_0", "²", "1²", "١", "1e3", "9" * 19, "9" * 5000, "x"]


@pytest.mark.parametrize("text", NO_NUMBERS)
def test_a_number_is_plain_digits_and_not_too_many(text: str, tmp_path: Path) -> None:
    assert number(text) is None
    for values in ((text, "1", "1"), ("1", text, "1"), ("1", "1", text)):
        assert PaneMarker.parse(":".join(("k3x9", *values))) is None
    (tmp_path / ".hooks").mkdir()
    (tmp_path / ".hooks" / "a.armed").write_text(f"{text} x", encoding="utf-8")
    assert HookChannel(Files(tmp_path)).check(Agent(id="a")) == "no_hook"


@pytest.mark.parametrize("column", range(FACTS_FORMAT.count("\t") + 1))
@pytest.mark.parametrize("value", ["²", "a\tb", "9" * 5000, ""])
def test_a_value_that_makes_no_sense_ends_nothing(column: int, value: str) -> None:
    values = ["1"] * (FACTS_FORMAT.count("\t") + 1)
    assert parse_facts("\t".join(values)) is not None
    values[column] = value
    parse_facts("\t".join(values))


def test_a_marker_is_young_by_the_machines_time_and_never_by_one_to_come() -> None:
    marker = PaneMarker("k3x9", os.getpid(), machine_time())
    assert PaneMarker.parse(str(marker)) == marker
    assert marker.younger_than(10)
    for at in (marker.at - 11, marker.at + 60, 1_800_000_000):
        assert not PaneMarker("k3x9", os.getpid(), at).younger_than(10)
