"""The drawing of a timeline as one standalone SVG: lanes from the top of the hierarchy down, time from left to right.

This module decides the elements and their places; `templates/timeline.svg` has the markup, `timeline.css` the colours.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cache
from itertools import chain
from math import hypot
from typing import Any, NamedTuple
from unicodedata import east_asian_width

from jinja2 import Environment, PackageLoader, StrictUndefined

from multi_agent_mcp.domain.task import TASK_STATUSES
from multi_agent_mcp.domain.text import sanitize
from multi_agent_mcp.domain.times import duration_words, in_zone
from multi_agent_mcp.texts import CONSOLE, PEOPLE, Texts, catalogue
from multi_agent_mcp.timeline.density import message_counts, task_counts
from multi_agent_mcp.timeline.events import OTHERS, Arrow, Bar, Interruption, Lane, Life, PaneAnswer, Talk, Timeline
from multi_agent_mcp.timeline.scale import Scale

GUTTER, GUTTER_SHARE, MARGIN = 168.0, 0.25, 28.0
TOP = 66.0
LINE_ABOVE, LINE_BELOW = 20.0, 20.0  # room around the line that arrows begin and end at
ROW, BAR = 20.0, 15.0
ROWS_MAX = 6
CROWD_MAX = 50
"""More tasks than this without a row of their own are drawn as counts."""
LABEL_SIZE, LABEL_PIXELS = 11.0, 150.0
NARROW, WIDE = 0.56, 1.0  # estimated widths of letters in font sizes, rather too wide than too narrow


@dataclass(frozen=True)
class Placed:
    """A bar and its row; None means below the last row, without a label."""

    bar: Bar
    row: int | None


@dataclass(frozen=True)
class Band:
    """The place of a lane; `line` is the y at which its arrows begin and end."""

    lane: Lane
    top: float
    bars: tuple[Placed, ...]
    rows: int

    @property
    def line(self) -> float:
        return self.top + LINE_ABOVE

    @property
    def bottom(self) -> float:
        return self.line + LINE_BELOW + self.rows * ROW

    @property
    def crowd(self) -> list[Bar]:
        """The bars without a row of their own, if they are too many to be drawn below each other's heads."""
        without = [placed.bar for placed in self.bars if placed.row is None]
        return without if len(without) > CROWD_MAX else []

    def bar_top(self, row: int | None) -> float:
        return self.line + LINE_BELOW - 4 + (self.rows - 1 if row is None else row) * ROW


@dataclass(frozen=True)
class TimelineLayout:
    scale: Scale
    bands: tuple[Band, ...]
    _by_agent: Mapping[str, Band] = field(default_factory=dict)

    @property
    def bottom(self) -> float:
        return self.bands[-1].bottom if self.bands else TOP

    def band(self, agent_id: str) -> Band | None:
        """The agent's band, else that of the others, else None."""
        return self._by_agent.get(agent_id, self._by_agent.get(OTHERS))

    def line(self, agent_id: str) -> float | None:
        """Where the agent's arrows begin and end."""
        band = self.band(agent_id)
        return None if band is None else band.line


def lay_out(timeline: Timeline, scale: Scale, folded: Mapping[str, str] | None = None) -> TimelineLayout:
    """Lays out the lanes in their order; overlapping bars of a lane get different rows. What is of an agent in `folded`
    is on the lane of the agent that it names."""
    folded = folded or {}
    bands: list[Band] = []
    top = TOP
    bars: dict[str, list[Bar]] = {}
    for bar in timeline.bars:
        bars.setdefault(folded.get(bar.agent_id, bar.agent_id), []).append(bar)
    for lane in timeline.lanes:
        if lane.agent_id in folded:
            continue
        mine = bars.get(lane.agent_id, [])
        placed = tuple(_pack(mine, scale))
        rows = max((item.row + 1 for item in placed if item.row is not None), default=0)
        crowded = any(item.row is None for item in placed)
        bands.append(Band(lane, top, placed, rows + crowded))
        top = bands[-1].bottom
    own = {band.lane.agent_id: band for band in bands}
    return TimelineLayout(scale, tuple(bands), {name: own[head] for name, head in folded.items() if head in own} | own)


def label_room(bar: Bar) -> float:
    """The width of the shown part of the bar's title, in pixels."""
    return min(text_width(" ".join(bar.title.split()), LABEL_SIZE), LABEL_PIXELS)


def _pack(bars: Iterable[Bar], scale: Scale) -> Iterable[Placed]:
    """Assigns rows to bars, first fit; the title of a short bar is to its right and needs room, too."""
    ends: list[float] = []
    for bar in bars:
        left, right = scale.x(bar.start), scale.x(bar.end)
        label = label_room(bar) + 14
        reach = right if right - left >= label else right + label
        row = next((index for index, end in enumerate(ends) if end <= left), None)
        if row is None and len(ends) < ROWS_MAX:
            ends.append(0.0)
            row = len(ends) - 1
        if row is not None:
            ends[row] = min(reach + 6, scale.right) if right < scale.right else reach + 6
        yield Placed(bar, row)


def text_width(text: str, size: float) -> float:
    """The approximate width of a text in this font size, in pixels."""
    return size * sum(WIDE if east_asian_width(character) in "WF" else NARROW for character in text)


def fitted(text: str, pixels: float, size: float) -> str:
    """The text cut to the width, with an ellipsis if something is left out; empty if hardly anything fits."""
    text = " ".join(text.split())[: int(pixels) + 1]
    if text_width(text, size) <= pixels:
        return text
    while text and text_width(f"{text}…", size) > pixels:
        text = text[:-1]
    return f"{text.rstrip()}…" if len(text) > 1 else ""


FAMILIES: Mapping[str, str] = {
    "task_assign": "assign",
    "task_complete": "done",
    "task_approved": "done",
    "task_failed": "failed",
    "error": "failed",
    "task_progress": "progress",
    "status_update": "progress",
    "request": "ask",
    "response": "ask",
    "conversation": "talk",
    "broadcast": "broadcast",
}
"""The families of message types, each with a colour; all other types belong to `other`."""

NARROWEST = 480.0
LEFT, HEADING_SIZE, NAME_SIZE, INDENT = 14.0, 14.0, 13.0, 12.0
LEGEND_GAP, LEGEND_LINE, SWATCH = 22.0, 20.0, 26.0
DENSE_PIXELS = 9.0  # arrows closer together than this, on average, are drawn thinner
ARROWS_MAX = 100
"""More messages than this are drawn as counts: their arrows would hide each other."""
NARROWEST_BAR, CROWDED_BAR = 3.0, 5.0  # the width of the shortest bar; the height of a bar without a row of its own
HEAD, GAP, SIGN = 6.0, 4.0, 7.0  # an arrow's head, its distance from the line it points to, the radius of a sign or key

Item = dict[str, Any]


def draw(
    timeline: Timeline,
    *,
    texts: Texts,
    width: float = 1200,
    dark: bool | None = None,
    zone: tzinfo = UTC,
    teams: Mapping[str, Collection[str]] | None = None,
    unfolded: Collection[str] = (),
) -> str:
    """Draws a timeline as an SVG document, `width` pixels wide (at least 480) and as high as needed. `dark` None
    follows the reader's system. The agents of each of the `teams` that is not `unfolded` are on the lane of its head.
    More than `ARROWS_MAX` messages are drawn as counts. Text by agents is escaped; `data-kind` and `data-id` of an
    element tell what it represents."""
    width = max(width, NARROWEST)
    texts = catalogue(texts.language, PEOPLE) | catalogue(texts.language, CONSOLE) | texts
    scale = Scale(timeline.start, timeline.end, *plot(width), zone)
    teams = teams or {}
    layout = lay_out(timeline, scale, {one: head for head in teams if head not in unfolded for one in teams[head]})
    is_crowded = any(band.crowd for band in layout.bands)
    legend, height = _legend(timeline, texts, width, layout.bottom + LEGEND_GAP, is_crowded=is_crowded)
    heading = _heading(timeline, scale, texts)
    return (
        _templates()
        .get_template("timeline.svg")
        .render(
            style=stylesheet(dark),
            width=width,
            height=height,
            left=LEFT,
            top=TOP,
            bottom=layout.bottom,
            plot=(scale.left, scale.right),
            dense=len(timeline.arrows) * DENSE_PIXELS > scale.right - scale.left,
            heading=heading,
            one_line=text_width(" · ".join(heading), HEADING_SIZE) < width - MARGIN,
            lanes=[_lane(band, layout, texts, _Team.of(band, teams, unfolded)) for band in layout.bands],
            ticks=list(scale.ticks()),
            legend=legend,
            **_shapes(timeline, layout, scale, texts),
        )
    )


def _shapes(timeline: Timeline, layout: TimelineLayout, scale: Scale, texts: Texts) -> dict[str, list[Item]]:
    """What is drawn on the lanes, by kind."""
    is_counted = len(timeline.arrows) > ARROWS_MAX
    crowds = [(band.bar_top(None) + BAR, crowd) for band in layout.bands if (crowd := band.crowd)]
    return {
        "conversations": [item for talk in timeline.talks for item in _conversation(talk, layout, texts)],
        "sessions": [item for life in timeline.lives for item in _session(life, layout, texts)],
        "counts": [
            *(message_counts(timeline.arrows, scale, layout.line, texts) if is_counted else ()),
            *task_counts(crowds, scale, texts),
        ],
        "arrows": [] if is_counted else [item for one in timeline.arrows for item in _message(one, layout, texts)],
        "bars": [_bar(placed, band, scale, texts) for band in layout.bands for placed in _drawn(band)],
        "interrupts": [item for mark in timeline.marks for item in _interrupt(mark, layout, texts)],
        "answers": [item for answer in timeline.answers for item in _answer(answer, layout, texts)],
    }


def plot(width: float) -> tuple[float, float]:
    """The left and right ends of the time axis in a drawing of this width, in pixels."""
    width = max(width, NARROWEST)
    return min(GUTTER, width * GUTTER_SHARE), width - MARGIN


@cache
def stylesheet(dark: bool | None = None) -> str:
    """The style sheet of the drawing: light, dark, or (None) as the reader's system prefers. Every class begins with
    `tl-`, so that the drawing can be embedded in a page."""
    return _templates().get_template("timeline.css").render(dark=dark)


@cache
def _templates() -> Environment:
    environment = Environment(
        loader=PackageLoader("multi_agent_mcp.timeline"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        finalize=lambda value: sanitize(value) if type(value) is str else value,
    )
    environment.filters["px"] = lambda value: f"{value:.1f}".removesuffix(".0")
    return environment


def _heading(timeline: Timeline, scale: Scale, texts: Texts) -> tuple[str, str]:
    """The period, and the numbers of messages, tasks and interrupts shown."""
    start = in_zone(timeline.start, scale.zone)
    length = _lasted(timeline.end - timeline.start, texts)
    counts = texts(
        "timeline.counts",
        messages=len(timeline.arrows),
        tasks=len({bar.task_id for bar in timeline.bars}),
        interrupts=len(timeline.marks),
    )
    left_out = texts("timeline.left_out", count=timeline.left_out) if timeline.left_out else ""
    return texts("timeline.period", start=f"{start:%Y-%m-%d %H:%M:%S %Z}", length=length), counts + left_out


def _lasted(length: timedelta, texts: Texts) -> str:
    return duration_words(length, texts, units=2)


class _Team(NamedTuple):
    """The agents below the one of a lane, and whether they are on that lane."""

    size: int
    is_folded: bool

    @classmethod
    def of(cls, band: Band, teams: Mapping[str, Collection[str]], unfolded: Collection[str]) -> _Team | None:
        head = band.lane.agent_id
        return cls(len(teams[head]), head not in unfolded) if head in teams else None


def _lane(band: Band, layout: TimelineLayout, texts: Texts, team: _Team | None) -> Item:
    lane = band.lane
    x = LEFT + min(lane.depth, 6) * INDENT
    who = texts("timeline.others") if lane.agent_id == OTHERS else lane.agent_id
    before = "" if team is None else "▸ " if team.is_folded else "▾ "
    shown = before + fitted(who, layout.scale.left - x - 8 - text_width(before, NAME_SIZE), NAME_SIZE)
    folds = team and texts("timeline.unfold" if team.is_folded else "timeline.fold", count=team.size)
    role = None if lane.role == who else texts.word("role", lane.role)
    size = f"+{team.size}" if team and team.is_folded else None
    under = fitted(" · ".join(filter(None, (size, role, lane.machine))), layout.scale.left - x - 8, LABEL_SIZE)
    place = {"x": x, "y": band.line, "top": band.top, "bottom": band.bottom, "indented": lane.depth > 0}
    return {
        "id": lane.agent_id,
        "title": (who, texts.word("role", lane.role), lane.machine, folds),
        "is_team": team is not None,
        "shown": shown,
        "under": under,
        **place,
    }


def _conversation(talk: Talk, layout: TimelineLayout, texts: Texts) -> Iterator[Item]:
    """A strip on both lanes while two agents talked."""
    scale, parties = layout.scale, (talk.initiator_id, talk.target_agent_id)
    lasted = _lasted(talk.end - talk.start, texts) if talk.end else texts.word("state", talk.status)
    title = (" ↔ ".join(parties), talk.purpose, f"{scale.clock(talk.start)} · {lasted}")
    bands = {band.lane.agent_id: band for agent_id in parties if (band := layout.band(agent_id))}
    for band in bands.values():
        yield {"id": talk.conversation_id, "y": band.line, "title": title, **_extent(talk.start, talk.end, scale)}


def _session(life: Life, layout: TimelineLayout, texts: Texts) -> Iterator[Item]:
    """A rail on the lane while a session's process ran: task sessions on the line, chat sessions below it."""
    if (band := layout.band(life.agent_id)) is not None:
        lasted = _lasted(life.end - life.start, texts) if life.end else texts("timeline.still")
        who = life.agent_id if life.machine is None else f"{life.agent_id}@{life.machine}"
        title = (
            f"{who}: {texts.word('agents.session', life.purpose)}",
            life.session_id,
            f"{layout.scale.clock(life.start)} · {lasted}",
        )
        place = _extent(life.start, life.end, layout.scale) | {"y": band.line, "is_task": life.purpose == "task"}
        yield {"id": life.session_id, "title": title, **place}


def _extent(start: datetime, end: datetime | None, scale: Scale, least: float = 2) -> Item:
    left = scale.x(start)
    return {"x": left, "width": max(scale.x(end) - left, least)}


def _message(arrow: Arrow, layout: TimelineLayout, texts: Texts) -> Iterator[Item]:
    """A message, from sending to arrival, and on until it was read; nothing for agents without a lane."""
    sender, receiver = layout.band(arrow.sender_id), layout.band(arrow.receiver_id)
    if sender is None or receiver is None:
        return
    scale = layout.scale
    x, arrived = scale.x(arrow.sent_at), scale.x(arrow.arrived_at)
    told = _told(arrow, arrow.sent_at, texts)
    who = f"{arrow.sender_id} → {arrow.receiver_id}: {texts.word('type', arrow.message_type)}"
    yield {
        "id": arrow.message_id,
        "ink": FAMILIES.get(arrow.message_type, "other"),
        "path": _shaft((x, sender.line), (arrived, receiver.line)),
        "x": x,
        "from_y": sender.line,
        "to_y": receiver.line,
        "arrived": arrived,
        "read": scale.x(arrow.read_at) if arrow.read_at else None,
        "title": (who, arrow.subject, scale.clock(arrow.sent_at), told),
    }


def _told(event: Arrow | Interruption, since: datetime, texts: Texts) -> str:
    """The times of the event's delivery steps after `since`, as text."""
    steps = {"rung": event.rung_at, "submitted": event.submitted_at, "read": event.read_at}
    if isinstance(event, Arrow):
        steps = {"on_hub": event.on_hub_at, "arrived": event.came_at, **steps}
    return " · ".join(f"{texts.word('state', name)} +{_lasted(at - since, texts)}" for name, at in steps.items() if at)


def _interrupt(mark: Interruption, layout: TimelineLayout, texts: Texts) -> Iterator[Item]:
    """A stop sign on the agent's lane, with an arrow from the agent that interrupted it."""
    band, by = layout.band(mark.agent_id), layout.band(mark.by) if mark.by else None
    if band is None:
        return
    scale, action = layout.scale, texts.word("action", mark.action)
    x, y = scale.x(mark.at), band.line
    edge = y - SIGN if by is not None and by.line < y else y + SIGN
    yield {
        "id": mark.notification_id,
        "x": x,
        "y": y,
        "from_y": by.line if by else y,
        "path": _shaft((x, by.line), (x, edge), HEAD + 2) if by is not None and by is not band else None,
        "read": scale.x(mark.read_at) if mark.read_at else None,
        "action": action,
        "at_end": x + SIGN + text_width(action, LABEL_SIZE) > scale.right + MARGIN - GAP,
        "title": (
            f"{mark.by or '?'} → {mark.agent_id}: {action}",
            mark.words,
            scale.clock(mark.at),
            _told(mark, mark.at, texts),
        ),
    }


def _answer(answer: PaneAnswer, layout: TimelineLayout, texts: Texts) -> Iterator[Item]:
    """A key on the agent's lane, with an arrow from the person who pressed it."""
    band, by = layout.band(answer.agent_id), layout.band(answer.by)
    if band is None or by is None:
        return
    x, y = layout.scale.x(answer.at), band.line
    edge = y - SIGN if by.line < y else y + SIGN
    yield {
        "x": x,
        "y": y,
        "from_y": by.line,
        "path": _shaft((x, by.line), (x, edge)) if by is not band else None,
        "key": answer.choice[:1],
        "title": (
            f"{answer.by} → {answer.agent_id}: {answer.choice} {answer.label}",
            answer.question,
            f"{layout.scale.clock(answer.at)} · {texts.word('state', answer.state)}",
        ),
    }


def _drawn(band: Band) -> Iterator[Placed]:
    """The bars that are drawn, each by itself."""
    return (placed for placed in band.bars if placed.row is not None or not band.crowd)


def _bar(placed: Placed, band: Band, scale: Scale, texts: Texts) -> Item:
    """A task on its assignee's lane, coloured by status."""
    bar, row = placed.bar, placed.row
    extent = _extent(bar.start, bar.end, scale, NARROWEST_BAR)
    spans = [
        {"status": span.status if span.status in TASK_STATUSES else "todo", **_extent(span.start, span.end, scale, 1)}
        for span in bar.spans
    ]
    return {
        "id": bar.task_id,
        "y": band.bar_top(row),
        "height": BAR if row is not None else CROWDED_BAR,
        "spans": spans,
        "outcome": bar.outcome if row is not None else None,
        "label": _bar_label(bar, extent["x"], extent["x"] + extent["width"], scale) if row is not None else None,
        "title": tuple(_bar_title(bar, scale, texts)),
        **extent,
    }


def _bar_title(bar: Bar, scale: Scale, texts: Texts) -> Iterator[str]:
    yield from (bar.title, bar.task_id)
    for span in bar.spans:
        lasted = _lasted(span.end - span.start, texts) if span.end else "…"
        yield f"{scale.clock(span.start)}  {texts.word('status', span.status)} · {lasted}"
    if bar.outcome and bar.end:
        yield f"{scale.clock(bar.end)}  {texts.word('status', bar.outcome)}"


def _bar_label(bar: Bar, left: float, right: float, scale: Scale) -> Item | None:
    """The bar's title: inside the bar if it fits, else beside it if there is more room, cut if necessary."""
    inside = right - left - (14 if bar.outcome else 8)
    beside = min(scale.right + MARGIN - right - 14, LABEL_PIXELS)
    is_inside = text_width(bar.title, LABEL_SIZE) <= inside or inside >= beside
    shown = fitted(bar.title, inside if is_inside else beside, LABEL_SIZE)
    x = left + 5 if is_inside else right + (10 if bar.outcome else 5)
    return {"text": shown, "x": x, "beside": not is_inside} if shown else None


def _shaft(start: tuple[float, float], end: tuple[float, float], head: float = HEAD) -> str:
    """The path of an arrow; one that begins and ends on the same line is a loop above it."""
    (x1, y1), (x2, y2) = start, end
    if y1 == y2:
        across = max(x2 - x1, 18.0)
        loop = f"M {x1:.1f} {y1:.1f} q {across / 2:.1f} -30 {across:.1f} {-GAP:.1f}"
        return f"{loop} m {-head / 2:.1f} {-head:.1f} l {head / 2:.1f} {head:.1f} {head / 2:.1f} {-head:.1f}"
    length = hypot(x2 - x1, y2 - y1)
    ux, uy = (x2 - x1) / length, (y2 - y1) / length
    tip_x, tip_y = x2 - ux * GAP, y2 - uy * GAP
    back_x, back_y, side = tip_x - ux * head, tip_y - uy * head, head * 0.55
    left, right = (back_x - uy * side, back_y + ux * side), (back_x + uy * side, back_y - ux * side)
    ends = [f"{x:.1f} {y:.1f}" for x, y in (start, (tip_x, tip_y), left, (tip_x, tip_y), right)]
    return "M {} L {} M {} L {} L {}".format(*ends)


def _legend(
    timeline: Timeline, texts: Texts, right: float, top: float, *, is_crowded: bool
) -> tuple[list[Item], float]:
    """The wrapped legend of the colours that occur, and the y at which it ends."""
    entries: list[Item] = []
    x, y = LEFT, top
    crowded = [("tasks", "", texts("timeline.as_tasks"))] if is_crowded else []
    for kind, name, label in (*_legend_entries(timeline, texts), *crowded):
        room = SWATCH + text_width(label, LABEL_SIZE) + 18
        if x > LEFT and x + room > right - LEFT:
            x, y = LEFT, y + LEGEND_LINE
        entries.append({"kind": kind, "name": name, "label": label, "x": x, "y": y})
        x += room
    return entries, y + LEGEND_LINE


def _legend_entries(timeline: Timeline, texts: Texts) -> Iterator[tuple[str, str, str]]:
    yield from _arrow_entries(timeline.arrows, texts)
    statuses = set(chain.from_iterable((bar.outcome, *(span.status for span in bar.spans)) for bar in timeline.bars))
    if timeline.marks:
        yield "interrupt", "", texts("timeline.interrupt")
    if timeline.answers:
        yield "answer", "", texts("timeline.answer")
    for name in TASK_STATUSES:
        if name in statuses:
            yield "status", name, texts(f"status.{name}")
    if timeline.lives:
        yield "session", "", texts("timeline.session")
    if timeline.talks:
        yield "conversation", "", texts("timeline.conversation")


def _arrow_entries(arrows: Collection[Arrow], texts: Texts) -> Iterator[tuple[str, str, str]]:
    if len(arrows) > ARROWS_MAX:
        yield "counts", "", texts("timeline.as_counts")
        return
    sent = {FAMILIES.get(arrow.message_type, "other") for arrow in arrows}
    for name in dict.fromkeys([*FAMILIES.values(), "other"]):
        if name in sent:
            yield "arrow", name, texts(f"timeline.{name}")
    if any(arrow.read_at is None for arrow in arrows):
        yield "unread", "", texts("timeline.unread")
