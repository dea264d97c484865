"""Points in time: UTC everywhere, ISO 8601 with microseconds and a `Z` on disk, lenient when read
(docs/format.md)."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

from multi_agent_mcp.errors import InvalidArguments

_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400
_STAMPED = str.maketrans({"-": None, ":": None, "T": "_"})


def now() -> datetime:
    """The present, in UTC. Services are handed a clock; this is the one `bootstrap` hands them."""
    return datetime.now(UTC)


def format_time(moment: datetime) -> str:
    """`2026-11-21T21:46:01.123456Z`."""
    # Not strftime: on Linux its %Y writes the year 999 with three digits, which cannot be read again.
    return moment.astimezone(UTC).isoformat(timespec="microseconds").removesuffix("+00:00") + "Z"


def stamp(moment: datetime) -> str:
    """`20261121_214601`, the first part of a message's file name (UTC)."""
    return format_time(moment)[:19].translate(_STAMPED)


def from_timestamp(seconds: float) -> datetime:
    """A file's modification time; one that no calendar holds, set by hand, counts as the epoch."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        return datetime.fromtimestamp(0, UTC)


def parse_time(value: object) -> datetime | None:
    """What a hand-written header may hold: a string, a YAML timestamp, a date. Naive times are UTC.

    None means that it could not be understood.
    """
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value.strip())
        except ValueError:
            return None
    if isinstance(value, datetime):
        if value.tzinfo is UTC:  # as we write it; it need not be made anew
            return value
        try:
            return value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)
        except (OverflowError, ValueError):
            return None
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day, tzinfo=UTC)
    return None


def asked_time(name: str, given: str | None) -> datetime | None:
    """The point in time that is asked for as `name` (an option, a parameter); None: none is. Raises
    `InvalidArguments`, showing at most 60 characters of what was given."""
    found = parse_time(given)
    if given is not None and found is None:
        raise InvalidArguments("bad_time", name=name, value=repr(given)[:60])
    return found


def is_recent(moment: datetime, now: datetime, length: timedelta) -> bool:
    """Whether no more than `length` has passed since then. What lies in the future says that the clock was set back
    meanwhile, and how long ago it was is not known: not recent, so that nobody waits until the clock has caught up."""
    return timedelta(0) <= now - moment < length


def json_values(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A `dict_factory` for `dataclasses.asdict`: every moment as it is written on disk, as JSON wants it."""
    return {name: format_time(value) if isinstance(value, datetime) else value for name, value in pairs}


def format_duration(length: timedelta) -> str:
    """A duration at a glance: `376 ms`, `4.2 s`, `3 min 05 s`, `2 h 10 min`, `3 d 4 h`."""
    seconds = length.total_seconds()
    if abs(seconds) < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < _MINUTE:
        return f"{seconds:.1f} s"
    if seconds < _HOUR:
        return f"{seconds // _MINUTE:.0f} min {seconds % _MINUTE:02.0f} s"
    if seconds < _DAY:
        return f"{seconds // _HOUR:.0f} h {seconds % _HOUR // _MINUTE:02.0f} min"
    return f"{seconds // _DAY:.0f} d {seconds % _DAY // _HOUR:.0f} h"
