"""How many agents are at work at once, with `at_most: auto` (docs/protocol.md, Whoever is free)."""

from __future__ import annotations

from types import SimpleNamespace

import psutil
import pytest
import yaml

from multi_agent_mcp.bootstrap import open_session
from multi_agent_mcp.doorbell.channel import Recorder
from multi_agent_mcp.errors import InvalidArguments
from multi_agent_mcp.settings import parse_at_most
from multi_agent_mcp.windows.places import has_place
from multi_agent_mcp.windows.window_registry import TeamWindows
from multi_agent_mcp.wiring import Services
from tests.conftest import Clock

GIB = 1 << 30


@pytest.mark.parametrize(("percent", "free", "is_room"), [(10, 8 * GIB, True), (95, 8 * GIB, False), (10, 1, False)])
def test_auto_opens_no_second_agent_while_processors_or_memory_are_in_use(
    services: Services, clock: Clock, recorder: Recorder, monkeypatch: pytest.MonkeyPatch, percent: int, free: int,
    is_room: bool,
) -> None:  # fmt: skip
    path = services.path / "session.yaml"
    path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text(encoding="utf-8")), "at_most": "auto"}))
    services = open_session(services.root, "demo", clock=clock, notifier=recorder)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=free))
    monkeypatch.setattr(psutil, "cpu_percent", lambda **_: percent)
    windows = TeamWindows(services, "/nowhere")
    first, second, owner = (services.agents.get(one) for one in ("worker-a", "worker-b", "owner"))
    assert has_place(windows, second), "nobody is at work"
    services.sessions.open(first.id, "task")
    assert has_place(windows, first), "it is at work already"
    assert has_place(windows, owner), "people are not counted"
    assert has_place(windows, second) is is_room


@pytest.mark.parametrize("given", [0, -1, 1.5, True, "many", [2]])
def test_what_is_no_number_of_agents_is_refused(given: object) -> None:
    with pytest.raises(InvalidArguments, match="at_most"):
        parse_at_most(given, "at_most")
