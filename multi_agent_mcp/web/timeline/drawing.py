"""The whole picture: lanes from the top of the hierarchy down, time from left to right."""

from __future__ import annotations

from datetime import UTC, tzinfo

from multi_agent_mcp.domain.timeline import Timeline
from multi_agent_mcp.domain.times import brief
from multi_agent_mcp.texts import Texts
from multi_agent_mcp.web.timeline.arrows import arrows, marks
from multi_agent_mcp.web.timeline.bars import bars
from multi_agent_mcp.web.timeline.layout import GUTTER, GUTTER_SHARE, MARGIN, lay_out
from multi_agent_mcp.web.timeline.legend import legend
from multi_agent_mcp.web.timeline.palette import stylesheet
from multi_agent_mcp.web.timeline.people import axis, ground, lives, talks
from multi_agent_mcp.web.timeline.scale import Scale
from multi_agent_mcp.web.timeline.svg import element, plain, words
from multi_agent_mcp.web.timeline.svg import width as width_of

NARROWEST = 480.0
LEFT, HEADING_SIZE = 14.0, 14.0
DENSE_PIXELS = 9.0  # arrows closer together than that, on an average, are drawn thinner


def draw(timeline: Timeline, *, texts: Texts, width: float = 1200, dark: bool | None = None, zone: tzinfo = UTC) -> str:
    """An SVG document, `width` pixels wide (at least 480) and as high as it needs. `dark` None follows the reader's
    system. Everything an agent wrote is text in it; elements with `data-kind` and `data-id` say what they stand for."""
    width = max(width, NARROWEST)
    scale = Scale(timeline.start, timeline.end, min(GUTTER, width * GUTTER_SHARE), width - MARGIN, zone)
    layout = lay_out(timeline, scale)
    explained, height = legend(timeline, texts, LEFT, width - LEFT, layout.bottom + 22)
    total = layout.bottom + 22 + height
    period, counts = _period(timeline, scale, texts), _counts(timeline, texts)
    crowded = len(timeline.arrows) * DENSE_PIXELS > scale.right - scale.left
    picture = [
        element("rect", width=width, height=total, class_="tl-ground"),
        *ground(layout, texts),
        *axis(layout),
        *_heading(period, counts, width),
        *talks(timeline, layout),
        *lives(timeline, layout, texts),
        *arrows(timeline, layout),
        *bars(layout),
        *marks(timeline, layout),
        *explained,
    ]
    return element(
        "svg",
        element("style", stylesheet(dark)),
        *picture,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {width:.0f} {total:.0f}",
        width=width,
        height=round(total),
        class_=f"tl-drawing{' tl-dense' if crowded else ''}",
        role="img",
        aria_label=plain(f"{period} · {counts}"),
    )


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
