"""`serve` without an agent, with a clock set by a test: `python -m tests.end_to_end.later ROOT SESSION FILE`.

The file contains the number of seconds by which the clock is ahead.
"""

from __future__ import annotations

import os
import sys
from datetime import datetime, timedelta
from pathlib import Path

from multi_agent_mcp.bootstrap import open_session
from multi_agent_mcp.domain import times
from multi_agent_mcp.server.app import run
from multi_agent_mcp.server.binding import Binding


def main(root: str, session: str, file: str) -> None:
    def clock() -> datetime:
        return times.now() + timedelta(seconds=float(Path(file).read_text(encoding="ascii")))

    run(Binding(open_session(Path(root), session, clock=clock)), os.getppid())


if __name__ == "__main__":
    main(*sys.argv[1:])
