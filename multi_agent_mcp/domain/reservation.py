"""Reservations: files that an agent has to itself for a while, and patterns of files (docs/protocol.md, Reservations,
Edits)."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, ClassVar, TypeVar

from multi_agent_mcp.domain.entity import EPOCH, Identified
from multi_agent_mcp.domain.notification import Notification, derived_id
from multi_agent_mcp.errors import InvalidArguments

RESERVATION_CONFLICT, RESERVATION_ENDED = "reservation_conflict", "reservation_ended"
CLAIMS = "rsvs.open"
"""The key of the open reservations on a hub, where they are enforced: each one is decided by replacing that value."""
RELEASED, TASK_ENDED, HOLDER_GONE, EXPIRED = "released", "task_ended", "holder_gone", "expired"


@dataclass(frozen=True, kw_only=True)
class Reservation(Identified):
    """A reservation. `released_at` is when it ended, `ended` why. `session_id` is the agent session that made it; None
    for one that a person made by a command. `asked_by` are the agents to whom it was named as a conflict."""

    LEFT_OUT: ClassVar[frozenset[str]] = frozenset({"session_id", "asked_by", "ended"})

    id: str
    agent_id: str = ""
    task_id: str | None = None
    patterns: tuple[str, ...] = ()
    reason: str | None = None
    created_at: datetime = EPOCH
    expires_at: datetime | None = None
    released_at: datetime | None = None
    session_id: str | None = None
    asked_by: tuple[str, ...] | None = None
    ended: str | None = None

    @property
    def is_open(self) -> bool:
        return self.released_at is None

    def has_expired(self, at: datetime) -> bool:
        return self.expires_at is not None and at >= self.expires_at

    def end(self, at: datetime, why: str) -> Reservation:
        """The reservation after its end; the first end counts."""
        return replace(self, released_at=at, ended=why) if self.is_open else self

    def asked_for_by(self, agent_id: str) -> Reservation:
        known = self.asked_by or ()
        return self if agent_id in known or not self.is_open else replace(self, asked_by=(*known, agent_id))

    def overlaps(self, other: Reservation) -> bool:
        """Whether both can match the same file."""
        return can_overlap(self.patterns, other.patterns)


def reservation_notice(
    action: str, subject: Reservation, target_id: str, by: str | None, at: datetime, reason: str, *cause: str
) -> Notification:
    """A notification about a reservation, without its text, one for each cause and target."""
    return Notification(
        id=derived_id(action, subject.id, target_id, *cause),
        target_agent_id=target_id,
        target_purpose=None,
        type="status_change",
        action=action,
        task_id=subject.task_id if subject.agent_id == target_id else None,
        created_at=at,
        sender_id=by,
        reason=reason,
    )


# Files that several agents edit (docs/protocol.md, Edits).

EDIT_OVERLAP = "edit_overlap"


@dataclass(frozen=True)
class FileEdit:
    """An edit of one file by an agent, while it worked on a task (None: on none)."""

    path: str
    repository: str | None
    agent_id: str
    task_id: str | None
    at: datetime


def episode(edits: Sequence[FileEdit], window: timedelta) -> list[FileEdit]:
    """The edits of one file that belong together with the last one, oldest first: without a gap of `window`."""
    ordered = sorted(edits, key=lambda edit: (edit.at, edit.agent_id))
    for index in range(len(ordered) - 1, 0, -1):
        if ordered[index].at - ordered[index - 1].at > window:
            return ordered[index:]
    return ordered


def overlap_notice(of: Sequence[FileEdit], target: FileEdit, other_id: str, reason: str) -> Notification:
    """The notification of an agent that another one edits the same file in this episode, without its text."""
    first, last = of[0], of[-1]
    return Notification(
        id=derived_id(EDIT_OVERLAP, first.repository, first.path, first.at, first.agent_id, target.agent_id),
        target_agent_id=target.agent_id,
        target_purpose=None,
        type="status_change",
        action=EDIT_OVERLAP,
        task_id=target.task_id,
        created_at=last.at,
        sender_id=other_id,
        reason=reason,
    )


# Patterns of files, those of gitignore(5), relative to the working tree. Which files they match is decided by
# `pathspec`; whether two lists of patterns can match the same file is decided here, without looking at any file, so
# that it is the same on every machine.

PATTERNS_MAX, PATTERN_CHARACTERS = 50, 300


def matcher(patterns: Sequence[str]) -> Callable[[str], bool]:
    """A function that tells whether the patterns match a path relative to the working tree."""
    matches: Callable[[str], bool] = _spec(patterns).match_file
    return matches


def expressions(patterns: Sequence[str]) -> list[tuple[bool, str]]:
    """The patterns as regular expressions for `re.match`, each with whether it includes what it matches; the last that
    matches a path decides."""
    return [(bool(pattern.include), pattern.regex.pattern) for pattern in _spec(patterns).patterns if pattern.regex]


def parsed_patterns(patterns: Sequence[str], tree: str | None = None) -> tuple[str, ...]:
    """The patterns without blanks around them and repetitions; absolute paths below `tree` become relative to it.
    Raises `InvalidArguments` for patterns that lead out of
    the working tree or match nothing."""
    found = tuple(dict.fromkeys(_relative(pattern.strip(), tree) for pattern in patterns))
    if not found or len(found) > PATTERNS_MAX:
        raise InvalidArguments("reserve_count", most=PATTERNS_MAX)
    for pattern in found:
        segments = pattern.removeprefix("!").split("/")
        is_empty = not any(segments) or pattern.startswith("#")
        if is_empty or len(pattern) > PATTERN_CHARACTERS or ".." in segments or not pattern.isprintable():
            raise InvalidArguments("bad_pattern", pattern=f"{pattern!r:.100}", most=PATTERN_CHARACTERS)
    try:
        _spec(found)
    except ValueError as error:
        raise InvalidArguments("bad_pattern", pattern=f"{found!r:.100}", most=PATTERN_CHARACTERS) from error
    if all(pattern.startswith("!") for pattern in found):
        raise InvalidArguments("bad_pattern", pattern=f"{found[0]!r:.100}", most=PATTERN_CHARACTERS)
    return found


def _relative(pattern: str, tree: str | None) -> str:
    if tree is not None and (pattern == tree or pattern.startswith(f"{tree}/")):
        return pattern.removeprefix(tree)
    return pattern.removeprefix("./")


def _spec(patterns: Sequence[str]) -> Any:
    from pathspec import GitIgnoreSpec  # it takes a tenth of a second to import

    return GitIgnoreSpec.from_lines(patterns)


# Whether two lists of patterns can match the same file: the intersection of their languages is not empty.

_MANY = "**"
_WILD = re.compile(r"[*?\[\\]")
_CHARACTER = re.compile(
    r"\\(?P<escaped>.)|\[(?P<not>[!^]?)(?P<set>\]?[^\]]*)\]|(?P<star>\*+)|(?P<any>[?])|(?P<plain>.)", re.DOTALL
)
_RANGE = re.compile(r"(.)-(.)|(.)", re.DOTALL)

T = TypeVar("T")
_Set = tuple[bool, frozenset[str]]
"""A set of characters, and whether it is all but these."""
_STAR: _Set = (False, frozenset())


def can_overlap(some: Sequence[str], others: Sequence[str]) -> bool:
    """Whether both lists match the same file: that which one of their patterns names, or one that can exist. A bare
    name (`src/`, `README.md`) counts as one at the top, else any two names would overlap in `src/README.md`. Exceptions
    (`!x`) count only for files that a pattern names."""
    return any(
        _meet(one, other) and _accepts(some, other) and _accepts(others, one)
        for one in _positive(some)
        for other in _positive(others)
    )


def _positive(patterns: Sequence[str]) -> list[str]:
    return [pattern for pattern in patterns if not pattern.startswith("!")]


def _accepts(patterns: Sequence[str], pattern: str) -> bool:
    """Whether the exceptions among the patterns leave the file that `pattern` names, if it names one."""
    if len(_positive(patterns)) == len(patterns) or not _names_a_file(pattern):
        return True
    return matcher(patterns)(pattern.lstrip("/"))


def _names_a_file(pattern: str) -> bool:
    return not _WILD.search(pattern) and not pattern.endswith("/")


def _meet(one: str, other: str) -> bool:
    named = any(_names_a_file(path) and matcher([by])(path.lstrip("/")) for path, by in ((one, other), (other, one)))
    return named or _intersect(_segments(one, other), _segments(other, one), _MANY, _segments_meet)


def _segments(pattern: str, beside: str) -> tuple[str, ...]:
    """The pattern by directories; `**` stands for any number of them. A directory's name stands for what is in it, too,
    but one with wildcards (`*.py`) is a file's, and so is one like `a.py`, unless it is a directory's in the pattern
    `beside`."""
    parts = pattern.strip("/").split("/")
    is_bare = "/" not in pattern.rstrip("/")
    if is_bare and _WILD.search(pattern):
        parts.insert(0, _MANY)
    if parts[-1] == _MANY:
        return (*parts[:-1], "*", _MANY)
    if pattern.endswith("/"):
        return (*parts, "*", _MANY)
    has_ending = "." in parts[-1][1:] and parts[-1] not in beside.strip("/").split("/")[:-1]
    is_file = parts[-1] != "*" if _WILD.search(parts[-1]) else has_ending
    return tuple(parts) if is_file else (*parts, _MANY)


def _segments_meet(one: str, other: str) -> bool:
    if not (_WILD.search(one) or _WILD.search(other)):
        return one == other
    return _intersect(_characters(one), _characters(other), _STAR, _sets_meet)


def _characters(segment: str) -> tuple[_Set, ...]:
    return tuple(map(_set_of, _CHARACTER.finditer(segment)))


def _set_of(found: re.Match[str]) -> _Set:
    if found["star"]:
        return _STAR
    if found["any"]:
        return True, frozenset()
    if found["set"] is None:
        return False, frozenset(found["escaped"] or found["plain"])
    ranges = _RANGE.findall(found["set"])
    members = {chr(code) for first, last, _ in ranges if first for code in range(ord(first), ord(last) + 1)}
    return bool(found["not"]), frozenset(members | {single for _, _, single in ranges if single})


def _sets_meet(one: _Set, other: _Set) -> bool:
    if one[0] and other[0]:
        return True  # nobody excludes all characters
    if one[0] or other[0]:
        excluded, included = (one[1], other[1]) if one[0] else (other[1], one[1])
        return bool(included - excluded)
    return not one[1].isdisjoint(other[1])


def _intersect(one: Sequence[T], other: Sequence[T], many: T, meet: Callable[[T, T], bool]) -> bool:
    """Whether two sequences can stand for the same one, where `many` stands for any number of any items: whether the
    end is reached in the product of the two as automata."""
    reached, seen = [(0, 0)], set[tuple[int, int]]()
    while reached:
        place = first, second = reached.pop()
        if place in seen:
            continue
        seen.add(place)
        if first == len(one) and second == len(other):
            return True
        left = one[first] if first < len(one) else None
        right = other[second] if second < len(other) else None
        if left == many:
            reached += [(first + 1, second), *([(first, second + 1)] if right is not None else [])]
        if right == many:
            reached += [(first, second + 1), *([(first + 1, second)] if left is not None else [])]
        if left is not None and right is not None and many not in (left, right) and meet(left, right):
            reached.append((first + 1, second + 1))
    return False
