"""The keys of session.yaml of this folder's features."""

from __future__ import annotations

from typing import Any

from multi_agent_mcp.settings import parse_choice
from multi_agent_mcp.yaml_files import truth

WAIT, TELL, OFF = "wait", "tell", "off"
ON_LIMIT = (WAIT, TELL, OFF)


def parse_on_limit(given: Any, name: str) -> str:
    """Parses `on_limit` of session.yaml, team.yaml or an agent: one of `ON_LIMIT`, the first by default. YAML reads
    `off` as false. Raises `InvalidArguments`."""
    return parse_choice("off" if truth(given) is False else given, name, ON_LIMIT)
