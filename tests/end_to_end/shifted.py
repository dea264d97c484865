"""`python -m tests.end_to_end.shifted …`: the program under a clock that is ahead by the seconds in `SHIFT_FILE`, which
`set_clock` may change while it runs. Durations are measured by the monotonic clock, which cannot be set."""

from __future__ import annotations

import os
import time
from datetime import UTC, datetime
from pathlib import Path

from multi_agent_mcp.__main__ import main
from multi_agent_mcp.domain import times

real_time = time.time


def set_clock(shift_file: Path, seconds: int) -> None:
    """Replaces the file in one step: a file written in place is empty for a moment."""
    scratch = shift_file.with_suffix(".new")
    scratch.write_text(str(seconds), encoding="ascii")
    scratch.replace(shift_file)


def shifted() -> float:
    return real_time() + float(Path(os.environ["SHIFT_FILE"]).read_text(encoding="ascii"))


if __name__ == "__main__":
    time.time = shifted
    time.time_ns = lambda: int(shifted() * 1e9)
    times.now = lambda: datetime.fromtimestamp(shifted(), UTC)  # before `bootstrap` is imported, which hands it on
    main()
