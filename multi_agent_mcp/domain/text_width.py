"""How much room a text takes: an East Asian character is twice as wide as a Latin one."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from unicodedata import east_asian_width


def columns(text: str) -> int:
    """Columns in a terminal."""
    return sum(2 if wide else 1 for wide in wide_characters(text))


def shortened(text: str, width: int) -> str:
    """The text, or as much of its beginning as fits into so many columns with an ellipsis."""
    if columns(text) <= width:
        return text
    ends = accumulate(2 if wide else 1 for wide in wide_characters(text))
    return text[: sum(end < width for end in ends)].rstrip() + "…"


def wide_characters(text: str) -> Iterator[bool]:
    """For each character, whether it takes two columns (Unicode Standard Annex #11)."""
    return (east_asian_width(character) in "WF" for character in text)
