"""Programs that tests run to their end, in an environment of few variables."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
INHERITED = ("PATH", "HOME", "PYTHONPATH", "MULTI_AGENT_MCP_CHECK_LOCKS")


def ran(*command: str, seconds: float = 120, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=REPOSITORY,
        env={name: value for name, value in os.environ.items() if name in INHERITED} | variables,
        capture_output=True,
        encoding="utf-8",
        check=False,
        timeout=seconds,
    )
