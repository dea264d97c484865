"""The JSON API that the page itself uses (docs/json-api.md): one function per endpoint, from an `ApiRequest` to a JSON
object."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from multi_agent_mcp.features import Features, attempted, load
from multi_agent_mcp.web.api import agents
from multi_agent_mcp.web.request import ApiRequest

Endpoint = Callable[[ApiRequest], dict[str, Any]]


def endpoints_of(features: Features) -> Iterator[tuple[str, str, Endpoint]]:
    """Method, path below `/api`, handler of each endpoint of a session; `/api/events` is a stream and handled in
    `app.py`."""
    for method, path, where in features.each("endpoints"):
        found: Endpoint | None = attempted(where, partial(load, where), None)
        if found is not None:
            yield method, path, found


AT_THE_MACHINE = frozenset({agents.answer_dialog, agents.type_line})
"""The changes that anybody at this machine may make. All other changes are made in an agent's name, and so only on its
home machine."""
