"""Lines of JSON: those of hosts' own files, which may hold anything, and ours, one object each, newer ones after older
ones."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

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


def fits(line: object, conditions: Mapping[str, Any]) -> bool:
    """Whether a line has these values at these paths."""
    return all(value_at(line, path) == value for path, value in conditions.items())


def needles_of(conditions: Iterable[Mapping[str, Any]]) -> tuple[bytes, ...]:
    """Words of which every line that fits one of these conditions has one, so that others need not be parsed."""
    named = ([word for word in when.values() if isinstance(word, str)] for when in conditions)
    return tuple({f'"{words[-1]}"'.encode() for words in named})


def name_of(value: object) -> str | None:
    """A short name from a host's file, such as a model's; None for anything else."""
    return value[:NAME_CHARACTERS] if isinstance(value, str) and value.isprintable() and value else None


def newest_first(blocks: Iterable[bytes], *needles: bytes, without: bytes | None = None) -> Iterator[dict[str, Any]]:
    """Yields the objects in a file, the last one first; `blocks` are its pieces, also the last one first, and are taken
    only as far as needed. A line counts only if it contains one of the `needles` (if any are given) and not
    `without`. Other lines are not parsed. Invalid lines are skipped."""
    for line in _last_line_first(blocks):
        if (
            not line
            or (needles and not any(needle in line for needle in needles))
            or (without is not None and without in line)
        ):
            continue
        if isinstance(found := parsed(line), dict):
            yield found


def _last_line_first(blocks: Iterable[bytes]) -> Iterator[bytes]:
    pieces: list[bytes] = []  # of the line whose beginning has not come yet, the last one first
    for block in blocks:
        first, newline, rest = block.partition(b"\n")
        if newline:
            *lines, end = rest.split(b"\n")
            yield b"".join((end, *reversed(pieces)))
            yield from reversed(lines)
            pieces = []
        pieces.append(first)
    yield b"".join(reversed(pieces))
