"""Values in the lines of hosts' own files, which may hold anything."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from multi_agent_mcp.domain.times import parse_time

TOKENS_MAX = 10**12
"""More in one response is damage."""
NAME_CHARACTERS = 100


def parsed(line: bytes | str) -> Any:
    """The value of a line of JSON; None for anything else."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def value_at(line: object, path: str) -> Any:
    """The value at a dotted path in nested mappings; None if there is none."""
    for name in path.split("."):
        if not isinstance(line, Mapping):
            return None
        line = line.get(name)
    return line


def count_of(value: object) -> int | None:
    """A number of tokens; None if it is none."""
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= TOKENS_MAX
    return int(str(value)) if is_count else None


def moment_of(value: object) -> datetime | None:
    """A time as hosts write it: ISO 8601, or seconds or milliseconds since the epoch."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        seconds = value / 1000 if value > 10**11 else value
        try:
            return datetime.fromtimestamp(seconds, UTC)
        except (OverflowError, ValueError, OSError):
            return None
    return parse_time(value)


def name_of(value: object) -> str | None:
    """A short name from a host's file, such as a model's; None for anything else."""
    return value[:NAME_CHARACTERS] if isinstance(value, str) and value.isprintable() and value else None
