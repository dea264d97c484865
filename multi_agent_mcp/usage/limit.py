"""The usage limits that agents' hosts have met (docs/protocol.md, Limited agents): one window with one reset is one
episode. The rules by which a host tells of them are data of the hosts (`hosts/*.yaml`, key `limits`)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, tzinfo
from functools import cache
from typing import Any
from zlib import crc32

from multi_agent_mcp.domain.json_lines import fits, name_of, needles_of, value_at
from multi_agent_mcp.domain.notification import Notification, derived_id
from multi_agent_mcp.domain.times import format_time, moment_of, parse_time
from multi_agent_mcp.hosts import description, host_named
from multi_agent_mcp.services.team.limited import UNKNOWN

AGENT_LIMITED = "agent_limited"
SAME_RESET = timedelta(minutes=2)
"""How far two sayings of one reset may differ: screens have minutes."""
SHORTEST_ON_SCREEN = timedelta(minutes=2)
"""What a host waits for less than this is no limit, but a busy service."""
LONGEST = timedelta(days=40)
"""A reset further away is a mistake; there are monthly limits."""
SPREAD_SECONDS = 30.0
FIRST_PROBE, LAST_PROBE = timedelta(minutes=15), timedelta(hours=2)


@dataclass(frozen=True)
class LimitSeen:
    """What a source says: that the host met a limit `at` this time, and where it says them its window and reset."""

    at: datetime
    source: str
    until: datetime | None = None
    window: str | None = None


@dataclass(frozen=True, kw_only=True)
class Limit:
    """The limit of an agent. `until` is its reset, None if unknown; `grace` how long after it the host may go on by
    itself; `rung_at` the last ring after it, `probes` the rings while the reset is unknown."""

    agent_id: str
    seen_at: datetime
    source: str
    until: datetime | None = None
    window: str | None = None
    host: str | None = None
    grace: timedelta = timedelta(0)
    began_at: datetime | None = None
    rung_at: datetime | None = None
    probes: int = 0

    @classmethod
    def of(cls, agent_id: str, record: object) -> Limit | None:
        """Parses the file's content; None for anything else."""
        if not isinstance(record, Mapping) or (seen_at := parse_time(record.get("seen_at"))) is None:
            return None
        window, host = (str(value) if (value := record.get(name)) is not None else None for name in ("window", "host"))
        grace, probes = record.get("grace_seconds"), record.get("probes")
        return cls(
            agent_id=agent_id,
            seen_at=seen_at,
            source=str(record.get("source") or "file"),
            until=parse_time(record.get("until")),
            window=window,
            host=host,
            began_at=parse_time(record.get("began_at")),
            rung_at=parse_time(record.get("rung_at")),
            grace=timedelta(seconds=grace if isinstance(grace, (int, float)) and 0 <= grace <= 86_400 else 0),
            probes=probes if isinstance(probes, int) and probes >= 0 else 0,
        )

    def as_record(self) -> dict[str, Any]:
        """The file's content."""
        return {
            "agent_id": self.agent_id,
            "host": self.host,
            "window": self.window,
            "until": self.until_said,
            "seen_at": format_time(self.seen_at),
            "began_at": format_time(self.beginning),
            "source": self.source,
            "grace_seconds": self.grace.total_seconds(),
            "rung_at": self.rung_at and format_time(self.rung_at),
            "probes": self.probes,
        }

    @property
    def beginning(self) -> datetime:
        """When the episode began, which names it."""
        return self.began_at or self.seen_at

    @property
    def until_said(self) -> str:
        """The reset for answers and views."""
        return UNKNOWN if self.until is None else format_time(self.until)

    def lasts(self, now: datetime) -> bool:
        """Whether the agent is limited now: an episode ends at its time."""
        return self.until is None or now < self.until

    @property
    def spread(self) -> timedelta:
        """This agent's part of the time over which rings after a reset are spread."""
        return timedelta(seconds=crc32(self.agent_id.encode()) % 1000 / 1000 * SPREAD_SECONDS)

    @property
    def next_ring(self) -> datetime | None:
        """When the agent is to be rung because of this limit; None once that was done. While the reset is unknown,
        again and again after growing pauses."""
        if self.until is not None:
            return None if self.rung_at is not None else self.until + self.grace + self.spread
        pause = min(FIRST_PROBE * (1 << min(self.probes, 10)), LAST_PROBE)
        return (self.rung_at or self.seen_at) + pause

    def holds_until(self, now: datetime) -> datetime | None:
        """Until when nothing is rung; None if a ring may be made now. A time that is further ahead than the episode
        can last is from before the clock was set back, and holds nothing."""
        following = self.next_ring
        return following if following is not None and now < following <= now + LONGEST else None

    def is_same(self, until: datetime | None) -> bool:
        """Whether a reset is that of this episode."""
        return self.until is not None and until is not None and abs(until - self.until) <= SAME_RESET

    def again(self, seen: LimitSeen, now: datetime) -> Limit | None:
        """The limit after a further saying of the same episode; None if it is about another one. A ring that was made
        too early, as by a clock that was ahead, counts no more; a reset that has passed is unknown from then on."""
        if self.until is None:
            return replace(self, until=ahead(seen.until, now), window=seen.window or self.window, seen_at=seen.at)
        if not self.is_same(seen.until):
            return replace(self, seen_at=seen.at) if seen.until is None and self.lasts(now) else None
        if self.lasts(now):
            return replace(self, window=seen.window or self.window, seen_at=seen.at, rung_at=None)
        return replace(self, until=None, seen_at=max(seen.at, self.seen_at)) if seen.at > self.until else self

    def rung(self, at: datetime) -> Limit:
        return replace(self, rung_at=at, probes=self.probes + (self.until is None))


def ahead(until: datetime | None, now: datetime) -> datetime | None:
    """A reset that is ahead; None for one that has passed, or that is too far away to be true."""
    return until if until is not None and now < until <= now + LONGEST else None


def limited_notice(limit: Limit, superior_id: str, reason: str) -> Notification:
    """The superior's notification, without its text: one for each episode."""
    return Notification(
        id=derived_id(AGENT_LIMITED, limit.agent_id, limit.beginning, superior_id),
        target_agent_id=superior_id,
        target_purpose="task",
        type="status_change",
        action=AGENT_LIMITED,
        created_at=limit.beginning,
        sender_id=limit.agent_id,
        reason=reason,
    )


# Times as hosts say them to people.

_UNITS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
_LENGTH = re.compile(r"(\d+)\s*(d|h|m(?!o)|s)", re.IGNORECASE)
_CLOCK = re.compile(r"\b(\d{1,2})(?::(\d{2}))?(?::\d{2})?\s*([ap])\.?m\b|\b(\d{1,2}):(\d{2})\b", re.IGNORECASE)
_DAY = re.compile(
    r"\b(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.? +(\d{1,2})(?:st|nd|rd|th)?\b(?:, *(\d{4}))?"
)
_ZONE = re.compile(r"\(([A-Za-z]+(?:/[A-Za-z_+-]+)*)\)")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
HALF_A_DAY = timedelta(hours=12)


def length_said(words: str) -> timedelta | None:
    """A length of time such as `59m 52s`, `1 hour`, `3 days 4 hours`; None if there is none."""
    found = _LENGTH.findall(words)
    if not found:
        return None
    return timedelta(seconds=sum(int(number) * _UNITS[unit.lower()] for number, unit in found[:8] if len(number) < 8))


def moment_said(words: str, now: datetime, zone: tzinfo) -> datetime | None:
    """A time such as `6:04pm (UTC)`, `7:04 PM`, `Nov 27, 7pm`, `19:04`; None if there is none. Without a zone it is in
    `zone`; without a day it is the nearest one, ahead or past: a screen keeps what it has shown."""
    clock = _CLOCK.search(words)
    if clock is None:
        return None
    hour, minute = int(clock[1] or clock[4]), int(clock[2] or clock[5] or 0)
    if clock[3]:
        hour = hour % 12 + (12 if clock[3].lower() == "p" else 0)
    local = now.astimezone(_zone(words) or zone)
    try:
        moment = local.replace(hour=hour, minute=minute, second=0, microsecond=0)
        return _on_day(words, moment, local).astimezone(now.tzinfo)
    except (ValueError, OverflowError):
        return None


def _on_day(words: str, moment: datetime, now: datetime) -> datetime:
    if (day := _DAY.search(words.lower())) is not None:
        dated = moment.replace(year=int(day[3] or now.year), month=_MONTHS.index(day[1]) + 1, day=int(day[2]))
        is_next_year = day[3] is None and now - dated > timedelta(days=180)
        return dated.replace(year=now.year + 1) if is_next_year else dated
    if moment - now > HALF_A_DAY:
        return moment - timedelta(days=1)
    return moment + timedelta(days=1) if now - moment >= HALF_A_DAY else moment


def _zone(words: str) -> tzinfo | None:
    if (named := _ZONE.search(words)) is None:
        return None
    from zoneinfo import ZoneInfo  # hooks need not wait for it

    try:
        return ZoneInfo(named[1])
    except (OSError, ValueError, KeyError):  # there is no such zone here
        return None


def until_said(words: str, now: datetime, zone: tzinfo) -> datetime | None:
    """The reset that a host's words to people name: `in 1 hour`, `resets 6:04pm (UTC)`, `try again at 7:04 PM`."""
    flat = " ".join(words.split())
    if (
        relative := re.search(r"\b(?:in|retrying in) ((?:\d+ *[a-z]+[ ,]*(?:and )?)+)", flat, re.IGNORECASE)
    ) is not None:
        length = length_said(relative[1])
        return None if length is None else now + length
    if (named := re.search(r"\b(?:resets?|again)(?: at| on)?:? (.{1,60})", flat)) is not None:
        return moment_said(named[1], now, zone)
    return None


# The rules by which a host tells of a limit.

EXHAUSTED_PERCENT = 100
Conditions = Mapping[str, str]


def _matches(conditions: Conditions | None, facts: object) -> bool:
    """Whether the text at each path is like the pattern."""
    return conditions is not None and all(
        re.search(pattern, str(value_at(facts, path) or "")) for path, pattern in conditions.items()
    )


@dataclass(frozen=True)
class LimitLine:
    """A line of a host's own file that says that a limit was met: one with the values `when`. The other fields are
    dotted paths to its reset (in numbers), its window, and the words that people read."""

    when: Mapping[str, Any]
    until: str = ""
    window: str = ""
    words: str = ""
    at: str = "timestamp"


@dataclass(frozen=True)
class LimitRules:
    """A host's key `limits`. `hooks` maps events of its hooks that tell of a limit to patterns of their fields, `words`
    is the field with the words that people read; `ends` likewise maps events by which it goes on by itself, which it
    does within `grace_seconds` after the reset. `lines` are those of its own files; `quotas` is where the lines `when`
    say how much of each window is used, with its reset. `screen` are patterns of its screen, on which words may name
    the reset, and the group `window` the window."""

    grace_seconds: float = 0
    hooks: Mapping[str, Conditions] = field(default_factory=dict)
    ends: Mapping[str, Conditions] = field(default_factory=dict)
    words: str = ""
    lines: Sequence[LimitLine] = ()
    quotas: str = ""
    when: Mapping[str, Any] = field(default_factory=dict)
    screen: Sequence[str] = ()

    @classmethod
    def parse(cls, data: Mapping[str, Any]) -> LimitRules:
        """Parses the data of the package's own files."""
        return cls(**{**data, "lines": tuple(LimitLine(**line) for line in data.get("lines", ()))})

    @property
    def needles(self) -> tuple[bytes, ...]:
        """As `UsageRules.needles`."""
        return needles_of([*(line.when for line in self.lines), *([self.when] if self.quotas else [])])

    @property
    def is_on_screen_only(self) -> bool:
        """Whether neither hooks nor files tell of a limit."""
        return bool(self.screen) and not self.hooks and not self.lines

    def tells(self, event: str, facts: object) -> bool:
        """Whether an event of the host's hooks says that it met a limit."""
        return event in self.hooks and _matches(self.hooks[event], facts)

    def ended_by(self, event: str, facts: object) -> bool:
        """Whether an event of the host's hooks says that it goes on."""
        return event in self.ends and _matches(self.ends[event], facts)


@cache
def limit_rules_of(host: str | None) -> LimitRules | None:
    """The rules of the host of this name; None if there is no such host."""
    return None if host_named(host) is None else LimitRules.parse(description(str(host)).get("limits", {}))


class LimitReader:
    """Reads the lines of one file in order: what they say of quotas counts for the lines that follow."""

    def __init__(self, rules: LimitRules, zone: tzinfo) -> None:
        self._rules = rules
        self._zone = zone
        self._quotas: Mapping[str, Any] = {}

    def read(self, line: object, now: datetime) -> LimitSeen | None:
        """The limit that a line says was met, None for other lines."""
        if self._rules.quotas and fits(line, self._rules.when):
            found = value_at(line, self._rules.quotas)
            self._quotas = found if isinstance(found, Mapping) else {}
        for rule in self._rules.lines:
            if fits(line, rule.when):
                return self._seen(rule, line, now)
        return None

    def _seen(self, rule: LimitLine, line: object, now: datetime) -> LimitSeen:
        at = moment_of(value_at(line, rule.at)) or now
        until, window = self._exhausted()
        if rule.until and (said := moment_of(value_at(line, rule.until))) is not None:
            until = said
        if until is None and rule.words:
            until = until_said(str(value_at(line, rule.words) or ""), at, self._zone)
        return LimitSeen(at, "file", until, name_of(value_at(line, rule.window)) if rule.window else window)

    def _exhausted(self) -> tuple[datetime | None, str | None]:
        """The latest reset of the windows that are used up, and which window that is."""
        resets: list[tuple[datetime, str | None]] = []
        for name, quota in self._quotas.items():
            used, until = value_at(quota, "used_percent"), moment_of(value_at(quota, "resets_at"))
            if isinstance(used, (int, float)) and used >= EXHAUSTED_PERCENT and until is not None:
                minutes = value_at(quota, "window_minutes")
                resets.append((until, _window(minutes) if isinstance(minutes, int) else name))
        return max(resets, key=lambda reset: reset[0], default=(None, None))


def _window(minutes: int) -> str:
    """A window's name by its length: `5h`, `7d`."""
    hours = minutes // 60
    return f"{hours // 24}d" if hours and hours % 24 == 0 else f"{hours}h" if hours else f"{minutes}m"
