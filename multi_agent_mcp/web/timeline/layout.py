"""The layout of a timeline: lanes from top to bottom, and each lane's task bars in few rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from unicodedata import east_asian_width

from multi_agent_mcp.domain.overview.timeline import OTHERS, Bar, Lane, Timeline

# The time axis of a timeline: pixels of moments, and ticks.

SECOND, MINUTE, HOUR, DAY = 1.0, 60.0, 3_600.0, 86_400.0
STEPS = (
    *(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5),
    *(count * SECOND for count in (1, 2, 5, 10, 15, 30)),
    *(count * MINUTE for count in (1, 2, 5, 10, 15, 30)),
    *(count * HOUR for count in (1, 2, 3, 6, 12)),
    *(count * DAY for count in (1, 2, 7, 14, 28, 91, 364)),
)
TICK_PIXELS = 88
SHORTEST = timedelta(milliseconds=20)  # a period without length can still be drawn


@dataclass(frozen=True)
class Scale:
    """A time axis: `start` is at the pixel `left`, `end` at `right`; moments outside are drawn at the border."""

    start: datetime
    end: datetime
    left: float
    right: float
    zone: tzinfo = UTC

    @property
    def length(self) -> timedelta:
        return max(self.end - self.start, SHORTEST)

    def x(self, moment: datetime | None) -> float:
        """The pixel of a moment; None, for something that still lasts, is the right end."""
        if moment is None:
            return self.right
        share = (moment - self.start) / self.length
        return self.left + min(max(share, 0.0), 1.0) * (self.right - self.left)

    def ticks(self) -> Iterator[tuple[float, str]]:
        """The pixel and label of each tick: round times at least `TICK_PIXELS` apart, with the day where it changes."""
        seconds = self.length.total_seconds()
        room = max((self.right - self.left) / TICK_PIXELS, 1.0)
        step = next((step for step in STEPS if seconds / step <= room), STEPS[-1])
        midnight = self.start.astimezone(self.zone).replace(hour=0, minute=0, second=0, microsecond=0)
        first = int(((self.start - midnight).total_seconds()) / step)
        day = None
        for count in range(first, first + int(room) + 3):
            moment = midnight + timedelta(seconds=count * step)
            if self.start <= moment <= self.start + self.length:
                local = moment.astimezone(self.zone)
                yield self.x(moment), _label(local, step, new_day=local.date() != day)
                day = local.date()

    def clock(self, moment: datetime) -> str:
        """The day and time of a moment, to the millisecond."""
        local = moment.astimezone(self.zone)
        return f"{local:%Y-%m-%d %H:%M:%S}.{local.microsecond // 1000:03d}"


def _label(local: datetime, step: float, *, new_day: bool) -> str:
    if step >= DAY:
        return f"{local:%Y-%m-%d}"
    if step >= MINUTE:
        time = f"{local:%H:%M}"
    elif step >= SECOND:
        time = f"{local:%H:%M:%S}"
    else:
        time = f"{local:%H:%M:%S}.{local.microsecond // 1000:03d}"
    return f"{local:%m-%d} {time}" if new_day else time


GUTTER, GUTTER_SHARE, MARGIN = 168.0, 0.25, 28.0
TOP = 66.0
LINE_ABOVE, LINE_BELOW = 20.0, 20.0  # room around the line that arrows begin and end at
ROW, BAR = 20.0, 15.0
ROWS_MAX = 6
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

    def bar_top(self, row: int | None) -> float:
        return self.line + LINE_BELOW - 4 + (self.rows - 1 if row is None else row) * ROW


@dataclass(frozen=True)
class Layout:
    scale: Scale
    bands: tuple[Band, ...]
    _by_agent: Mapping[str, Band] = field(default_factory=dict)

    @property
    def bottom(self) -> float:
        return self.bands[-1].bottom if self.bands else TOP

    def band(self, agent_id: str) -> Band | None:
        """The agent's band, else that of the others, else None."""
        return self._by_agent.get(agent_id, self._by_agent.get(OTHERS))


def lay_out(timeline: Timeline, scale: Scale) -> Layout:
    """Lays out the lanes in their order; overlapping bars of a lane get different rows."""
    bands: list[Band] = []
    top = TOP
    for lane in timeline.lanes:
        mine = [bar for bar in timeline.bars if bar.agent_id == lane.agent_id]
        placed = tuple(_pack(mine, scale))
        rows = max((item.row + 1 for item in placed if item.row is not None), default=0)
        crowded = any(item.row is None for item in placed)
        bands.append(Band(lane, top, placed, rows + crowded))
        top = bands[-1].bottom
    return Layout(scale, tuple(bands), {band.lane.agent_id: band for band in bands})


def label_room(bar: Bar) -> float:
    """The width of the shown part of the bar's title, in pixels."""
    return min(text_width(" ".join(bar.title.split()), LABEL_SIZE), LABEL_PIXELS)


def _pack(bars: Iterable[Bar], scale: Scale) -> Iterable[Placed]:
    """Assigns rows to bars, first fit; the title of a short bar stands to its right and needs room, too."""
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
