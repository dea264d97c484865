"""The wiring: every service can be made, and is handed what its parameters are annotated with."""

from __future__ import annotations

import sys
from operator import attrgetter
from typing import Any, get_type_hints

import pytest

from multi_agent_mcp.bootstrap import LocalConsequences, Services
from multi_agent_mcp.errors import HubUnreachable
from multi_agent_mcp.service_container import SUPPLIED_BY, WiredServices

WIRED = sorted(WiredServices.__annotations__)


def fits(value: object, wanted: Any) -> bool:
    """Whether a value is an instance of the class, or has all members of the protocol; True for other annotations."""
    if not isinstance(wanted, type):
        return True
    if getattr(wanted, "_is_protocol", False):
        return all(hasattr(value, name) for name in vars(wanted) if not name.startswith("_"))
    return isinstance(value, wanted)


@pytest.mark.parametrize("name", WIRED)
def test_a_service_is_made_of_what_its_parameters_ask_for(services: Services, name: str) -> None:
    service = getattr(services, name)
    assert type(service).__name__ == WiredServices.__annotations__[name]
    assert getattr(services, name) is service
    wanted = get_type_hints(type(service).__init__, vars(sys.modules[type(service).__module__]))
    for parameter, annotation in wanted.items():
        if parameter != "return":
            supplied = attrgetter(SUPPLIED_BY.get(parameter, parameter))(services)
            assert fits(supplied, annotation), f"{parameter} is a {type(supplied).__name__}"


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
