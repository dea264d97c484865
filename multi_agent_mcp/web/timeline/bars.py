"""Tasks as bars on the lane of whoever had them, coloured by status."""

from __future__ import annotations

from collections.abc import Iterator

from multi_agent_mcp.domain.timeline import Bar
from multi_agent_mcp.domain.times import brief
from multi_agent_mcp.web.timeline.layout import BAR, LABEL_PIXELS, LABEL_SIZE, MARGIN, Band, Layout
from multi_agent_mcp.web.timeline.palette import STATUSES
from multi_agent_mcp.web.timeline.scale import Scale
from multi_agent_mcp.web.timeline.svg import element, fitted, title, width, words

NARROWEST = 3.0
CROWDED = 5.0  # pixels of a bar that found no row of its own
SIGNS = {
    "done": "M {x:.1f} {y:.1f} l 2.5 2.5 l 4.5 -5",
    "cancelled": "M {x:.1f} {y:.1f} m 0.5 -2.5 l 5 5 m 0 -5 l -5 5",
}


def bars(layout: Layout) -> Iterator[str]:
    for band in layout.bands:
        for placed in band.bars:
            yield _bar(placed.bar, placed.row, band, layout.scale)


def _bar(bar: Bar, row: int | None, band: Band, scale: Scale) -> str:
    top = band.bar_top(row)
    height = BAR if row is not None else CROWDED
    left, right = scale.x(bar.start), max(scale.x(bar.end), scale.x(bar.start) + NARROWEST)
    frame = element("rect", x=left, y=top, width=right - left, height=height, rx=min(4, height / 2), class_="tl-frame")
    inside = [*_spans(bar, top, height, scale), frame]
    if row is not None:
        inside += _outcome(bar, right, top)
        inside += _label(bar, left, right, top, scale)
    return element("g", title(*_told(bar, scale)), *inside, class_="tl-bar", data_kind="task", data_id=bar.task_id)


def _spans(bar: Bar, top: float, height: float, scale: Scale) -> Iterator[str]:
    for span in bar.spans:
        left, right = scale.x(span.start), scale.x(span.end)
        status = span.status if span.status in STATUSES else "todo"
        yield element(
            "rect", x=left, y=top, width=max(right - left, 1), height=height, rx=2, class_=f"tl-fill-{status}"
        )


def _outcome(bar: Bar, right: float, top: float) -> Iterator[str]:
    """A small sign at the end: a tick or a cross."""
    if bar.outcome in SIGNS:
        middle = top + BAR / 2
        yield element("circle", cx=right, cy=middle, r=6.5, class_=f"tl-fill-{bar.outcome}")
        yield element("path", d=SIGNS[bar.outcome].format(x=right - 3.2, y=middle + 0.2), class_="tl-sign-line")


def _label(bar: Bar, left: float, right: float, top: float, scale: Scale) -> Iterator[str]:
    """The title: inside the bar if it fits, else beside it, else as much of it as fits inside."""
    inside = right - left - (14 if bar.outcome else 8)
    beside = min(scale.right + MARGIN - right - 14, LABEL_PIXELS)
    whole = width(bar.title, LABEL_SIZE)
    if whole <= inside or inside >= beside:
        x, room, class_ = left + 5, inside, "tl-label"
    else:
        x, room, class_ = right + (10 if bar.outcome else 5), beside, "tl-label tl-beside"
    shown = fitted(bar.title, room, LABEL_SIZE)
    if shown:
        yield words(shown, x, top + BAR - 4, class_)


def _told(bar: Bar, scale: Scale) -> Iterator[str]:
    yield bar.title
    yield bar.task_id
    for span in bar.spans:
        lasted = brief(span.end - span.start) if span.end else "…"
        yield f"{scale.clock(span.start)}  {span.status} · {lasted}"
    if bar.outcome and bar.end:
        yield f"{scale.clock(bar.end)}  {bar.outcome}"
