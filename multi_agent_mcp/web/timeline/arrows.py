"""Messages as arrows between lanes, and interrupts as marks that nobody overlooks."""

from __future__ import annotations

from collections.abc import Iterator
from math import hypot

from multi_agent_mcp.domain.timeline import Arrow, Mark, Timeline
from multi_agent_mcp.domain.times import brief
from multi_agent_mcp.web.timeline.layout import Layout
from multi_agent_mcp.web.timeline.palette import FAMILIES
from multi_agent_mcp.web.timeline.scale import Scale
from multi_agent_mcp.web.timeline.svg import element, number, title, words

HEAD = 6.0
GAP = 4.0  # between an arrow's head and the line it points to
SIGN = 7.0

Point = tuple[float, float]


def arrows(timeline: Timeline, layout: Layout) -> Iterator[str]:
    for arrow in timeline.arrows:
        yield _message(arrow, layout)


def marks(timeline: Timeline, layout: Layout) -> Iterator[str]:
    for mark in timeline.marks:
        yield _interrupt(mark, layout)


def family(message_type: str) -> str:
    return FAMILIES.get(message_type, "other")


def shaft(start: Point, end: Point, head: float = HEAD) -> str:
    """The path of an arrow; one that begins and ends on the same line is a loop above it."""
    (x1, y1), (x2, y2) = start, end
    if y1 == y2:
        across = max(x2 - x1, 18.0)
        return _joined("M", x1, y1, "q", across / 2, -30, across, -GAP) + _joined(
            "m", -head / 2, -head, "l", head / 2, head, head / 2, -head
        )
    length = hypot(x2 - x1, y2 - y1)
    ux, uy = (x2 - x1) / length, (y2 - y1) / length
    tip_x, tip_y = x2 - ux * GAP, y2 - uy * GAP
    back_x, back_y = tip_x - ux * head, tip_y - uy * head
    side = head * 0.55
    left = back_x - uy * side, back_y + ux * side
    right = back_x + uy * side, back_y - ux * side
    return _joined("M", x1, y1, "L", tip_x, tip_y, "M", *left, "L", tip_x, tip_y, "L", *right)


def _message(arrow: Arrow, layout: Layout) -> str:
    sender, receiver = layout.band(arrow.sender_id), layout.band(arrow.receiver_id)
    if sender is None or receiver is None:
        return ""
    ink = family(arrow.message_type)
    x1, x2 = layout.scale.x(arrow.sent_at), layout.scale.x(arrow.arrived_at)
    parts = [
        element("path", d=shaft((x1, sender.line), (x2, receiver.line)), class_=f"tl-arrow tl-ink-{ink}"),
        element("circle", cx=x1, cy=sender.line, r=2.6, class_=f"tl-dot-{ink}"),
        *_reading(arrow, x2, receiver.line, ink, layout.scale),
    ]
    told = title(*_told(arrow, layout.scale))
    return element("g", told, *parts, class_="tl-message", data_kind="message", data_id=arrow.message_id)


def _reading(arrow: Arrow, x: float, y: float, ink: str, scale: Scale) -> Iterator[str]:
    """How long it lay there until it was read; a ring is still unread."""
    if arrow.read_at is None:
        yield element("circle", cx=x, cy=y, r=3.2, class_=f"tl-ring tl-ink-{ink}")
        return
    read = scale.x(arrow.read_at)
    if read - x > 1:
        yield element("line", x1=x, x2=read, y1=y, y2=y, class_=f"tl-wait tl-ink-{ink}")
    yield element("circle", cx=read, cy=y, r=2.6, class_=f"tl-dot-{ink}")


def _interrupt(mark: Mark, layout: Layout) -> str:
    band = layout.band(mark.agent_id)
    if band is None:
        return ""
    scale = layout.scale
    x, y = scale.x(mark.at), band.line
    parts = []
    by = layout.band(mark.by) if mark.by else None
    if by is not None and by is not band:
        edge = y - SIGN if by.line < y else y + SIGN
        parts.append(element("path", d=shaft((x, by.line), (x, edge), HEAD + 2), class_="tl-halt tl-ink-interrupt"))
        parts.append(element("circle", cx=x, cy=by.line, r=3.4, class_="tl-dot-interrupt"))
    if mark.read_at is not None and (read := scale.x(mark.read_at)) - x > 1:
        parts.append(element("line", x1=x, x2=read, y1=y, y2=y, class_="tl-halt tl-ink-interrupt"))
        parts.append(element("circle", cx=read, cy=y, r=3.4, class_="tl-dot-interrupt"))
    parts.append(element("path", d=_bolt(x, y), class_="tl-sign"))
    parts.append(words(mark.action, x + SIGN + 2, y - SIGN, "tl-sign-word"))
    return element(
        "g",
        title(*_mark_told(mark, scale)),
        *parts,
        class_="tl-mark",
        data_kind="interrupt",
        data_id=mark.notification_id,
    )


def _bolt(x: float, y: float) -> str:
    """An octagon, as on a stop sign."""
    far, near = SIGN, SIGN * 0.42
    corners = (
        (-near, -far),
        (near, -far),
        (far, -near),
        (far, near),
        (near, far),
        (-near, far),
        (-far, near),
        (-far, -near),
    )
    return "M " + " L ".join(f"{number(x + dx)} {number(y + dy)}" for dx, dy in corners) + " Z"


def _told(arrow: Arrow, scale: Scale) -> Iterator[str]:
    yield f"{arrow.sender_id} → {arrow.receiver_id}: {arrow.message_type}"
    yield arrow.subject
    yield f"{scale.clock(arrow.sent_at)}"
    steps = {"rung": arrow.rung_at, "submitted": arrow.submitted_at, "read": arrow.read_at}
    yield " · ".join(f"{name} +{brief(at - arrow.sent_at)}" for name, at in steps.items() if at)


def _mark_told(mark: Mark, scale: Scale) -> Iterator[str]:
    yield f"{mark.by or '?'} → {mark.agent_id}: {mark.action}"
    yield mark.message
    yield scale.clock(mark.at)
    if mark.read_at:
        yield f"read +{brief(mark.read_at - mark.at)}"


def _joined(*parts: str | float) -> str:
    return " ".join(part if isinstance(part, str) else number(part) for part in parts)
