"""Whether expressions made of patterns (`domain/patterns.py`) match a path. A hook asks this before every edit, so
nothing slow is imported here."""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable


def matches(expressions: Iterable[tuple[bool, str]], path: str) -> bool:
    """Whether a list of expressions, each with whether it includes what it matches, matches a path: the last that
    matches the path itself decides, else the last that matches a directory above it."""
    by_file, by_directory = None, False
    path = composed(path)
    for includes, expression in expressions:
        if (found := re.match(expression, path)) is None:
            continue
        if found.end() == len(path):
            by_file = includes
        else:
            by_directory = includes
    return by_directory if by_file is None else by_file


def composed(text: str) -> str:
    """The text with its letters composed (NFC), as some systems spell names of files otherwise than people do."""
    if text.isascii():
        return text
    from unicodedata import normalize

    return normalize("NFC", text)
