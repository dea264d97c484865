"""Reads JSON lines, one object each, newer ones after older ones."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any


def newest_first(data: bytes, *needles: bytes, without: bytes | None = None) -> Iterator[dict[str, Any]]:
    """Yields the objects, the last one first; with `needles`, only those whose lines contain one of these bytes, and
    never those that contain `without`. Other lines are not parsed. Invalid lines are skipped."""
    for line in reversed(data.splitlines()):
        if (needles and not any(needle in line for needle in needles)) or (without is not None and without in line):
            continue
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict):
            yield found
