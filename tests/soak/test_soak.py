"""The short form of `scripts/soak`: once per suite, a team at work for a little while in bad conditions."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.end_to_end.support import REPOSITORY

MINUTES = "0.25"  # and about half of that to begin and to look at what is left


@pytest.mark.slow
@pytest.mark.tmux
def test_a_team_whose_servers_are_killed_all_the_time_loses_nothing_and_reads_nothing_twice() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.soak", "--minutes", MINUTES, "--agents", "12", "--seed", "suite", "--json"],
        cwd=REPOSITORY,
        capture_output=True,
        encoding="utf-8",
        check=False,
        timeout=600,
    )
    assert done.stdout, done.stderr
    report = json.loads(done.stdout)
    assert report["wrong"] == [], done.stderr
    assert done.returncode == 0
    assert report["operations"] > 0
    assert report["kills"] > 0
    assert report["messages acknowledged"] > 0
