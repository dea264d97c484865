"""Nothing is typed into a stranger, whatever its agent is declared as (a real tmux, real programs)."""

from __future__ import annotations

import pytest

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.doorbell.tmux.notifier import TmuxNotifier
from multi_agent_mcp.doorbell.tmux.profiles import load_profiles
from tests.conformance.stage import Stage
from tests.conformance.strangers import HOSTS, PREFIX, Strangers
from tests.end_to_end.support import wait_until
from tests.programs import ran

pytestmark = pytest.mark.tmux
LINE = "[IPC] 新しいメッセージ: request from admin"
SHELLS = {"prompt", "nested", "renamed", "terminal-script"}


def test_editors_pagers_prompts_shells_and_unknown_dialogs_get_no_key(stage: Stage) -> None:
    strangers, notifier = Strangers(stage), TmuxNotifier(0.02, load_profiles(), quiet_seconds=0)
    found = {}
    for stranger in strangers.all:
        for label in HOSTS:
            agent = stage.workspace.registry.get(f"{PREFIX}{stranger.name}-{label}")
            outcome = notifier.ring(agent, LINE)
            found[stranger.name, label] = (outcome.state, outcome.reason)
            assert notifier.check(agent) == outcome.reason
            assert notifier.finish(agent).state == "stored"
    reasons = {key: ("stored", "shell" if key[0] in SHELLS else "unknown_host") for key in found}
    assert found == reasons
    assert strangers.typed() == []


def test_a_tmux_inside_gets_nothing_because_its_own_copy_mode_would_swallow_the_line(stage: Stage) -> None:
    inner = f"tmux -f /dev/null -S {stage.directory / 'inner'}"
    heard = stage.directory / "inner.heard"
    pane = stage.tmux(
        "new-session", "-d", "-P", "-F", "#{pane_id}", f"exec env -u TMUX {inner} new-session 'exec tee {heard}'"
    )
    try:
        wait_until(heard.exists, "the inner pane's program reads lines")
        stage.workspace.registry.add(Agent(id="inside", host="plain"))
        stage.register("inside", pane)
        agent, notifier = stage.workspace.registry.get("inside"), TmuxNotifier(0.02, load_profiles(), quiet_seconds=0)
        assert agent.pane_program, "the client of the inner tmux is what was registered"
        outcome = notifier.ring(agent, LINE)
        assert (outcome.state, outcome.reason) == ("stored", "unknown_host")
        assert notifier.check(agent) == "unknown_host"
    finally:
        ran(*inner.split(), "kill-server")
    assert heard.read_bytes() == b""
