"""The time axis of a timeline: pixels of moments, and ticks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo

from multi_agent_mcp.domain.times import in_zone

SECOND, MINUTE, HOUR, DAY = 1.0, 60.0, 3_600.0, 86_400.0
STEPS = (
    *(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5),
    *(count * SECOND for count in (1, 2, 5, 10, 15, 30)),
    *(count * MINUTE for count in (1, 2, 5, 10, 15, 30)),
    *(count * HOUR for count in (1, 2, 3, 6, 12)),
    *(count * DAY for count in (1, 2, 7, 14, 28, 91, 364)),
)
TICK_PIXELS = 88
DIGIT_PIXELS = 6.3  # of a label's font, with what is free beside it
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
        """The pixel and label of each tick: round times at least `TICK_PIXELS` apart, with the day where it changes; no
        label where it would touch the one before."""
        seconds = self.length.total_seconds()
        room = max((self.right - self.left) / TICK_PIXELS, 1.0)
        step = next((step for step in STEPS if seconds / step <= room), STEPS[-1])
        midnight = in_zone(self.start, self.zone).replace(hour=0, minute=0, second=0, microsecond=0)
        first = int(((self.start - midnight).total_seconds()) / step)
        day, reach = None, -DAY
        for count in range(first, first + int(room) + 3):
            moment = midnight + timedelta(seconds=count * step)
            if self.start <= moment <= self.start + self.length:
                local = in_zone(moment, self.zone)
                x, label = self.x(moment), _clock_label(local, step, new_day=local.date() != day)
                half = len(label) * DIGIT_PIXELS / 2
                yield x, label if x - half >= reach else ""
                if x - half >= reach:
                    reach, day = x + half, local.date()

    def clock(self, moment: datetime) -> str:
        """The day and time of a moment, to the millisecond."""
        local = in_zone(moment, self.zone)
        return f"{local:%Y-%m-%d %H:%M:%S}.{local.microsecond // 1000:03d}"


def _clock_label(local: datetime, step: float, *, new_day: bool) -> str:
    if step >= DAY:
        return f"{local:%Y-%m-%d}"
    if step >= MINUTE:
        time = f"{local:%H:%M}"
    elif step >= SECOND:
        time = f"{local:%H:%M:%S}"
    else:
        time = f"{local:%H:%M:%S}.{local.microsecond // 1000:03d}"
    return f"{local:%m-%d} {time}" if new_day else time
