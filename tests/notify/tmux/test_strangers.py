"""Nothing is typed into a stranger, whatever its agent is declared as (a real tmux, real programs)."""

from __future__ import annotations

import pytest

from multi_agent_mcp.notify.tmux.notifier import TmuxNotifier
from multi_agent_mcp.notify.tmux.profiles import load_profiles
from tests.conformance.stage import Stage
from tests.conformance.strangers import HOSTS, PREFIX, Strangers

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
