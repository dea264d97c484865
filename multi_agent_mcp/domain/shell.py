"""The commands in a line for a shell, as far as they can be told without running it (docs/protocol.md, Guard)."""

from __future__ import annotations

import os.path
import re
import shlex
from collections.abc import Iterator, Sequence
from itertools import dropwhile, pairwise

_QUOTED_MAX = 10_000
"""Longer commands are split at blanks alone, as a host does not wait long."""
GIT_OPTIONS_WITH_VALUE = frozenset({"-C", "-c", "--git-dir", "--work-tree", "--namespace", "--exec-path"})
_KEYWORDS = frozenset({"!", "{", "if", "then", "elif", "else", "while", "until", "do", "time"})
SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "fish"})
_RUNNERS = frozenset({"command", "doas", "env", "exec", "find", "nice", "nohup", "setsid", "sudo", "timeout", "xargs"})
"""Programs that run the one that their arguments name."""
_SEPARATORS = "();<>|&\n`"
_ASSIGNED = re.compile(r"\w+=")
IN_QUOTES = re.compile(r"""'[^']*'|\\.|"((?:\\.|[^"\\])*)\"""", re.DOTALL)
SUBSTITUTED = re.compile(r"\$\((.+)\)|`([^`]+)`", re.DOTALL)
_HERE_DOCUMENT = re.compile(r"<<-?[ \t]*(['\"\\]?)(\w+)")
NESTED_MAX = 4


def simple_commands(text: str) -> Iterator[list[str]]:
    """Yields the words of each simple command, beginning with the program that is really run, if that is known."""
    yield from filter(None, map(_program, _commands(text)))


def _commands(text: str) -> Iterator[list[str]]:
    """Yields the words of each simple command, without what stands before its program."""
    lexer = shlex.shlex(text, posix=True, punctuation_chars=_SEPARATORS)
    lexer.whitespace, lexer.commenters = " \t\r", ""
    lexer.whitespace_split = True
    try:
        found = list(lexer) if len(text) <= _QUOTED_MAX else text.replace("\n", " \n ").split(" ")
    except ValueError:  # a quote without an end
        found = re.sub(f"([{_SEPARATORS}])", r" \1 ", text).split(" ")
    words: list[str] = []
    for word in [*found, ";"]:
        if word.strip(_SEPARATORS):
            words.append(word)
        elif word and (command := [*dropwhile(lambda word: word in _KEYWORDS or _ASSIGNED.match(word), words)]):
            yield command
        if word and not word.strip(_SEPARATORS):
            words = []


def _program(rest: list[str]) -> list[str]:
    """The words from the program on that is really run."""
    if os.path.basename(rest[0]) in _RUNNERS:  # noqa: PTH119 - a word
        known = SHELLS | {"git"}
        rest = [*dropwhile(lambda word: os.path.basename(word) not in known, rest)]  # noqa: PTH119
    return rest


def given_to_shell(words: Sequence[str]) -> str | None:
    """The command that a shell is given (`-c`, `-lc`)."""
    return next((after for word, after in pairwise(words) if re.fullmatch(r"-[a-z]*c", word)), None)


def without_documents(command: str) -> Iterator[str]:
    """The lines of a command without its here-documents, except those that a shell reads."""
    end: str | None = None
    for line in command.split("\n"):
        if end is not None:
            end = end if line.strip() != end else None
            continue
        yield line
        found = _HERE_DOCUMENT.search(line)
        if found is not None and not SHELLS & set(re.split(r"\W+", line)):
            end = found[2]


def denied_by(command: str, denied: Sequence[str], depth: int = 0) -> str | None:
    """The one of these beginnings (`git push`, `rm -rf`) with which a simple command in the line begins, also in a
    substitution, in what another shell is given, and behind a program that runs it; None without."""
    text = "\n".join(without_documents(command.replace("\\\n", "")))
    for words in _commands(text):
        for place in range(len(words)) if os.path.basename(words[0]) in _RUNNERS else (0,):  # noqa: PTH119 - a word
            if (found := next((one for one in denied if _begins(words[place:], one.split())), None)) is not None:
                return found
    if depth < NESTED_MAX:
        inner = [
            part[1] or part[2] for quote in IN_QUOTES.finditer(text) for part in SUBSTITUTED.finditer(quote[1] or "")
        ]
        for words in _commands(text):
            for place, word in enumerate(words):
                if os.path.basename(word) in SHELLS:  # noqa: PTH119 - a word
                    inner.append(given_to_shell(words[place + 1 :]) or "")
            inner += [" ".join(words[1:])] if words[0] == "eval" else []
        return next((found for one in inner if one and (found := denied_by(one, denied, depth + 1))), None)
    return None


def _begins(words: Sequence[str], beginning: Sequence[str]) -> bool:
    """Whether a command begins so, whatever the path of its program is and whichever options stand before the rest."""
    if os.path.basename(words[0]) != beginning[0]:  # noqa: PTH119 - a word
        return False
    rest = list(words[1:])
    if rest[: len(beginning) - 1] == list(beginning[1:]):
        return True
    while rest and rest[0].startswith("-"):
        rest = rest[2:] if rest[0] in GIT_OPTIONS_WITH_VALUE and beginning[0] == "git" else rest[1:]
    return len(beginning) > 1 and rest[: len(beginning) - 1] == list(beginning[1:])


def written_by(command: str) -> list[str]:
    """The files that a line for a shell writes by a redirection or `tee`, as far as they can be told."""
    text = "\n".join(without_documents(command.replace("\\\n", "")))
    lexer = shlex.shlex(text, posix=True, punctuation_chars=_SEPARATORS)
    lexer.whitespace, lexer.commenters, lexer.whitespace_split = " \t\r", "", True
    try:
        words = list(lexer) if len(text) <= _QUOTED_MAX else []
    except ValueError:  # a quote without an end
        words = []
    found = [
        word for sign, word in pairwise(words) if ">" in sign and not sign.strip(_SEPARATORS) and not sign.endswith("&")
    ]
    found += [word for one in _commands(text) if one[0] == "tee" for word in one[1:] if not word.startswith("-")]
    return [word for word in found if word.strip(_SEPARATORS) and word != "/dev/null"]
