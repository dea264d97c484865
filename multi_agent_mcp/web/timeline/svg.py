"""SVG as text: elements whose attributes and words are escaped, and how wide words are."""

from __future__ import annotations

import re
from unicodedata import east_asian_width
from xml.sax.saxutils import escape, quoteattr

# What XML cannot hold, what a terminal or an editor would obey, and what turns the direction of the text around it.
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff\ufffe\uffff]"
)
NARROW, WIDE = 0.56, 1.0  # columns of a proportional font, in font sizes; rather too wide than too narrow


def element(name: str, *children: str, **attributes: object) -> str:
    """`<name …>children</name>`. Underscores in attribute names become hyphens, one at the end falls away (`class_`);
    None leaves an attribute out. Children are markup already: words go through `words` or `title`."""
    shown = "".join(
        f" {key.rstrip('_').replace('_', '-')}={_value(value)}"
        for key, value in attributes.items()
        if value is not None
    )
    return f"<{name}{shown}>{''.join(children)}</{name}>" if children else f"<{name}{shown}/>"


def words(text: str, x: float, y: float, class_: str, **attributes: object) -> str:
    """A line of text at a place."""
    return element("text", escape(plain(" ".join(text.split()))), x=x, y=y, class_=class_, **attributes)


def title(*lines: str) -> str:
    """What is shown on hovering, line by line."""
    return element("title", escape(plain("\n".join(line for line in lines if line))))


def plain(text: str) -> str:
    """The text with everything that is not to be shown, but obeyed, replaced."""
    return _UNSAFE.sub("\ufffd", text)


def width(text: str, size: float) -> float:
    """About how many pixels a text of this font size takes."""
    return size * sum(WIDE if east_asian_width(character) in "WF" else NARROW for character in text)


def fitted(text: str, pixels: float, size: float) -> str:
    """As much of the text as fits, with an ellipsis if something is left out; empty if next to nothing fits."""
    text = " ".join(text.split())[: int(pixels) + 1]
    if width(text, size) <= pixels:
        return text
    while text and width(f"{text}…", size) > pixels:
        text = text[:-1]
    return f"{text.rstrip()}…" if len(text) > 1 else ""


def number(value: float) -> str:
    """A coordinate, to a tenth of a pixel."""
    return f"{value:.1f}".removesuffix(".0")


def _value(value: object) -> str:
    return quoteattr(number(value) if isinstance(value, (int, float)) else plain(str(value)))
