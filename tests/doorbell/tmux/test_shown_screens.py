"""No captured screen of a host gets a key unless it is one to type into, in a real tmux (docs/hosts.md,
Distinguishing the states)."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.doorbell.tmux.notifier import TmuxNotifier
from multi_agent_mcp.doorbell.tmux.profiles import load_profiles
from tests.conformance.stage import Stage
from tests.doorbell.tmux.test_screens import LATER, STATES_LATER
from tests.end_to_end.support import wait_until
from tests.programs import PACKAGES, stand_in

pytestmark = pytest.mark.tmux
LINE = "[IPC] 新しいメッセージ: request from admin"


class Showing:
    """A host's stand-in in a pane, registered for an agent."""

    def __init__(self, stage: Stage, host: str) -> None:
        self.pipe, self.log = stage.directory / f"{host}.pipe", stage.directory / f"{host}.heard"
        os.mkfifo(self.pipe)
        script = stand_in(stage.directory, host)
        pane = stage.tmux(
            "new-session", "-d", "-s", f"shows-{host}", "-x", "120", "-y", "45", "-P", "-F", "#{pane_id}",
            f"exec {sys.executable} {script} tests.conformance.shown {self.pipe} {self.log}",
        )  # fmt: skip
        stage.workspace.registry.add(Agent(id=f"shows-{host}", host=host))
        stage.register(f"shows-{host}", pane)
        self.agent = stage.workspace.registry.get(f"shows-{host}")

    def show(self, path: Path) -> None:
        self.pipe.write_text(f"{path}\n", encoding="utf-8")

    @property
    def heard(self) -> bytes:
        return self.log.read_bytes() if self.log.exists() else b""


@pytest.fixture
def showing(stage: Stage, request: pytest.FixtureRequest) -> Iterator[Showing]:
    made = Showing(stage, request.param)
    yield made
    stage.tmux("kill-session", "-t", f"={made.agent.id}", check=False)


@pytest.mark.parametrize("showing", PACKAGES, indirect=True)
def test_no_dialog_gets_a_key(showing: Showing) -> None:
    host, notifier = showing.agent.host, TmuxNotifier(0.02, load_profiles(), quiet_seconds=0)
    screens = {name: state for name, state in STATES_LATER.items() if name.startswith(f"{host}/")}
    for name, state in screens.items():
        takes_lines = state == "idle" or (state == "busy" and notifier.profiles.named[str(host)].takes_lines_while_busy)
        if not takes_lines:
            showing.show(LATER / name)
            wait_until(lambda state=state: notifier.host(showing.agent) == (host, state), f"tmux shows {name}")  # type: ignore[misc]
            outcome = notifier.ring(showing.agent, LINE)
            assert (outcome.state, outcome.reason) == ("stored", state), name
            assert notifier.finish(showing.agent).state == "stored"
            assert notifier.check(showing.agent) == state
    assert showing.heard == b""
    showing.show(LATER / next(name for name, state in screens.items() if state == "idle"))
    wait_until(lambda: notifier.check(showing.agent) is None, "an empty composer")
    notifier.ring(showing.agent, LINE)
    assert LINE.encode() in showing.heard, "what is typed would have been heard"
