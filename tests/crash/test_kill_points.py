"""What was acknowledged is there, once, whole; what was not is there whole or not at all (contract §3).

The short form of `scripts/crash`: in a process of its own, because it forks and pytest has threads.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.crash.operations import OPERATIONS

REPOSITORY = Path(__file__).parents[2]


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_killed_at_any_call_is_there_whole_or_not_at_all(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.crash", "--short", name],
        cwd=REPOSITORY,
        env={key: value for key, value in os.environ.items() if key in ("PATH", "HOME", "PYTHONPATH")},
        capture_output=True,
        encoding="utf-8",
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    tried = re.search(r"^(\d+) kill points tried, 0 complaints", done.stdout, re.MULTILINE)
    assert tried is not None
    assert int(tried[1]) >= 4
