"""Acknowledged items exist once and whole; unacknowledged ones exist whole or not at all (docs/protocol.md,
Durability).

The short form of `scripts/crash`: in a process of its own, because it forks and pytest has threads.
"""

from __future__ import annotations

import re
import sys

import pytest

from tests.crash.operations import ROOMS
from tests.crash.operations.shared import SHARED
from tests.programs import ran

NAMES = {
    **{room: [operation.name for operation in ROOMS[room]] for room in ROOMS},
    "repository": ["worktrees"],
    "shared": [*SHARED, "shared_relay"],
}


@pytest.mark.parametrize("room", NAMES)
def test_an_operation_killed_at_any_call_is_there_whole_or_not_at_all(room: str) -> None:
    names = NAMES[room]
    done = ran(sys.executable, "-m", "tests.crash", "--short", *names, seconds=600)
    assert done.returncode == 0, done.stdout + done.stderr
    tried = dict(re.findall(r"^(\w+) +(\d+) kill points, .* 0 complaints$", done.stdout, re.MULTILINE))
    assert sorted(tried) == sorted(names)
    assert all(int(count) >= 1 for count in tried.values())
