"""Times: UTC, microseconds and a Z when written; lenient when read."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multi_agent_mcp.domain.times import (
    asked_time,
    format_duration,
    format_time,
    from_timestamp,
    in_zone,
    now,
    parse_time,
    stamp,
)
from multi_agent_mcp.errors import InvalidArguments

AWARE = st.datetimes(
    min_value=datetime(1, 1, 3), max_value=datetime(9999, 12, 29), timezones=st.timezones()
)  # a day's distance from both ends, so that the same moment exists in UTC


@given(AWARE)
def test_a_moment_that_was_written_is_read_as_the_same_moment(moment: datetime) -> None:
    text = format_time(moment)
    assert parse_time(text) == moment.astimezone(UTC)
    assert len(text) == len("2026-11-21T21:46:01.123456Z")
    assert text.endswith("Z")


@given(AWARE)
def test_the_stamp_in_a_file_name_always_has_fifteen_characters(moment: datetime) -> None:
    assert len(stamp(moment)) == 15


@pytest.mark.parametrize(
    "value",
    [
        "2026-11-21T21:46:01Z",
        " 2026-11-21T21:46:01+00:00 ",
        "2026-11-21T21:46:01",
        "2026-11-21 21:46:01",
        "2026-11-22T06:46:01+09:00",
        datetime(2026, 11, 21, 21, 46, 1),
        datetime(2026, 11, 22, 6, 46, 1, tzinfo=timezone(timedelta(hours=9))),
    ],
)
def test_what_a_person_would_write_is_understood_and_naive_times_are_utc(value: object) -> None:
    assert parse_time(value) == datetime(2026, 11, 21, 21, 46, 1, tzinfo=UTC)


def test_a_date_is_its_first_moment() -> None:
    assert parse_time(date(2026, 11, 21)) == datetime(2026, 11, 21, tzinfo=UTC)


@pytest.mark.parametrize("value", [None, "", "yesterday", 1732225561, True, [], "2026-13-01T00:00:00"])
def test_what_is_no_time_is_none(value: object) -> None:
    assert parse_time(value) is None


def test_a_time_that_is_asked_for_is_read_or_refused_with_its_name() -> None:
    assert asked_time("--to", None) is None
    assert asked_time("--to", "2026-11-21") == datetime(2026, 11, 21, tzinfo=UTC)
    with pytest.raises(InvalidArguments) as refused:
        asked_time("--to", "tomorrow" * 1000)
    assert refused.value.values["name"] == "--to"
    assert len(refused.value.values["value"]) == 60


def test_a_moment_that_utc_cannot_hold_is_none_rather_than_an_error() -> None:
    assert parse_time("0001-01-01T00:00:00+14:00") is None


def test_the_present_is_in_utc() -> None:
    assert now().utcoffset() == timedelta(0)


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (0.0372, "37 ms"),
        (4.21, "4.2 s"),
        (185, "3 min 05 s"),
        (7_800, "2 h 10 min"),
        (273_700, "3 d 4 h"),
        (-0.5, "-500 ms"),
    ],
)
def test_a_duration_is_told_at_a_glance(seconds: float, told: str) -> None:
    assert format_duration(timedelta(seconds=seconds)) == told


@pytest.mark.parametrize("seconds", [2.0**62, -(2.0**62), float("inf"), float("nan")])
def test_a_modification_time_of_no_calendar_counts_as_the_epoch(seconds: float) -> None:
    assert from_timestamp(seconds) == datetime(1970, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("zone", ["Asia/Tokyo", "America/Los_Angeles", "UTC"])
@pytest.mark.parametrize("moment", ["9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z"])
def test_the_ends_of_the_calendar_are_shown_in_every_zone(moment: str, zone: str) -> None:
    there = in_zone(parse_time(moment), ZoneInfo(zone))  # type: ignore[arg-type]
    assert f"{there:%Y-%m-%d %H:%M}"
