"""Points in time: UTC everywhere, written as ISO 8601 with microseconds and a `Z`, parsed leniently
(docs/format.md)."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import TYPE_CHECKING, Any

from multi_agent_mcp.errors import InvalidArguments

if TYPE_CHECKING:
    from multi_agent_mcp.texts import Texts

_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400


def now() -> datetime:
    """The current time in UTC: the clock that `bootstrap` passes to the services."""
    return datetime.now(UTC)


def local_zone() -> tzinfo:
    """This process's time zone; UTC if `TZ` (environ(7)) names one that `datetime` cannot have, a day or more away."""
    try:
        return datetime.now().astimezone().tzinfo or UTC
    except ValueError:
        return UTC


def in_zone(moment: datetime, zone: tzinfo) -> datetime:
    """A moment by the clocks of a zone; in UTC if no calendar has it there (the last hours of 9999, the first of 1)."""
    try:
        return moment.astimezone(zone)
    except (OverflowError, ValueError):
        return moment.astimezone(UTC)


def format_time(moment: datetime) -> str:
    """Formats a time as `2026-11-21T21:46:01.123456Z`."""
    # Not strftime: on Linux its %Y writes the year 999 with three digits, which cannot be parsed.
    moment = moment if moment.tzinfo is UTC else moment.astimezone(UTC)
    return f"{moment.isoformat(timespec='microseconds')[:-6]}Z"  # without +00:00


def stamp(moment: datetime) -> str:
    """Formats a time as `20261121_214601` (UTC), the first part of a message's file name."""
    return format_time(moment)[:19].replace("-", "").replace(":", "").replace("T", "_")


def month_of(moment: datetime) -> str:
    """The month of a time as archives name it: `2026-11`."""
    return f"{moment:%Y-%m}"


def within_month(month: str, at: int) -> int:
    """The time `at` if it is in this month, named as in archives, else the nearest second of the month (nanoseconds
    since the epoch). Under any other name, which a person may have given, every time is right."""
    try:
        first = datetime.strptime(f"{month} +0000", "%Y-%m %z")
        following = first.replace(year=first.year + first.month // 12, month=first.month % 12 + 1)
    except ValueError:
        return at
    return min(max(at, int(first.timestamp()) * 10**9), int(following.timestamp() - 1) * 10**9)


def from_timestamp(seconds: float) -> datetime:
    """A file's modification time as a `datetime`; the epoch if it is out of range, as a person may set it."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (OverflowError, ValueError, OSError):
        return datetime.fromtimestamp(0, UTC)


def parse_time(value: object) -> datetime | None:
    """Parses a time in a possibly hand-written header: a string, a YAML timestamp, a date. Naive times are UTC.

    Returns None for anything else.
    """
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value.strip())
        except ValueError:
            return None
    if isinstance(value, datetime):
        if value.tzinfo is UTC:  # as parsed from our own files: no conversion needed
            return value
        try:
            return value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC)
        except (OverflowError, ValueError):
            return None
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day, tzinfo=UTC)
    return None


def moment_of(value: object) -> datetime | None:
    """A time as hosts write it: ISO 8601, or seconds or milliseconds since the epoch."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        seconds = value / 1000 if value > 10**11 else value
        try:
            return datetime.fromtimestamp(seconds, UTC)
        except (OverflowError, ValueError, OSError):
            return None
    return parse_time(value)


def asked_time(name: str, given: str | None) -> datetime | None:
    """Parses the time given for the option or parameter `name`; None if none is given. Raises `InvalidArguments`, with
    at most 60 characters of the value."""
    found = parse_time(given)
    if given is not None and found is None:
        raise InvalidArguments("bad_time", name=name, value=repr(given)[:60])
    return found


def is_recent(moment: datetime, now: datetime, length: timedelta) -> bool:
    """Whether less than `length` has passed since `moment`. A moment in the future, from before the clock was set back,
    is not recent, so that nothing waits until the clock has caught up."""
    return timedelta(0) <= now - moment < length


def json_values(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A `dict_factory` for `dataclasses.asdict` that formats times as on disk, for JSON."""
    return {name: format_time(value) if isinstance(value, datetime) else value for name, value in pairs}


def moment_in_words(moment: datetime, now: datetime, zone: tzinfo, texts: Texts) -> str:
    """A moment by the clock of a zone: `09:14` today, else with the day, and with the year if it is another one."""
    there, here = in_zone(moment, zone), in_zone(now, zone)
    clock = f"{there:%H:%M}"
    if there.date() == here.date():
        return clock
    month = texts("time.months").split()[there.month - 1]
    if there.year == here.year:
        return texts("time.day", month=month, day=there.day, clock=clock)
    return texts("time.year", month=month, day=there.day, year=there.year)


def duration_words(length: timedelta, texts: Texts, *, units: int = 1) -> str:
    """A duration as people say it, in one unit or two: `18 min`, 「18分」."""
    said = format_duration(length).split()
    pairs = [*zip(said[::2], said[1::2], strict=True)][:units]
    whole = [(number.partition(".")[0] if units == 1 else number, unit) for number, unit in pairs]
    return texts("ago.and").join(texts(f"ago.{unit}", number=number) for number, unit in whole)


def format_duration(length: timedelta) -> str:
    """Formats a duration for people: `376 ms`, `4.2 s`, `3 min 05 s`, `2 h 10 min`, `3 d 4 h`."""
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
