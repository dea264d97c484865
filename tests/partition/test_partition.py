"""The short form of `scripts/partition`."""

from __future__ import annotations

from pathlib import Path

from tests.partition.run import run


def test_what_is_acknowledged_is_everywhere_once_whatever_is_cut_stopped_and_killed(tmp_path: Path) -> None:
    assert run(tmp_path, letters=240) == []
