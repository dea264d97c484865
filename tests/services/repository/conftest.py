"""Sessions with settings of a repository."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from multi_agent_mcp.bootstrap import open_session
from multi_agent_mcp.system.git import git
from multi_agent_mcp.wiring import Services

NAMED = ("-c", "user.name=T", "-c", "user.email=t@example.org")


@pytest.fixture
def reopened(services: Services) -> Callable[..., Services]:
    """Opens the session again, with further settings in session.yaml."""

    def reopen(**settings: object) -> Services:
        path = services.workspace.settings_path
        path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), **settings}))
        return open_session(services.root, "demo", clock=services.clock, notifier=services.notifier)

    return reopen


@pytest.fixture
def project(services: Services) -> Path:
    """The repository in which the session is, as after `init`, with one commit."""
    place = services.root.parent
    (place / "a.txt").write_text("one\n")
    (place / ".gitignore").write_text(".multi-agent-mcp/\n.env\n")
    for call in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-q", "-m", "first"]):
        subprocess.run(["git", *NAMED, *call], cwd=place, check=True)
    git(place, "config", "user.name", "T")
    git(place, "config", "user.email", "t@example.org")
    return place
