"""The wiring: every service is made, of what the names of its fields say."""

from __future__ import annotations

from operator import attrgetter
from types import MethodType

import pytest

from multi_agent_mcp.wiring import ByName, Services, _Part

BY_NAME = sorted(name for name in vars(ByName) if not name.startswith("_"))


@pytest.mark.parametrize("name", BY_NAME)
def test_a_service_is_given_what_its_fields_are_said_to_be(services: Services, name: str) -> None:
    service = getattr(services, name)
    assert type(service).__name__ == ByName.__annotations__[name]
    for parameter, kind in type(service).__init__.__annotations__.items():
        if parameter in ("return", "session") or not kind.isidentifier():
            continue
        given = vars(service).get(parameter, vars(service).get(f"_{parameter}"))
        if given is not None and not isinstance(given, MethodType):  # it is kept, and of a kind that has a name
            assert kind in {base.__name__ for base in type(given).__mro__}, parameter


@pytest.mark.parametrize(
    "name", ["notifications", "hooks", "tool_calls", "doorbell", "reading", "messages", "telemetry"]
)
def test_what_is_wired_by_hand_is_made_once(services: Services, name: str) -> None:
    get = attrgetter(name)
    assert get(services) is get(services)


WAYS_BACK = {
    "attention.look_at",
    "attention.screen",
    "briefings.further",
    "dashboard.uncommitted_count",
    "budgets.is_supervised",
    "derived_notices.finished",
    "derived_notices.follow_questions",
    "doorbell._find_limits",
    "doorbell._find_notifications",
    "doorbell.is_at_work",
    "doorbell.opens_chat",
    "hooks.find_briefings",
    "hooks.find_hand_offs",
    "loops.is_alive",
    "notice_writer.find_ring",
    "notifications.next_deadline",
    "operations.services",
    "recent_attention._examine",
    "sessions.ended",
    "sessions.settle_hand_offs",
    "task_reports.delivered",
    "task_reports.left_behind",
}
"""The fields by which a service still calls the wiring, or what the wiring looks up for it. They are to become fewer: a
new service names its neighbours, and what would run in a circle belongs into one of them."""


WITHOUT_FIELDS = {"telemetry"}


def leads_back(value: object) -> bool:
    """Whether a call of this runs code of the wiring."""
    owner = getattr(value, "__self__", None)
    return isinstance(owner, Services) or getattr(value, "__module__", "") == Services.__module__


def test_no_further_way_leads_back_into_the_wiring(services: Services) -> None:
    names = [name for kind in (ByName, Services) for name, part in vars(kind).items() if isinstance(part, _Part)]
    made = {name: vars(getattr(services, name)) for name in names if name not in WITHOUT_FIELDS}
    found = {f"{name}.{field}" for name, kept in made.items() for field, value in kept.items() if leads_back(value)}
    assert found == WAYS_BACK
