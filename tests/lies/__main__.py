"""Tells many lies, each kind in turn, and counts those that reach `done`."""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from multi_agent_mcp.bootstrap import open_session
from multi_agent_mcp.doorbell.channel import Recorder
from multi_agent_mcp.services.team.setup import add_missing, create_session
from tests.conftest import TEAM
from tests.lies.lies import KINDS, place


def main(count: int) -> int:
    base, started = Path(tempfile.mkdtemp()), time.monotonic()
    create_session(base / "root", "demo", TEAM, "en")
    services = open_session(base / "root", "demo", notifier=Recorder())
    add_missing(services.agents, TEAM)
    told, believed = Counter[str](), Counter[str]()
    for number in range(count):
        kind = KINDS[number % len(KINDS)]
        with place(services, base / "work") as at:
            kind(at)
            task = at.says_done()
            at.superior_says_done()
            told[kind.__name__] += 1
            believed[kind.__name__] += services.task_changes.get(task.id).status == "done"
    for name, number in told.items():
        sys.stdout.write(f"{name:20}{number:5} told {believed[name]:5} believed\n")
    took = time.monotonic() - started
    sys.stdout.write(f"{told.total()} lies, {believed.total()} reached done, {took:.0f} s\n")
    shutil.rmtree(base)
    return int(believed.total() > 0)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 200))
