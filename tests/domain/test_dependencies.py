"""A task must not depend on itself, directly or indirectly."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multi_agent_mcp.domain.task import require_no_cycle
from multi_agent_mcp.errors import InvalidArguments


def test_a_chain_a_diamond_and_what_is_outside_are_no_cycles() -> None:
    require_no_cycle({})
    require_no_cycle({"a": ["b"], "b": ["c"], "c": []})
    require_no_cycle({"top": ["left", "right"], "left": ["bottom"], "right": ["bottom"]})
    require_no_cycle({"a": ["not in this batch"]})


@pytest.mark.parametrize(
    "graph",
    [{"a": ["a"]}, {"a": ["b"], "b": ["a"]}, {"a": ["b"], "b": ["c"], "c": ["a"], "d": ["a"]}],
)
def test_a_cycle_is_refused_and_named(graph: dict[str, list[str]]) -> None:
    with pytest.raises(InvalidArguments) as refused:
        require_no_cycle(graph)
    cycle = refused.value.values["cycle"].split(" → ")
    assert cycle[0] == cycle[-1]
    assert set(cycle) <= set(graph)


@given(st.dictionaries(st.integers(0, 30), st.lists(st.integers(0, 30), max_size=5)))
def test_what_only_depends_on_what_came_before_is_never_a_cycle(wild: dict[int, list[int]]) -> None:
    require_no_cycle({str(key): [str(other) for other in others if other < key] for key, others in wild.items()})
