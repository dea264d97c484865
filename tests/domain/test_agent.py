"""The hierarchy over `parent_id`."""

from __future__ import annotations

import pytest

from multi_agent_mcp.domain.agent import Agent, in_tree_order, is_superior, report_recipient, superiors
from multi_agent_mcp.errors import AgentNotFound, InvalidArguments


def team(*agents: Agent) -> dict[str, Agent]:
    return {agent.id: agent for agent in agents}


OWNER = Agent(id="owner", role="owner")
ADMIN = Agent(id="admin", role="admin", parent_id="owner")
SUB = Agent(id="sub", role="admin", parent_id="admin")
WORKER = Agent(id="worker", parent_id="sub")
TEAM = team(OWNER, ADMIN, SUB, WORKER)


def test_superiors_are_the_strict_ancestors_nearest_first() -> None:
    assert [agent.id for agent in superiors("worker", TEAM)] == ["sub", "admin", "owner"]
    assert list(superiors("owner", TEAM)) == []


def test_nobody_is_their_own_superior() -> None:
    assert not is_superior("admin", "admin", TEAM)


def test_superiority_goes_up_only() -> None:
    assert is_superior("owner", "worker", TEAM)
    assert not is_superior("worker", "owner", TEAM)


def test_a_cycle_is_an_error_and_never_a_hang() -> None:
    cyclic = team(Agent(id="a", parent_id="b"), Agent(id="b", parent_id="c"), Agent(id="c", parent_id="b"))
    with pytest.raises(InvalidArguments) as refusal:
        list(superiors("a", cyclic))
    assert refusal.value.key == "error.hierarchy_cycle"


def test_being_ones_own_parent_is_a_cycle() -> None:
    with pytest.raises(InvalidArguments):
        list(superiors("a", team(Agent(id="a", parent_id="a"))))


def test_a_missing_parent_is_an_error() -> None:
    with pytest.raises(InvalidArguments) as refusal:
        list(superiors("a", team(Agent(id="a", parent_id="gone"))))
    assert refusal.value.values == {"agent_id": "a", "parent_id": "gone"}


def test_the_superiors_of_nobody_are_an_error() -> None:
    with pytest.raises(AgentNotFound):
        list(superiors("nobody", TEAM))


def test_a_report_goes_to_the_nearest_admin_above() -> None:
    assert report_recipient("worker", TEAM).id == "sub"
    assert report_recipient("sub", TEAM).id == "admin"


def test_a_report_goes_to_the_owner_when_no_admin_is_above() -> None:
    assert report_recipient("admin", TEAM).id == "owner"
    assert report_recipient("lone", team(OWNER, Agent(id="lone"))).id == "owner"


def test_of_several_owners_the_one_above_hears_of_it_and_without_one_the_first() -> None:
    """The result does not depend on the order in which a machine learned of them."""
    first = Agent(id="owner", role="owner", created_at="2026-11-21T10:00:00Z")
    second = Agent(id="boss", role="owner", created_at="2026-11-22T10:00:00Z")
    lead = Agent(id="lead", role="admin", parent_id="boss")
    for agents in (team(first, second, ADMIN, lead), team(second, lead, first, ADMIN)):
        assert report_recipient("lead", agents).id == "boss"
        assert report_recipient("admin", agents).id == "owner"
        assert report_recipient("boss", agents).id == "owner"
        assert report_recipient("lone", agents | team(Agent(id="lone"))).id == "owner"


def test_with_nobody_above_there_is_nobody_to_report_to() -> None:
    with pytest.raises(AgentNotFound):
        report_recipient("owner", TEAM)
    with pytest.raises(AgentNotFound):
        report_recipient("lone", team(Agent(id="lone"), Agent(id="boss", role="owner", status="removed")))


def test_in_tree_order_everybody_is_below_their_superior() -> None:
    other = Agent(id="other", parent_id="admin")
    ordered = in_tree_order(team(WORKER, SUB, OWNER, ADMIN, other))
    assert [(agent.id, depth) for agent, depth in ordered] == [
        ("owner", 0),
        ("admin", 1),
        ("sub", 2),
        ("worker", 3),
        ("other", 2),
    ]


def test_in_tree_order_nobody_is_lost_to_a_cycle_or_a_missing_parent() -> None:
    broken = team(Agent(id="a", parent_id="b"), Agent(id="b", parent_id="a"), Agent(id="c", parent_id="gone"))
    assert [(agent.id, depth) for agent, depth in in_tree_order(broken)] == [("c", 0), ("a", 0), ("b", 1)]
