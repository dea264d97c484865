"""The short forms of `scripts/partition`."""

from __future__ import annotations

from pathlib import Path

from tests.partition.claims import claim
from tests.partition.run import run
from tests.partition.soak import soak


def test_what_is_acknowledged_is_everywhere_once_whatever_is_cut_stopped_and_killed(tmp_path: Path) -> None:
    assert run(tmp_path, messages=120, rounds=3, count=3) == []


def test_of_many_processes_on_three_machines_one_wins_each_task(tmp_path: Path) -> None:
    assert claim(tmp_path, tasks=20, processes=6) == []


def test_machines_that_work_while_one_floods_and_links_are_cut_lose_and_double_nothing(tmp_path: Path) -> None:
    assert soak(tmp_path, seconds=2, count=3, batch=10) == []
