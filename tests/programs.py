"""Programs that tests run to their end, in an environment of few variables, and those that stand in for hosts."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from itertools import chain, repeat
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
PACKAGES = {
    "claude": "@anthropic-ai/claude-code",
    "codex": "@openai/codex",
    "gemini": "@google/gemini-cli",
    "opencode": "opencode-ai",
    "copilot": "@github/copilot",
}
"""Host → the package by whose directory it is known."""
STAND_IN = f"""\
import runpy, sys
sys.path.insert(0, {str(REPOSITORY)!r})
del sys.argv[0]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""
INHERITED = ("PATH", "HOME", "PYTHONPATH", "MULTI_AGENT_MCP_CHECK_LOCKS")


def pauses() -> Iterator[float]:
    """Yields the seconds between one look and the next, for whoever waits by looking: the longer it takes, the less
    often, as the look takes the processor from what is waited for."""
    return chain((0.02 * 1.25**looks for looks in range(8)), repeat(0.1))


def stand_in(directory: Path, host: str) -> Path:
    """A script where npm would have put the host's: `python SCRIPT MODULE ARGUMENT…` runs a module of the tests, and is
    the host to all that ask which file runs."""
    script = directory / "node_modules" / PACKAGES[host] / host
    if not script.exists():
        script.parent.mkdir(parents=True)
        script.write_text(STAND_IN, encoding="utf-8")
    return script


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
