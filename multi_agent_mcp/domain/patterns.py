"""Patterns of files, those of gitignore(5), relative to the working tree (docs/protocol.md, Reservations).

A pattern becomes a regular expression that never goes back behind a wildcard: of several places at which the part after
one fits, the first is as good as any other, as what follows may be anywhere behind it. So matching costs at most the
product of both lengths, however many wildcards there are. Whether two patterns can match the same file is decided
without looking at any file, so that it is the same on every machine.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from multi_agent_mcp.domain.matching import composed, matches
from multi_agent_mcp.errors import InvalidArguments

PATTERNS_MAX, PATTERN_CHARACTERS = 50, 300
WILD_CHARACTERS = 2_000
"""Of all patterns of a list that have wildcards: two lists are compared in time proportional to the product of both."""
EXCEPTION = "!"
_ANYTHING = r"[\s\S]"
_BRACKET = re.compile(r"\[(?P<not>[!^]?)(?P<set>\]?[^\]]*)\]", re.DOTALL)
_RANGE = re.compile(r"(.)-(.)|(.)", re.DOTALL)


class PatternError(ValueError):
    """Raised for a pattern that matches nothing: a bracket that is not closed, a range that runs backwards, a backslash
    at the end."""


def patterns_of(text: str) -> list[str]:
    """The patterns of a file like .gitignore: one on each line, without comments and blanks at the ends."""
    lines = (_without_end(line.rstrip("\r")) for line in text.split("\n"))
    return [line for line in lines if line and not line.startswith("#")]


def _without_end(line: str) -> str:
    """The line without the blanks at its end; a backslash before the first of them keeps that one."""
    kept = line.rstrip(" ")
    is_escaped = (len(kept) - len(kept.rstrip("\\"))) % 2 == 1
    return line[: len(kept) + is_escaped]


def matcher(patterns: Iterable[str]) -> Callable[[str], bool]:
    """A function that tells whether the patterns match a path relative to the working tree."""
    found = expressions(patterns)
    return lambda path: matches(found, path)


def expressions(patterns: Iterable[str]) -> list[tuple[bool, str]]:
    """The patterns as regular expressions, each with whether it includes what it matches (see `matches`). One that
    cannot be read matches only the file of that very name."""
    found = []
    for pattern in patterns:
        text = composed(pattern.removeprefix(EXCEPTION))
        either = [*_translated(text, _parts_or_none), *(_translated(text, _letters) if _may_be_a_name(text) else ())]
        if either:
            found.append((not pattern.startswith(EXCEPTION), "|".join(f"(?:{one})" for one in either)))
    return found


def is_readable(pattern: str) -> bool:
    """Whether the pattern can match anything but the file of that very name."""
    try:
        for segment in pattern.removeprefix(EXCEPTION).split("/"):
            _parts(segment)
    except PatternError:
        return False
    return True


def is_meant(pattern: str) -> bool:
    """Whether the pattern can be read, or has nothing that is only a pattern's, so that it is a file's name."""
    return is_readable(pattern) or not re.search(r"[*?]|\[[!^]", pattern)


def _may_be_a_name(text: str) -> bool:
    """Whether a pattern that is a file's name would not match it: `app/[slug]/page.tsx`."""
    return "[" in text or "\\" in text


Translator = Callable[[str], "list[str] | None"]


def _translated(text: str, parts_of: Translator) -> Iterator[str]:
    """The expression for a pattern, by the segments of its path; `**` stands for any number of them. `parts_of` gives a
    segment's parts between wildcards, or None if it cannot be read."""
    segments = text.split("/")
    is_directory = not segments[-1]
    if not any(segments):
        return
    if not segments[0]:
        del segments[0]
    elif len(segments) == 1 or (len(segments) == 2 and is_directory):
        segments.insert(0, _MANY)
    inside = is_directory or segments[-1] == _MANY
    body = segments[:-1] if inside else segments
    end = "/" if is_directory else f"/{_ANYTHING}*" if inside else r"(?=/|\Z)"
    if not [segment for segment in body if segment != _MANY]:
        yield r"[^/]+/" if is_directory else f"{_ANYTHING}+"
        return
    if segments == [_MANY, "*"]:
        yield f"{_ANYTHING}+"
        return
    chunks = [[*map(parts_of, chunk)] for chunk in _chunks(body)]
    if all(None not in chunk for chunk in chunks):
        yield _joined([[part for part in chunk if part is not None] for chunk in chunks], end)


def _chunks(segments: Sequence[str]) -> list[list[str]]:
    """The segments between `**`; the first chunk, which may be empty, begins at the top."""
    found: list[list[str]] = [[]]
    for segment in segments:
        if segment == _MANY:
            found.append([])
        else:
            found[-1].append(segment)
    return [found[0], *filter(None, found[1:])]


def _joined(chunks: Sequence[Sequence[Sequence[str]]], end: str) -> str:
    """One expression of chunks: each as near to the top as it fits, but the last one as near to the file."""
    texts = ["/".join(map(_segment, chunk)) for chunk in chunks]
    whole = [f"(?>{texts[0]})" if texts[0] else ""]
    for number, text in enumerate(texts[1:], start=1):
        slash = "/" if any(texts[:number]) else ""
        is_last = number == len(texts) - 1
        one = f"(?:[^/]++/)*{text}" if is_last else rf"(?>(?:[^/]++/)*?{text}(?=/|\Z))"
        whole.append(slash + one)
    return "".join(whole) + end


def _segment(parts: Sequence[str]) -> str:
    """The expression for one segment, given the parts between its wildcards."""
    first, *rest = parts
    if not rest:
        return first
    if not any(parts):
        return "[^/]+"
    *between, last = rest
    return first + "".join(f"(?>[^/]*?{part})" for part in between if part) + rf"[^/]*{last}(?=/|\Z)"


def _letters(segment: str) -> list[str]:
    return [re.escape(segment)]


def _parts_or_none(segment: str) -> list[str] | None:
    try:
        return _parts(segment)
    except PatternError:
        return None


def _parts(segment: str) -> list[str]:
    """The parts of a segment between its `*`, as expressions. Raises `PatternError`."""
    parts, place = [""], 0
    while place < len(segment):
        letter = segment[place]
        place += 1
        if letter == "*":
            parts.append("")
        elif letter == "?":
            parts[-1] += "[^/]"
        elif letter == "[":
            if (found := _BRACKET.match(segment, place - 1)) is None:
                raise PatternError(segment)
            parts[-1] += _set(found)
            place = found.end()
        elif letter == "\\":
            if place == len(segment):
                raise PatternError(segment)
            parts[-1] += re.escape(segment[place])
            place += 1
        else:
            parts[-1] += re.escape(letter)
    return parts


def _set(found: re.Match[str]) -> str:
    ranges = _RANGE.findall(found["set"])
    if not ranges or any(first > last for first, last, _ in ranges):
        raise PatternError(found[0])
    inside = "".join(
        f"{re.escape(first)}-{re.escape(last)}" if first else re.escape(single) for first, last, single in ranges
    )
    return f"(?!/)[{'^' if found['not'] else ''}{inside}]"


# What an agent or a person asks for.


def parsed_patterns(
    patterns: Sequence[str],
    tree: str | None = None,
    exists: Callable[[str], bool] = lambda _: False,
    base: str = "",
) -> tuple[str, ...]:
    """The patterns without blanks around them and repetitions; absolute paths below `tree` become relative to it, and
    so do those of somebody who works in its directory `base`. What
    `exists` there, or is no pattern, is the file of that name, whatever letters it has. Raises `InvalidArguments` for
    patterns that lead out of the working tree, match nothing or cannot be read."""
    found = tuple(dict.fromkeys(_parsed(pattern, tree, exists, base) for pattern in patterns))
    wild = sum(len(pattern) for pattern in found if _WILD.search(pattern))
    if not found or len(found) > PATTERNS_MAX or wild > WILD_CHARACTERS:
        raise InvalidArguments("reserve_count", most=PATTERNS_MAX, characters=WILD_CHARACTERS)
    if all(pattern.startswith(EXCEPTION) for pattern in found):
        raise _bad(found[0])
    return found


def _parsed(given: str, tree: str | None, exists: Callable[[str], bool], base: str) -> str:
    relative = _relative(given, tree)
    if base and exists(f"{base}/{relative}"):
        relative = f"{base}/{relative}"
    is_file = exists(relative)
    pattern = relative if is_file else _below(_relative(given.strip(), tree), base, exists)
    segments = pattern.removeprefix(EXCEPTION).split("/")
    is_empty = not any(segments) or (pattern.startswith("#") and tree is None)
    if is_empty or len(pattern) > PATTERN_CHARACTERS or ".." in segments or not pattern.isprintable():
        raise _bad(pattern)
    if pattern.startswith("#") or (is_file and pattern.startswith(EXCEPTION)):
        pattern = f"\\{pattern}"
    if not is_file and not is_meant(pattern):
        raise _bad(pattern)
    return pattern


def _below(pattern: str, base: str, exists: Callable[[str], bool]) -> str:
    """The pattern as somebody means it who works in `base`, unless its first name is at the top and not there."""
    plain = pattern.removeprefix(EXCEPTION)
    first, *more = plain.rstrip("/").split("/")
    if not base or plain.startswith("/") or (exists(first) and not exists(f"{base}/{first}")):
        return pattern
    anywhere = "" if more or exists(f"{base}/{first}") else "**/"
    return f"{pattern[: len(pattern) - len(plain)]}{_WILD.sub(_escaped, base)}/{anywhere}{plain}"


def _escaped(found: re.Match[str]) -> str:
    return f"\\{found[0]}"


def _bad(pattern: str) -> InvalidArguments:
    return InvalidArguments("bad_pattern", pattern=f"{pattern!r:.100}", most=PATTERN_CHARACTERS)


def _relative(pattern: str, tree: str | None) -> str:
    if tree is not None and (pattern == tree or pattern.startswith(f"{tree}/")):
        return pattern.removeprefix(tree)
    return pattern.removeprefix("./")


# Whether two lists of patterns can match the same file: the intersection of their languages is not empty.

_MANY = "**"
_WILD = re.compile(r"[*?\[\\]")
_CHARACTER = re.compile(
    r"\\(?P<escaped>.)|\[(?P<not>[!^]?)(?P<set>\]?[^\]]*)\]|(?P<star>\*+)|(?P<any>[?])|(?P<plain>.)", re.DOTALL
)

RANGE_MAX = 1_000
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


def can_be_below(patterns: Sequence[str], path: str) -> bool:
    """Whether the patterns can match a file below this path."""
    return can_overlap(patterns, [f"/{_WILD.sub(_escaped, path)}/"])


def _positive(patterns: Sequence[str]) -> list[str]:
    return [pattern for pattern in patterns if not pattern.startswith("!")]


def _accepts(patterns: Sequence[str], pattern: str) -> bool:
    """Whether the exceptions among the patterns leave the file that `pattern` names, if it names one."""
    if len(_positive(patterns)) == len(patterns) or not _names_a_file(pattern):
        return True
    return any(map(matcher(patterns), _named_by(pattern)))


def _names_a_file(pattern: str) -> bool:
    return not re.search("[*?]", _BRACKET.sub("", pattern)) and not pattern.endswith("/")


def _named_by(pattern: str) -> tuple[str, str]:
    """The files that a pattern without wildcards may name: with its letters, and without its backslashes."""
    return pattern.lstrip("/"), re.sub(r"\\(.)", r"\1", pattern.lstrip("/"))


def _as_read(pattern: str) -> str:
    """The pattern, or the name that it is if it cannot be read."""
    return pattern if is_readable(pattern) else re.sub(r"([*?\[\\])", r"\\\1", pattern)


def _meet(one: str, other: str) -> bool:
    one, other = _as_read(one), _as_read(other)
    both = ((one, other), (other, one))
    named = any(_names_a_file(path) and any(map(matcher([by]), _named_by(path))) for path, by in both)
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
    if any(first and ord(last) - ord(first) > RANGE_MAX for first, last, _ in ranges):
        return True, frozenset()  # nearly everything: rather one conflict too many
    members = {chr(code) for first, last, _ in ranges if first for code in range(ord(first), ord(last) + 1)}
    return bool(found["not"]), frozenset(
        members | {single for _, _, single in ranges if single} or {""}
    )  # never `_STAR`


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
