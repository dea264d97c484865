"""What was acknowledged is there, once, whole; what was not is there whole or not at all
(docs/protocol.md, Durability).

The short form of `scripts/crash`: in a process of its own, because it forks and pytest has threads.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.crash.operations import ROOMS

REPOSITORY = Path(__file__).parents[2]


@pytest.mark.parametrize("room", ROOMS)
def test_an_operation_killed_at_any_call_is_there_whole_or_not_at_all(room: str) -> None:
    names = [operation.name for operation in ROOMS[room]]
    done = subprocess.run(
        [sys.executable, "-m", "tests.crash", "--short", *names],
        cwd=REPOSITORY,
        env={
            key: value
            for key, value in os.environ.items()
            if key in ("PATH", "HOME", "PYTHONPATH", "MULTI_AGENT_MCP_CHECK_LOCKS")
        },
        capture_output=True,
        encoding="utf-8",
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    tried = dict(re.findall(r"^(\w+) +(\d+) kill points, .* 0 complaints$", done.stdout, re.MULTILINE))
    assert sorted(tried) == sorted(names)
    assert all(int(count) >= 3 for count in tried.values())
