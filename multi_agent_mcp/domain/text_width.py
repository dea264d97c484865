"""How much room a text takes: an East Asian character is twice as wide as a Latin one, and a mark on another one has no
width of its own."""

from __future__ import annotations

from itertools import accumulate
from unicodedata import category, east_asian_width


def columns(text: str) -> int:
    """Columns in a terminal."""
    return len(text) if text.isascii() else sum(map(width, text))


def shortened(text: str, columns_there: int) -> str:
    """The text, or as much of its beginning as fits into so many columns with an ellipsis."""
    if columns(text) <= columns_there:
        return text
    ends = accumulate(map(width, text))
    return text[: sum(end < columns_there for end in ends)].rstrip() + "…"


def width(character: str) -> int:
    """Columns of one: 2 (Unicode Standard Annex #11), 1, or 0 for combining and invisible ones."""
    if not character.isascii() and category(character) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if east_asian_width(character) in "WF" else 1
