"""Which files a line for a shell changes, as far as that can be told without running it (docs/protocol.md, Rules)."""

from __future__ import annotations

import os.path
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import islice, pairwise

from multi_agent_mcp.domain.shell import (
    KEYWORDS,
    UNHIDDEN,
    commands_in,
    is_sign,
    lines_in,
    options_in,
    places,
    words_in,
)

_DESCRIPTOR = re.compile(r"\d+-?|-")
_ALL = frozenset({"rm", "rmdir", "shred", "tee", "touch", "truncate", "unlink"})
"""Programs that change every file that they name."""
_INTO = frozenset({"cp", "install", "ln", "mv", "rsync", "scp"})
"""Programs that write the last file that they name, or into that directory, or into the one of `-t`."""
_OUTPUT = {
    **dict.fromkeys(("cc", "clang", "curl", "g++", "gcc", "ld", "sort"), ("-o", "--output")),
    "wget": ("-O", "--output-document"),
    "find": ("-fls", "-fprint", "-fprint0", "-fprintf"),
}
"""Programs, and their options that name a file to be written."""
_VALUES = {"install": "-m -o -g", "rsync": "-e", "shred": "-n -s", "touch": "-d -t -r", "truncate": "-s -r"}
"""Their options whose value is the next word, and no file."""
_NO_FILES = frozenset({"/dev/null", "/dev/stdout", "/dev/stderr", "/dev/tty", ""})
_PROGRAMS = _ALL | _INTO | _OUTPUT.keys() | {"dd", "sed", "perl"}
_PROGRAMS_MAX = 20
"""So many of them at most are looked at in one command."""
_IN_PLACE = re.compile(r"-[nErsuzpl0]*i.*|--in-place.*")


def written_by(command: str, is_directory: Callable[[str], bool] = lambda _: False) -> list[str]:
    """The files that a line for a shell writes, moves or removes by a redirection or a usual program, as far as they
    can be told, also in what another shell is given. `is_directory` says what is copied into, not over."""
    found = list[str]()
    for number, line in enumerate(lines_in(command)):
        words = words_in(line)
        found += (
            word.translate(UNHIDDEN)
            for sign, word in pairwise(words if number else _without_comparisons(words))
            if ">" in sign and is_sign(sign) and not sign.endswith("(")
            if not (sign.endswith("&") and _DESCRIPTOR.fullmatch(word)) and not is_sign(word)
        )
        for one in commands_in(line):
            programs = (place for place in places(one) if os.path.basename(one[place]) in _PROGRAMS)  # noqa: PTH119
            for place in islice(programs, _PROGRAMS_MAX):
                found += _changed_by(one[place:], is_directory)
    return [name for name in dict.fromkeys(found) if name not in _NO_FILES]


def _without_comparisons(words: Sequence[str]) -> Iterator[str]:
    """The words without those of `[[ a > b ]]` and `(( 1 > 2 ))`, in which nothing is redirected (bash(1))."""
    end, begins = "", True
    last = max((place for place, word in enumerate(words) if word == "]]"), default=-1)
    for place, word in enumerate(words):
        if end:
            end = "" if word == end else end
            continue
        if word == "[[" and begins and place < last:
            end = "]]"
        elif word.endswith("((") and _next_bracket(words, place + 1) == "))":
            end = "))"
        else:
            yield word
        begins = word in KEYWORDS or (is_sign(word) and not set(word) & set("<>"))


def _next_bracket(words: Sequence[str], start: int) -> str:
    """The first word from there on that has a round bracket; "" without one."""
    return next((word for word in islice(words, start, None) if set(word) & set("()")), "")


def _changed_by(words: Sequence[str], is_directory: Callable[[str], bool]) -> Iterator[str]:
    """The files that a program changes, by its words."""
    program, rest = os.path.basename(words[0]), words[1:]  # noqa: PTH119 - a word
    values = _VALUES.get(program, "").split()
    named = [
        word
        for before, word in pairwise(("", *rest))
        if not word.startswith("-") and before not in values and word not in (";", "+")  # the ends of `find -exec`
    ]
    if program in _ALL:
        yield from named
    elif program in _INTO:
        yield from _copied(program, rest, named, is_directory)
    elif program == "dd":
        yield from (word.removeprefix("of=") for word in rest if word.startswith("of="))
    elif program in ("sed", "perl") and any(map(_IN_PLACE.fullmatch, rest)):
        yield from _edited(rest, named)
    elif program == "find" and "-delete" in rest:
        yield rest[0]
    if program in _OUTPUT:
        wanted = _OUTPUT[program]
        yield from (value for option, value in options_in(rest) if option in wanted and value)
        yield from (after for word, after in pairwise(rest) if word in wanted and len(word) > 2)


def _copied(program: str, rest: Sequence[str], named: list[str], is_directory: Callable[[str], bool]) -> Iterator[str]:
    if program == "mv":
        yield from named[:-1]
    into = next((value for option, value in options_in(rest) if option in ("-t", "--target-directory")), None)
    if into is not None:
        sources = [word for word in named if word != into]
    elif len(named) > 1:
        *sources, into = named
    else:
        return
    if into.endswith("/") or len(sources) > 1 or is_directory(into):
        yield from (os.path.join(into, os.path.basename(source.rstrip("/"))) for source in sources)  # noqa: PTH118, PTH119
    else:
        yield into


def _edited(rest: Sequence[str], named: list[str]) -> Iterator[str]:
    """The files of `sed -i` and `perl -pi`: what is no option, nor the script, which is the first or behind `-e`."""
    scripts = [after for word, after in pairwise(rest) if re.fullmatch(r"-[a-zA-Z0]*[ef]|--expression|--file", word)]
    is_given = bool(scripts) or any(word.startswith(("--expression=", "--file=")) for word in rest)
    files = [word for word in named if word not in scripts]
    yield from files if is_given else files[1:]
