"""The whole picture: lanes from the top of the hierarchy down, time from left to right."""

from __future__ import annotations

from datetime import UTC, tzinfo

from multi_agent_mcp.domain.timeline import Timeline
from multi_agent_mcp.domain.times import brief
from multi_agent_mcp.texts import Texts
from multi_agent_mcp.web.timeline.arrows import arrows, marks
from multi_agent_mcp.web.timeline.bars import bars
from multi_agent_mcp.web.timeline.layout import GUTTER, MARGIN, lay_out
from multi_agent_mcp.web.timeline.legend import legend
from multi_agent_mcp.web.timeline.palette import stylesheet
from multi_agent_mcp.web.timeline.people import axis, ground, lives, talks
from multi_agent_mcp.web.timeline.scale import Scale
from multi_agent_mcp.web.timeline.svg import element, plain, words

NARROWEST = 480.0
DENSE_PIXELS = 9.0  # arrows closer together than that, on an average, are drawn thinner


def draw(timeline: Timeline, *, texts: Texts, width: float = 1200, dark: bool | None = None, zone: tzinfo = UTC) -> str:
    """An SVG document, `width` pixels wide (at least 480) and as high as it needs. `dark` None follows the reader's
    system. Everything an agent wrote is text in it; elements with `data-kind` and `data-id` say what they stand for."""
    width = max(width, NARROWEST)
    scale = Scale(timeline.start, timeline.end, GUTTER, width - MARGIN, zone)
    layout = lay_out(timeline, scale)
    explained, height = legend(timeline, texts, 14, width - 14, layout.bottom + 22)
    total = layout.bottom + 22 + height
    heading = _heading(timeline, scale, texts)
    crowded = len(timeline.arrows) * DENSE_PIXELS > scale.right - scale.left
    picture = [
        element("rect", width=width, height=total, class_="tl-ground"),
        *ground(layout, texts),
        *axis(layout),
        words(heading, 14, 24, "tl-heading"),
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
        aria_label=plain(heading),
    )


def _heading(timeline: Timeline, scale: Scale, texts: Texts) -> str:
    counted = texts(
        "timeline.heading",
        start=scale.clock(timeline.start)[:19],
        length=brief(timeline.end - timeline.start),
        messages=len(timeline.arrows),
        tasks=len({bar.task_id for bar in timeline.bars}),
        interrupts=len(timeline.marks),
    )
    return counted + (texts("timeline.left_out", count=timeline.left_out) if timeline.left_out else "")
