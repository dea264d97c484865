"""The common checks after a crash: an item exists once, whole or not at all, and certainly if it was acknowledged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tests.crash.stage import Aftermath


def whole(after: Aftermath, **parts: int) -> Iterator[str]:
    """`parts` count how often each part of one effect is there: each once, or none; each once when acknowledged."""
    yield from of_one_piece(parts, acknowledged=after.answer is not None)


def of_one_piece(parts: Mapping[str, int], *, acknowledged: bool) -> Iterator[str]:
    counts = ", ".join(f"{name} {count}" for name, count in parts.items())
    if any(count > 1 for count in parts.values()):
        yield f"there more than once: {counts}"
    elif len(set(parts.values())) > 1:
        yield f"only a part is there: {counts}"
    if acknowledged and not all(parts.values()):
        yield f"acknowledged and not there: {counts}"
