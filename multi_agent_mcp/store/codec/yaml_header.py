"""Headers in YAML 1.2's idea of a plain scalar: how they are loaded and dumped without delay."""

from __future__ import annotations

import re
from collections.abc import Mapping
from sys import intern
from typing import Any

import yaml

_TEXT, _DISPUTED = "tag:yaml.org,2002:str", "tag:yaml.org,2002:disputed"
_ENDLESS_LINE = 2**31 - 1  # libyaml folds longer lines, and a folded line is not grep-able


class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """libyaml's safe loader with YAML 1.2's idea of a plain scalar: a subject `12:30` or `yes` that somebody wrote by
    hand without quotes is a text, not 750 or true."""


class Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    """libyaml's safe dumper without anchors: `&id001` in a task's history helps nobody. It quotes what either version
    of YAML would not take for a text: its own idea of a number is not the loader's. What the loader knows by its tag
    only (a date, an infinity in somebody's own key) is written with it."""

    def resolve(self, kind: type[yaml.Node], value: Any, implicit: Any) -> str:
        """What a plain value would be taken for: nothing at all where the two versions disagree."""
        tag: str = super().resolve(kind, value, implicit)
        if kind is not yaml.ScalarNode or not implicit[0] or tag == _TEXT:
            return tag
        ours = Loader.yaml_implicit_resolvers.get(value[:1], ())
        return tag if any(name == tag and form.match(value) for name, form in ours) else _DISPUTED

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002 - PyYAML asks this about every value
        return True


for _tag in ("omap", "pairs"):  # the lists of mappings that they are; as pairs they could not be written back
    Loader.add_constructor(f"tag:yaml.org,2002:{_tag}", Loader.construct_yaml_seq)

Loader.yaml_implicit_resolvers = {}
for _tag, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    # `0042` is a text: PyYAML would take it for octal. So is what has more digits than Python makes a number of.
    ("int", r"[-+]?(?:0|[1-9][0-9]{0,4299})", list("-+0123456789")),
    ("float", r"[-+]?[0-9]+\.[0-9]*(?:[eE][-+]?[0-9]+)?", list("-+0123456789")),
):
    for _side in (Loader, Dumper):
        _side.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"^(?:{_pattern})$"), _first)


_WORDS = re.compile(
    r"(?!(?:y|n|yes|no|on|off|true|false|null)\Z)"  # the words of either version are quoted
    r"(?=.{1,100}\Z)"  # a long key is written in another way
    r"[A-Za-z][A-Za-z0-9_-]*(?: [A-Za-z0-9_-]+)*"
    r"|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}",
    re.IGNORECASE | re.ASCII,
)
_SIGNATURE = re.compile(r"v1:[0-9a-f]{64}|v2:[0-9a-f]{128}")
_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", re.ASCII)


def dump(header: Mapping[str, Any]) -> str:
    """The header's lines, as PyYAML would write them (the tests compare the two).

    Where many send at once, a quarter of their time was PyYAML's way from a value to a word. What nearly every line
    holds (plain words, an id, a time, a signature, nothing, keys with such values) is written at once; only the others
    take that way.
    """
    if not header:
        return dump_slowly(header)
    return "\n".join(_quick(key, value) or dump_slowly({key: value}) for key, value in header.items())


def dump_slowly(header: Mapping[str, Any]) -> str:
    """As `dump`, by PyYAML alone."""
    text: str = yaml.dump(
        dict(header), Dumper=Dumper, default_flow_style=False, sort_keys=False, allow_unicode=True, width=_ENDLESS_LINE
    )
    return text.removesuffix("\n")


def _quick(key: str, value: Any) -> str | None:
    """A line that needs no thought; None for any other."""
    if _WORDS.fullmatch(key) is None:
        return None
    if value is None:
        return f"{key}: null"
    if isinstance(value, str):
        if _WORDS.fullmatch(value) or _SIGNATURE.fullmatch(value):
            return f"{key}: {value}"
        return f"{key}: '{value}'" if not value or _TIME.fullmatch(value) else None
    return _quick_mapping(key, value) if isinstance(value, dict) else None


def _quick_mapping(key: str, value: Mapping[Any, Any]) -> str | None:
    if not value:
        return f"{key}: {{}}"
    lines = [_quick(name, item) if isinstance(name, str) else None for name, item in value.items()]
    if any(line is None or "\n" in line for line in lines):
        return None
    return "\n".join([f"{key}:", *(f"  {line}" for line in lines)])


_LINES = re.compile(
    r"^(  )?((?!(?i:true|false|null):)[A-Za-z][A-Za-z0-9_]{0,60}):"
    r"(?: (?:((?!(?i:true|false|null)$)[^\W\d_][\w-]*(?: [\w-]+)*"
    r"|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|v1:[0-9a-f]{64}|v2:[0-9a-f]{128})"
    r"|'([\x20-&(-~]*')|(null|\{\}|0|[1-9][0-9]{0,17})))?$",
    re.MULTILINE,
)
"""Lines that stand for themselves, in any header: an indent, a key, and a plain text, a quoted one (with the quote that
ends it) or another value; one without any begins a mapping."""
_LONGEST_QUICK = 4_000
REPEATED_CHARACTERS = 20
"""Words of so many characters are names and kinds, which thousands of files repeat: each is kept in memory once."""


def load(header: str) -> Any:
    """What a header says. Raises what PyYAML raises."""
    return yaml.load(header, Loader=Loader)  # noqa: S506 - it is a safe loader


def load_quickly(header: str) -> dict[str, Any] | None:
    """As `load` (the tests compare the two), where every line is one that `dump` writes without PyYAML, at most one
    mapping deep; None for any other header. Nearly all of the time it took to read a file was PyYAML's."""
    header = header.strip("\n")
    if len(header) > _LONGEST_QUICK or len(lines := _LINES.findall(header)) != header.count("\n") + 1:
        return None
    found: dict[str, Any] = {}
    inner: dict[str, Any] | None = None
    for indent, key, plain, quoted, other in lines:
        begins_mapping = not (plain or quoted or other)
        if (inner is None or begins_mapping) if indent else inner == {}:
            return None
        value = {} if begins_mapping else _value(plain, quoted, other)
        if indent and inner is not None:
            inner[key] = value
        else:
            found[key] = value
            inner = value if begins_mapping else None
    return None if inner == {} else found


def _value(plain: str, quoted: str, other: str) -> Any:
    if plain:
        return intern(plain) if len(plain) <= REPEATED_CHARACTERS and " " not in plain else plain
    if quoted:
        return quoted[:-1]
    return None if other == "null" else {} if other == "{}" else int(other)
