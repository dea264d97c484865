"""Lines of JSON, one object each, of which newer ones follow older ones."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any


def newest_first(data: bytes, *needles: bytes, without: bytes | None = None) -> Iterator[dict[str, Any]]:
    """The objects, the last one first; given `needles`, only those whose lines hold one of these bytes, and never one
    that holds `without`. The others are not parsed. Lines that cannot be read are skipped."""
    for line in reversed(data.splitlines()):
        if (needles and not any(needle in line for needle in needles)) or (without is not None and without in line):
            continue
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict):
            yield found
