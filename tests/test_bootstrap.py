"""The wiring: every service can be made."""

from __future__ import annotations

from functools import cached_property

import pytest

from multi_agent_mcp.bootstrap import LocalConsequences
from multi_agent_mcp.errors import HubUnreachable
from multi_agent_mcp.wiring import Services

PARTS = sorted(name for name, value in vars(Services).items() if isinstance(value, cached_property))


@pytest.mark.parametrize("name", PARTS)
def test_a_service_is_made_once_and_is_what_its_property_says(services: Services, name: str) -> None:
    service = getattr(services, name)
    wanted = str(vars(Services)[name].func.__annotations__["return"])
    assert wanted in {base.__name__ for base in type(service).__mro__}
    assert getattr(services, name) is service


def test_an_agent_that_moved_in_while_the_hub_was_slow_gets_its_key_later(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise it could not sign anything until the relay is restarted."""
    taken: list[str] = []

    def slow_at_first(agent_id: str) -> None:
        taken.append(agent_id)
        if len(taken) == 1:
            raise HubUnreachable("hub_unclear")

    monkeypatch.setattr(services.agents, "take_home", slow_at_first)
    consequences = LocalConsequences(services)
    consequences.moved_in(services.agents.get("worker-a"))
    assert taken == ["worker-a"]
    for _ in range(2):
        consequences.look_after_agents()
    assert taken == ["worker-a", "worker-a"]
