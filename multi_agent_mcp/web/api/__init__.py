"""The JSON API that the page itself uses (docs/json-api.md): one function per endpoint, from an `ApiRequest` to a JSON
object."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from multi_agent_mcp.features import Features
from multi_agent_mcp.features.ours import ALL
from multi_agent_mcp.web.api import agents
from multi_agent_mcp.web.request import ApiRequest

Endpoint = Callable[[ApiRequest], dict[str, Any]]


def endpoints_of(features: Features) -> Iterator[tuple[str, str, Endpoint]]:
    """Method, path below `/api`, handler of each endpoint of a session; `/api/events` is a stream and handled in
    `app.py`."""
    return ((entry.method, entry.path, found) for entry, found in features.loaded("endpoints"))


ENDPOINTS = tuple(endpoints_of(ALL))


AT_THE_MACHINE = frozenset({agents.answer_dialog, agents.type_line})
"""The changes that anybody at this machine may make. All other changes are made in an agent's name, and so only on its
home machine."""
