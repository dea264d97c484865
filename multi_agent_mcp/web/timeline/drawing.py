"""The whole picture: lanes from the top of the hierarchy down, time from left to right."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, tzinfo

from multi_agent_mcp.domain.timeline import Timeline
from multi_agent_mcp.domain.times import brief
from multi_agent_mcp.texts import Texts
from multi_agent_mcp.web.timeline.arrows import arrows, marks
from multi_agent_mcp.web.timeline.bars import bars
from multi_agent_mcp.web.timeline.layout import GUTTER, GUTTER_SHARE, MARGIN, Layout, lay_out
from multi_agent_mcp.web.timeline.legend import legend
from multi_agent_mcp.web.timeline.palette import stylesheet
from multi_agent_mcp.web.timeline.people import axis, ground, lives, talks
from multi_agent_mcp.web.timeline.scale import Scale
from multi_agent_mcp.web.timeline.svg import element, plain, words
from multi_agent_mcp.web.timeline.svg import width as width_of

NARROWEST = 480.0
LEFT, HEADING_SIZE = 14.0, 14.0
LEGEND_GAP = 22.0
DENSE_PIXELS = 9.0  # arrows closer together than that, on an average, are drawn thinner


def draw(timeline: Timeline, *, texts: Texts, width: float = 1200, dark: bool | None = None, zone: tzinfo = UTC) -> str:
    """An SVG document, `width` pixels wide (at least 480) and as high as it needs. `dark` None follows the reader's
    system. Everything an agent wrote is text in it; elements with `data-kind` and `data-id` say what they stand for."""
    width = max(width, NARROWEST)
    scale = Scale(timeline.start, timeline.end, *plot(width), zone)
    layout = lay_out(timeline, scale)
    foot = layout.bottom + LEGEND_GAP
    explained, height = legend(timeline, texts, LEFT, width - LEFT, foot)
    period, counts = _period(timeline, scale, texts), _counts(timeline, texts)
    return element(
        "svg",
        element("style", stylesheet(dark)),
        element("rect", width=width, height=foot + height, class_="tl-ground"),
        *_heading(period, counts, width),
        *_events(timeline, layout, texts),
        *explained,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {width:.0f} {foot + height:.0f}",
        width=width,
        height=round(foot + height),
        class_="tl-drawing tl-dense" if _is_crowded(timeline, scale) else "tl-drawing",
        role="img",
        aria_label=plain(f"{period} · {counts}"),
    )


def plot(width: float) -> tuple[float, float]:
    """From where to where time runs in a picture of this width, in its pixels."""
    width = max(width, NARROWEST)
    return min(GUTTER, width * GUTTER_SHARE), width - MARGIN


def _events(timeline: Timeline, layout: Layout, texts: Texts) -> Iterator[str]:
    """From the ground up: nothing hides an interrupt."""
    yield from ground(layout, texts)
    yield from axis(layout)
    yield from talks(timeline, layout)
    yield from lives(timeline, layout, texts)
    yield from arrows(timeline, layout)
    yield from bars(layout)
    yield from marks(timeline, layout)


def _is_crowded(timeline: Timeline, scale: Scale) -> bool:
    return len(timeline.arrows) * DENSE_PIXELS > scale.right - scale.left


def _heading(period: str, counts: str, width: float) -> list[str]:
    """One line, or two where there is no room for one."""
    whole = f"{period} · {counts}"
    if width_of(whole, HEADING_SIZE) < width - MARGIN:
        return [words(whole, LEFT, 24, "tl-heading")]
    return [words(period, LEFT, 18, "tl-heading"), words(counts, LEFT, 36, "tl-muted")]


def _period(timeline: Timeline, scale: Scale, texts: Texts) -> str:
    start = timeline.start.astimezone(scale.zone)
    return texts("timeline.period", start=f"{start:%Y-%m-%d %H:%M:%S %Z}", length=brief(timeline.end - timeline.start))


def _counts(timeline: Timeline, texts: Texts) -> str:
    counted = texts(
        "timeline.counts",
        messages=len(timeline.arrows),
        tasks=len({bar.task_id for bar in timeline.bars}),
        interrupts=len(timeline.marks),
    )
    return counted + (texts("timeline.left_out", count=timeline.left_out) if timeline.left_out else "")
