"""YAML headers with the plain scalars of YAML 1.2, loaded and dumped quickly."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from itertools import chain
from sys import intern
from typing import Any

import yaml

_TEXT, _DISPUTED = "tag:yaml.org,2002:str", "tag:yaml.org,2002:disputed"
_ENDLESS_LINE = 2**31 - 1  # libyaml folds longer lines, and a folded line is not grep-able


class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """libyaml's safe loader with YAML 1.2's plain scalars: a subject `12:30` or `yes`, written by hand without quotes,
    is a string, not 750 or true."""


class Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    """libyaml's safe dumper without anchors, as `&id001` is useless in a task's history. It quotes strings that either
    version of YAML would not read as a string: its own rules for numbers are not the loader's. Values that the loader
    recognises only by tag (a date, an infinity in a user's own key) are written with the tag."""

    def resolve(self, kind: type[yaml.Node], value: Any, implicit: Any) -> str:
        """Returns the tag that a plain value would get; an unknown one if the two versions disagree."""
        tag: str = super().resolve(kind, value, implicit)
        if kind is not yaml.ScalarNode or not implicit[0] or tag == _TEXT:
            return tag
        ours = Loader.yaml_implicit_resolvers.get(value[:1], ())
        return tag if any(name == tag and form.match(value) for name, form in ours) else _DISPUTED

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - PyYAML asks this about every value
        return True


for _tag in ("omap", "pairs"):  # read as lists of mappings; pairs could not be written back
    Loader.add_constructor(f"tag:yaml.org,2002:{_tag}", Loader.construct_yaml_seq)

Loader.yaml_implicit_resolvers = {}
for _tag, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    # `0042` is a string: PyYAML would read it as octal. So are numbers with more digits than Python converts.
    ("int", r"[-+]?(?:0|[1-9][0-9]{0,4299})", list("-+0123456789")),
    ("float", r"[-+]?[0-9]+\.[0-9]*(?:[eE][-+]?[0-9]+)?", list("-+0123456789")),
):
    for _side in (Loader, Dumper):
        _side.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"^(?:{_pattern})$"), _first)


_WORDS = re.compile(
    r"(?!(?:y|n|yes|no|on|off|true|false|null)\Z)"  # the words of either version are quoted
    r"(?=.{1,100}\Z)"  # YAML writes long keys in another form
    r"[A-Za-z][A-Za-z0-9_-]*(?: [A-Za-z0-9_-]+)*"
    r"|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}",
    re.IGNORECASE | re.ASCII,
)
_CODE = re.compile(r"v1:[0-9a-f]{64}|v2:[0-9a-f]{128}|[1-9][0-9]{0,17} [0-9a-f]{8}")
"""A signature, or the mark of the hub."""
_DEEPEST_QUICK = 3
_LARGEST_QUICK = 10**15
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", re.ASCII)


def dump(header: Mapping[str, Any]) -> str:
    """Returns the header's lines, as PyYAML would write them (the tests compare the two).

    With many senders, PyYAML took a quarter of their time. Nearly all lines (plain words, an id, a time, a signature,
    an empty value, keys with such values) are written directly; only the others by PyYAML.
    """
    if not header:
        return dump_slowly(header)
    lines = (_quick_pair(key, value, 0) or [dump_slowly({key: value})] for key, value in header.items())
    return "\n".join(chain.from_iterable(lines))


def dump_slowly(header: Mapping[str, Any]) -> str:
    """Returns the same lines as `dump`, by PyYAML alone."""
    text: str = yaml.dump(
        dict(header), Dumper=Dumper, default_flow_style=False, sort_keys=False, allow_unicode=True, width=_ENDLESS_LINE
    )
    return text.removesuffix("\n")


def _quick_lines(value: Any, depth: int = 0) -> list[str] | None:
    """Returns the lines of a mapping or list that can be written without PyYAML; None for any other."""
    if depth > _DEEPEST_QUICK or not isinstance(value, (dict, list)):
        return None
    lines: list[str] = []
    for key, item in value.items() if isinstance(value, dict) else ((None, item) for item in value):
        added = _quick_list_item(item, depth) if isinstance(value, list) else _quick_pair(key, item, depth)
        if added is None:
            return None
        lines += added
    return lines


def _quick_pair(key: Any, value: Any, depth: int) -> list[str] | None:
    if not isinstance(key, str) or not _is_plain(key):
        return None
    if (word := _quick_word(value)) is not None:
        return [f"{key}: {word}"]
    if (inner := _quick_lines(value, depth + 1)) is None:
        return None
    margin = "  " if isinstance(value, dict) else ""
    return [f"{key}:", *(f"{margin}{line}" for line in inner)]


@lru_cache(maxsize=256)
def _is_plain(key: str) -> bool:
    return _WORDS.fullmatch(key) is not None


def _quick_list_item(value: Any, depth: int) -> list[str] | None:
    word = _quick_word(value)
    inner = _quick_lines(value, depth + 1) if word is None else [word]
    return None if inner is None else [f"- {inner[0]}", *(f"  {line}" for line in inner[1:])]


def _quick_word(value: Any) -> str | None:
    if isinstance(value, str):
        if _WORDS.fullmatch(value) or _CODE.fullmatch(value):
            return value
        return f"'{value}'" if not value or _TIME.fullmatch(value) else None
    if type(value) is int:
        return str(value) if abs(value) < _LARGEST_QUICK else None
    if value is None:
        return "null"
    return None if value or not isinstance(value, (dict, list)) else "{}" if isinstance(value, dict) else "[]"


_VALUE = (
    r"(?:(?P<null>null)|(?P<empty>\{\})|(?P<none>\[\])|(?P<number>0|-?[1-9][0-9]{0,17})"
    r"|(?!(?i:true|false|null)$)(?P<words>[^\W\d_][\w-]*(?: [\w-]+)*)"
    r"|(?P<code>[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|v1:[0-9a-f]{64}|v2:[0-9a-f]{128}"
    r"|[1-9][0-9]{0,17} [0-9a-f]{8})"
    r"|'(?P<quoted>[\x20-&(-~]*)')"
)
_KEY = r"(?P<key>(?!(?i:true|false|null):)[A-Za-z][A-Za-z0-9_]{0,60}):"
_LINE = re.compile(rf"{_KEY}(?: {_VALUE})?")
"""A line that can be read by itself, in any header; without a value it begins a mapping or a list."""
_FACT = re.compile(
    rf"{_KEY} (?:'(?P<time>[0-9T:.Z+-]*)'"
    r"|(?P<code>[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|v2:[0-9a-f]{128}))"
)
"""A line that differs in every message: its id, its times, its signature. `_LINE` takes twice as long to match it."""
_WORD = re.compile(_VALUE)
"""A value in a list that can be read by itself."""
_LONGEST_QUICK = 16_000
REPEATED_CHARACTERS = 20
"""The length up to which words, mostly names and kinds repeated in thousands of files, are interned."""


def load(header: str) -> Any:
    """Returns a header's content, parsed by PyYAML; raises its errors."""
    return yaml.load(header, Loader=Loader)  # noqa: S506 - it is a safe loader


def load_quickly(header: str) -> dict[str, Any] | None:
    """Returns the same as `load` (the tests compare the two) if `dump` would write every line without PyYAML, else
    None. PyYAML took nearly all of the time of reading a file."""
    if len(header) > _LONGEST_QUICK:
        return None
    plain, known, found = header.strip("\n").split("\n"), _KNOWN.get, {}
    for line in plain:  # without nesting, as in nearly all mail
        pair = known(line) or _pair(line)
        if pair is None:
            break
        found[pair[0]] = pair[1]
    else:
        return found
    lines = [(len(line) - len(line.lstrip(" ")), line.lstrip(" ")) for line in plain]
    lines.append((-1, ""))
    lines.reverse()  # they are taken from the end
    try:
        nested = _mapping(lines, 0)
    except _NotQuick:
        return None
    return nested if len(lines) == 1 else None


class _NotQuick(Exception):
    """Raised for a line that `load_quickly` cannot read."""


_Lines = list[tuple[int, str]]
"""The remaining lines, the next one last: indentation and text of each."""

_KNOWN: dict[str, tuple[str, Any]] = {}
"""A cache of lines that thousands of files repeat, as key and value, which are never changed."""
_KNOWN_MAX = 4096
_NOTHINGS = frozenset({"null", "empty", "none"})


def _pair(line: str) -> tuple[str, Any] | None:
    """Returns key and value of a line that can be read by itself; None for any other."""
    if (fact := _FACT.fullmatch(line)) is not None:
        return fact["key"], fact[fact.lastgroup or "time"]
    match = _LINE.fullmatch(line)
    if match is None or match.lastgroup == "key":
        return None
    pair = match["key"], _value(match)
    if match.lastgroup in _NOTHINGS or (match.lastgroup == "words" and " " not in pair[1]):
        if len(_KNOWN) >= _KNOWN_MAX:
            _KNOWN.clear()
        _KNOWN[line] = pair
    return pair


def _mapping(lines: _Lines, margin: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    while lines[-1][0] == margin and not lines[-1][1].startswith("- "):
        _, line = lines.pop()
        match = _LINE.fullmatch(line)
        if match is None:
            raise _NotQuick
        found[match["key"]] = _value(match) if match.lastgroup != "key" else _inner(lines, margin)
    return found


def _inner(lines: _Lines, margin: int) -> Any:
    """Reads the lines after a key without a value: a list at the same margin, or an indented mapping."""
    indented, line = lines[-1]
    if indented == margin and line.startswith("- "):
        return _list(lines, margin)
    if indented != margin + 2 or line.startswith("- ") or margin > 2 * _DEEPEST_QUICK:
        raise _NotQuick
    return _mapping(lines, indented)


def _list(lines: _Lines, margin: int) -> list[Any]:
    found: list[Any] = []
    while lines[-1][0] == margin and lines[-1][1].startswith("- "):
        item = lines.pop()[1][2:]
        if (match := _WORD.fullmatch(item)) is not None:
            found.append(_value(match))
        elif _LINE.fullmatch(item) is not None and margin <= 2 * _DEEPEST_QUICK:
            lines.append((margin + 2, item))
            found.append(_mapping(lines, margin + 2))
        else:
            raise _NotQuick
    return found


def _value(match: re.Match[str]) -> Any:
    """Returns the value by the group of `_VALUE` that has matched."""
    kind = match.lastgroup or ""
    text: str = match[kind]
    if kind == "words":
        return intern(text) if len(text) <= REPEATED_CHARACTERS and " " not in text else text
    if kind in ("code", "quoted"):
        return text
    return int(text) if kind == "number" else {"null": None, "empty": {}, "none": []}[kind]
