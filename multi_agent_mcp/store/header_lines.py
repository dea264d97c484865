"""A header whose lines are `key: value` as we write them, read without libyaml, which takes five times as long.

Only what cannot mean anything else is taken here: a short plain or single-quoted value on its line, an empty list or
mapping (YAML 1.2.2, 7.3, 7.4). Any other value is given to libyaml with the lines that belong to it, and if that is no
value of this key alone (an alias, a quote that a later line closes), libyaml reads the whole header.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

_KEY = r"(?!(?:null|true|false):)([a-z_]+):"
_UNPRINTABLE = r"\x00-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff"
_LINE = re.compile(rf"{_KEY} (?:'([^'{_UNPRINTABLE}]*)'|([^\W_][\w/@-]*(?: [\w/@-]+)*)|(\[\]|\{{\}}))(?:\n|\Z)")
_BLOCK = re.compile(rf"{_KEY}(?=[ \n]|\Z).*(?:\n|\Z)(?:[ -].*(?:\n|\Z)|\n)*")
_CONSTANTS = {
    **dict.fromkeys(("null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_NUMBER = re.compile("0|[1-9][0-9]{0,4299}")


def by_lines(text: str, whole: Callable[[str], Any]) -> Any:
    """The value of a YAML document, as `whole` returns it, which reads any."""
    found: dict[str, Any] = {}
    at, end = 0, len(text)
    while at < end:
        if (line := _LINE.match(text, at)) is not None:
            key, quoted, plain, _ = line.groups()
            found[key] = quoted if quoted is not None else _empty(line[4]) if plain is None else _plain(plain)
            at = line.end()
        elif (block := _BLOCK.match(text, at)) is not None and (value := _alone(block, whole)) is not None:
            found.update(value)
            at = block.end()
        else:
            return whole(text)
    return found or whole(text)


def _empty(written: str) -> Any:
    return [] if written == "[]" else {}


def _plain(written: str) -> Any:
    if written[0].isdecimal():
        return int(written) if _NUMBER.fullmatch(written) else written
    return _CONSTANTS.get(written, written)


def _alone(block: re.Match[str], whole: Callable[[str], Any]) -> dict[str, Any] | None:
    """The mapping of a key to the value in its lines, None if they mean something only with others."""
    try:
        value = whole(block[0])
    except Exception:  # noqa: BLE001 - the whole header will say what is wrong with it
        return None
    return value if isinstance(value, dict) and [*value] == [block[1]] else None
