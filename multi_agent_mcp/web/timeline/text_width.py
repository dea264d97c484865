"""About how wide a text is in a proportional font: enough to decide what fits."""

from __future__ import annotations

from multi_agent_mcp.domain.text_width import wide_characters

NARROW, WIDE = 0.56, 1.0  # columns in font sizes; rather too wide than too narrow


def width(text: str, size: float) -> float:
    """About how many pixels a text of this font size takes."""
    return size * sum(WIDE if wide else NARROW for wide in wide_characters(text))


def fitted(text: str, pixels: float, size: float) -> str:
    """As much of the text as fits, with an ellipsis if something is left out; empty if next to nothing fits."""
    text = " ".join(text.split())[: int(pixels) + 1]
    if width(text, size) <= pixels:
        return text
    while text and width(f"{text}…", size) > pixels:
        text = text[:-1]
    return f"{text.rstrip()}…" if len(text) > 1 else ""
