"""The width of text in a terminal: East Asian characters take two columns, combining marks none."""

from __future__ import annotations

from itertools import accumulate
from unicodedata import category, east_asian_width


def columns(text: str) -> int:
    """The number of columns that a text takes in a terminal."""
    return len(text) if text.isascii() else sum(map(width, text))


def shortened(text: str, columns_there: int) -> str:
    """The text if it fits into so many columns, else as much of its beginning as fits with an ellipsis."""
    if columns(text) <= columns_there:
        return text
    ends = accumulate(map(width, text))
    return text[: sum(end < columns_there for end in ends)].rstrip() + "…"


def width(character: str) -> int:
    """The columns of a character: 2 if wide (Unicode Standard Annex #11), 0 if combining or invisible, else 1."""
    if not character.isascii() and category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if east_asian_width(character) in "WF" else 1
