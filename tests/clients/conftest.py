"""Clients of other people and languages, from npm: found in `.cache/clients`, installed where they are missing."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from filelock import FileLock

from tests.end_to_end.conftest import bare, env, made_once, team
from tests.end_to_end.support import REPOSITORY, Ran, Team, run

__all__ = ["bare", "env", "made_once", "team"]

PACKAGES = {"node": "22.23.3", "@modelcontextprotocol/inspector": "2.12.0", "@modelcontextprotocol/client": "2.3.1"}
"""The inspector needs a newer Node than most systems have, which npm brings, too."""
CACHE = REPOSITORY / ".cache" / "clients"
INSTALL_SECONDS = 300


@dataclass(frozen=True)
class Node:
    """Node.js with the packages."""

    modules: Path

    def run(self, team: Team, script: str | Path, *arguments: str | Path) -> Ran:
        command = [self.modules / "node" / "bin" / "node", script, *arguments]
        return run(command, env=team.env, cwd=team.base)


@pytest.fixture(scope="session")
def node() -> Node:
    """Skips where they cannot be had: without npm, or without its registry."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with FileLock(CACHE / ".lock"):
        if wanted := [f"{name}@{version}" for name, version in PACKAGES.items() if _installed(name) != version]:
            _install(wanted)
    return Node(CACHE / "node_modules")


def _installed(package: str) -> str:
    try:
        facts = json.loads((CACHE / "node_modules" / package / "package.json").read_text(encoding="utf-8"))
    except OSError:
        return ""
    return str(facts["version"])


def _install(packages: list[str]) -> None:
    if (npm := shutil.which("npm")) is None:
        pytest.skip("npm is not installed")
    call = [npm, "install", "--no-audit", "--no-fund", "--fetch-retries=0", "--prefix", str(CACHE), *packages]
    done = subprocess.run(call, capture_output=True, encoding="utf-8", check=False, timeout=INSTALL_SECONDS)
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        pytest.skip(f"npm could not install {', '.join(packages)}: {said[0]}")


@pytest.fixture
def served(team: Team) -> list[str]:
    """The command line of the admin's server."""
    where = ["--root", str(team.root), "--session", team.session, "--agent", "admin"]
    return [sys.executable, "-m", "multi_agent_mcp", "serve", *where]
