"""A pane of worker-a for the console's tests, on a separate tmux server, with a program that asks questions."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from multi_agent_mcp.doorbell.tmux.client import pane_place
from tests.conformance.stage import Stage
from tests.doorbell.tmux.asker import asker_command
from tests.end_to_end.support import Team, wait_until

Opened = Callable[[str], None]


@pytest.fixture
def own_tmux(team: Team) -> Iterator[Stage]:
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed")
    assert team.services.session.name
    with Stage(0) as made:
        yield made


@pytest.fixture
def opened(own_tmux: Stage, team: Team) -> Opened:
    """Starts a program in worker-a's pane."""

    def open_pane(command: str) -> None:
        size = ("-x", "100", "-y", "32")
        pane = own_tmux.tmux("new-session", "-d", *size, "-P", "-F", "#{pane_id}", command)
        team.services.agents.change("worker-a", host="claude", **(pane_place(own_tmux.socket, pane) or {}))

    return open_pane


def asks(team: Team, opened: Opened, base: Path) -> Path:
    log = base / "asker.log"
    opened(asker_command(log))
    wait_until(team.services.panes.dialogs, "it asks")
    return log


def keys(log: Path) -> list[str]:
    records = map(json.loads, log.read_text(encoding="utf-8").splitlines())
    return [record["key"] for record in records if record["event"] == "key"]
