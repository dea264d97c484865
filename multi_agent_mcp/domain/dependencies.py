"""The graph of what must be done before what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from graphlib import CycleError, TopologicalSorter

from multi_agent_mcp.errors import InvalidArguments


def require_no_cycle(dependencies: Mapping[str, Sequence[str]]) -> None:
    """Raises `InvalidArguments` when a task would have to wait for itself."""
    try:
        TopologicalSorter(dependencies).prepare()
    except CycleError as error:
        raise InvalidArguments("dependency_cycle", cycle=" → ".join(map(str, error.args[1]))) from error
