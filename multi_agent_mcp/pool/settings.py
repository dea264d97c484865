"""The keys of session.yaml of this folder's features."""

from __future__ import annotations

from typing import Any

from multi_agent_mcp.settings import parse_switch


def parse_pool(given: Any, name: str) -> bool:
    """Parses a switch that is off by default. Raises `InvalidArguments`."""
    return given is not None and parse_switch(given, name)
