"""The lanes: who they belong to, when their sessions lived, when they talked."""

from __future__ import annotations

from collections.abc import Iterator

from multi_agent_mcp.domain.timeline import OTHERS, Life, Talk, Timeline
from multi_agent_mcp.domain.times import brief
from multi_agent_mcp.texts import Texts
from multi_agent_mcp.web.timeline.layout import MARGIN, TOP, Band, Layout
from multi_agent_mcp.web.timeline.scale import Scale
from multi_agent_mcp.web.timeline.svg import element, fitted, title, words

INDENT = 12.0
LIFE_PIXELS = 4.0
STRIP_PIXELS = 18.0


def ground(layout: Layout, texts: Texts) -> Iterator[str]:
    """Stripes, names and rails."""
    for index, band in enumerate(layout.bands):
        if index % 2 == 0:
            yield element(
                "rect",
                x=0,
                y=band.top,
                width=layout.scale.right + MARGIN,
                height=band.bottom - band.top,
                class_="tl-stripe",
            )
        yield _name(band, layout, texts)
        yield element("line", x1=layout.scale.left, x2=layout.scale.right, y1=band.line, y2=band.line, class_="tl-rail")


def axis(layout: Layout) -> Iterator[str]:
    """A line and a label for each tick."""
    for x, label in layout.scale.ticks():
        yield element("line", x1=x, x2=x, y1=TOP - 6, y2=layout.bottom, class_="tl-grid")
        yield words(label, x, TOP - 12, "tl-tick")


def lives(timeline: Timeline, layout: Layout, texts: Texts) -> Iterator[str]:
    """A rail on the lane while a session's process ran: task sessions on the line, chat sessions below it."""
    for life in timeline.lives:
        band = layout.band(life.agent_id)
        if band is not None:
            yield _life(life, band, layout.scale, texts)


def talks(timeline: Timeline, layout: Layout) -> Iterator[str]:
    """A strip on both lanes while two agents talked."""
    for talk in timeline.talks:
        parties = {band.lane.agent_id: band for agent_id in _parties(talk) if (band := layout.band(agent_id))}
        for band in parties.values():
            yield _strip(talk, band, layout.scale)


def _name(band: Band, layout: Layout, texts: Texts) -> str:
    lane = band.lane
    x = 14 + min(lane.depth, 6) * INDENT
    who = texts("timeline.others") if lane.agent_id == OTHERS else lane.agent_id
    elbow = element("path", d=f"M {x - 9:.1f} {band.line - 16:.1f} v 14 h 6", class_="tl-elbow")
    return element(
        "g",
        elbow if lane.depth else "",
        words(fitted(who, layout.scale.left - x - 8, 13), x, band.line + (4 if lane.role == who else -1), "tl-name"),
        words(lane.role, x, band.line + 13, "tl-muted") if lane.role != who else "",
        title(who, lane.role),
        data_kind="agent",
        data_id=lane.agent_id,
    )


def _life(life: Life, band: Band, scale: Scale, texts: Texts) -> str:
    left, right = scale.x(life.start), scale.x(life.end)
    top = band.line - LIFE_PIXELS / 2 if life.purpose == "task" else band.line + LIFE_PIXELS / 2 + 1
    lasted = brief(life.end - life.start) if life.end else texts("timeline.still")
    return element(
        "rect",
        title(f"{life.agent_id}: {life.purpose}", life.session_id, f"{scale.clock(life.start)} · {lasted}"),
        x=left,
        y=top,
        width=max(right - left, 2),
        height=LIFE_PIXELS,
        rx=LIFE_PIXELS / 2,
        class_="tl-life",
        data_kind="session",
        data_id=life.session_id,
    )


def _strip(talk: Talk, band: Band, scale: Scale) -> str:
    left, right = scale.x(talk.start), scale.x(talk.end)
    lasted = brief(talk.end - talk.start) if talk.end else talk.status
    return element(
        "rect",
        title(" ↔ ".join(_parties(talk)), talk.purpose, f"{scale.clock(talk.start)} · {lasted}"),
        x=left - 4,
        y=band.line - STRIP_PIXELS / 2,
        width=max(right - left, 2) + 8,
        height=STRIP_PIXELS,
        rx=STRIP_PIXELS / 2,
        class_="tl-strip",
        data_kind="conversation",
        data_id=talk.conversation_id,
    )


def _parties(talk: Talk) -> tuple[str, str]:
    return talk.initiator_id, talk.target_agent_id
