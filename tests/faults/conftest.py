"""Fixtures: a session directory to break, and a small separate file system, if mounting is allowed."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from multi_agent_mcp.services.validation import Draft
from tests.faults.everyday import context

SMALL = "2m"


@pytest.fixture
def broken(initialised: Path, tmp_path: Path) -> Path:
    """The root of the session `demo`, with a message for worker-a."""
    root = tmp_path / "root"
    shutil.copytree(initialised, root)
    services = context(root)
    services.messages.send(services.agents.get("admin"), Draft(content="first", receiver_id="worker-a"))
    return root


@pytest.fixture
def mounted(broken: Path, tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Mounts a file system of two megabytes, with the session on it; called again, mounts it again with an option."""
    place = tmp_path / "small"
    place.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SMALL},mode=0700", "tmpfs", str(place)], capture_output=True, check=False
    )
    if done.returncode != 0:
        pytest.skip(f"mount is not allowed here: {done.stderr.decode().strip()}")
    shutil.copytree(broken, place / "root")

    def option(name: str) -> Path:
        subprocess.run(["mount", "-o", f"remount,{name}", str(place)], check=True)
        return place / "root"

    try:
        yield option
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)
