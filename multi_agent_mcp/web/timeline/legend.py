"""What the colours mean; only those that occur."""

from __future__ import annotations

from collections.abc import Iterator

from multi_agent_mcp.domain.timeline import Timeline
from multi_agent_mcp.texts import CONSOLE, Texts, catalogue
from multi_agent_mcp.web.timeline.arrows import family, shaft
from multi_agent_mcp.web.timeline.palette import FAMILIES, STATUSES
from multi_agent_mcp.web.timeline.svg import element, width, words

LINE = 20.0
SWATCH = 26.0
SIZE = 11.0


def legend(timeline: Timeline, texts: Texts, left: float, right: float, top: float) -> tuple[list[str], float]:
    """The entries, wrapped between `left` and `right`, and the height they take."""
    parts: list[str] = []
    x, y = left, top
    for swatch, label in _entries(timeline, texts):
        room = SWATCH + width(label, SIZE) + 18
        if x > left and x + room > right:
            x, y = left, y + LINE
        moved = element("g", swatch, transform=f"translate({x:.1f} {y:.1f})")
        parts += [moved, words(label, x + SWATCH, y + 4, "tl-muted")]
        x += room
    return parts, y - top + LINE


def _entries(timeline: Timeline, texts: Texts) -> Iterator[tuple[str, str]]:
    """A small picture around the origin's height, and what it means."""
    sent = {family(arrow.message_type) for arrow in timeline.arrows}
    for name in dict.fromkeys([*FAMILIES.values(), "other"]):
        if name in sent:
            yield (
                element("path", d=shaft((2, 5), (22, -5)), class_=f"tl-arrow tl-ink-{name}"),
                texts(f"timeline.{name}"),
            )
    if any(arrow.read_at is None for arrow in timeline.arrows):
        yield element("circle", cx=12, cy=0, r=3.2, class_="tl-ring tl-ink-other"), texts("timeline.unread")
    if timeline.marks:
        yield element("circle", cx=12, cy=0, r=6, class_="tl-sign"), texts("timeline.interrupt")
    statuses = {span.status for bar in timeline.bars for span in bar.spans}
    statuses |= {bar.outcome for bar in timeline.bars if bar.outcome}
    status_words = catalogue(texts.language, CONSOLE)
    for name in STATUSES:
        if name in statuses:
            yield (
                element("rect", x=2, y=-5, width=18, height=10, rx=3, class_=f"tl-fill-{name}"),
                status_words(f"status.{name}"),
            )
    if timeline.lives:
        yield element("rect", x=2, y=-2, width=18, height=4, rx=2, class_="tl-life"), texts("timeline.session")
    if timeline.talks:
        yield element("rect", x=0, y=-7, width=20, height=14, rx=7, class_="tl-strip"), texts("timeline.conversation")
