"""The commands in a line for a shell, as far as they can be told without running it (docs/protocol.md, Guard)."""

from __future__ import annotations

import os.path
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from itertools import dropwhile, pairwise

_QUOTED_MAX = 10_000
"""Longer commands are split at blanks alone, as a host does not wait long."""
GIT_OPTIONS_WITH_VALUE = frozenset({"-C", "-c", "--git-dir", "--work-tree", "--namespace", "--exec-path"})
_KEYWORDS = frozenset({"!", "{", "if", "then", "elif", "else", "while", "until", "do", "time", "coproc"})
_NAMED = frozenset({"coproc", "function"})
"""Words before a name and `{`."""
SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "fish"})
_RUNNERS = frozenset(
    (
        *("builtin", "chroot", "chrt", "command", "doas", "env", "exec", "find", "flock", "ionice", "nice", "nohup"),
        *("prlimit", "runuser", "setpriv", "setsid", "stdbuf", "strace", "sudo", "taskset", "time", "timeout"),
        *("unshare", "watch", "xargs"),
    )
)
"""Programs that run the one that their arguments name."""
_FIND_RUNS = frozenset({"-exec", "-execdir", "-ok", "-okdir"})
_TAKES_LINES = SHELLS | {"flock", "runuser", "script", "su"}
"""Programs that give a shell the line behind `-c`."""
_REDIRECTS = re.compile(r"(?:&>>?|>[>|&]?|<<<|<<|<[>&]?)\Z")
_ESCAPED = re.compile(r"\$'((?:\\.|[^'\\])*)'", re.DOTALL)
_SEPARATORS = "();<>|&\n`"
_HIDDEN = {ord(sign): 0xE000 + place for place, sign in enumerate(_SEPARATORS)}
_UNHIDDEN = {hidden: sign for sign, hidden in _HIDDEN.items()}
_DESCRIPTOR = re.compile(r"\d+-?|-")
_ASSIGNED = re.compile(r"\w+=")
IN_QUOTES = re.compile(r"""'[^']*'|\\.|"((?:\\.|[^"\\])*)\"""", re.DOTALL)
SUBSTITUTED = re.compile(r"\$\((.+)\)|`([^`]+)`", re.DOTALL)
_HERE_DOCUMENT = re.compile(r"<<-?[ \t]*(['\"\\]?)(\w+)")
NESTED_MAX = 4
EVERY_COMMAND = "*"
"""Denies all of them."""


def simple_commands(text: str) -> Iterator[list[str]]:
    """Yields the words of each simple command, beginning with the program that is really run, if that is known."""
    yield from filter(None, map(_program, _commands(text)))


def _commands(text: str) -> Iterator[list[str]]:
    """Yields the words of each simple command, without what is before its program."""
    words: list[str] = []
    is_target = False
    for word in [*_words(text), ";"]:
        if not _is_sign(word):
            if not is_target:
                words.append(word.translate(_UNHIDDEN))
            is_target = False
        elif (redirects := _REDIRECTS.search(word)) is not None and redirects.start() == 0:
            words, is_target = [] if len(words) == 1 and words[0].isdigit() else words, True
        else:
            if command := [*dropwhile(_is_before, _body(words))]:
                yield command
            words, is_target = [], redirects is not None


def _body(words: Sequence[str]) -> Sequence[str]:
    """The words without the name of a function or a coprocess before them."""
    is_named = bool(words) and words[0] in _NAMED and "{" in words
    return words[words.index("{") :] if is_named else words


def _is_before(word: str) -> bool:
    """Whether a word is before the program of its command: also an option of `time`."""
    return word in _KEYWORDS or word.startswith("-") or _ASSIGNED.match(word) is not None


def _words(text: str) -> list[str]:
    """The words and the signs between them; a sign that is quoted is hidden (`_UNHIDDEN`)."""
    if len(text) > _QUOTED_MAX:
        return text.replace("\n", " \n ").split(" ")
    text = _ESCAPED.sub(_unescaped, text)
    hidden = IN_QUOTES.sub(lambda quoted: quoted[0].translate(_HIDDEN), text)
    lexer = shlex.shlex(hidden, posix=True, punctuation_chars=_SEPARATORS)
    lexer.whitespace, lexer.commenters, lexer.whitespace_split = " \t\r", "", True
    try:
        return list(lexer)
    except ValueError:  # a quote without an end
        return re.sub(f"([{_SEPARATORS}])", r" \1 ", text).split(" ")


def _unescaped(quoted: re.Match[str]) -> str:
    """What a quotation with escapes (`$'git\\x20push'`) stands for, in plain quotes."""
    try:
        return shlex.quote(quoted[1].encode("latin-1", "backslashreplace").decode("unicode_escape"))
    except ValueError:
        return quoted[0]


def _is_sign(word: str) -> bool:
    return bool(word) and not word.strip(_SEPARATORS)


def _program(rest: list[str]) -> list[str]:
    """The words from the program on that is really run."""
    if os.path.basename(rest[0]) in _RUNNERS:  # noqa: PTH119 - a word
        known = SHELLS | {"git"}
        rest = [*dropwhile(lambda word: os.path.basename(word) not in known, rest)]  # noqa: PTH119
    return rest


def _places(words: Sequence[str]) -> Iterable[int]:
    """Where in a simple command a program may be that is run."""
    program = os.path.basename(words[0])  # noqa: PTH119 - a word
    if program == "find":
        return [0, *(place + 1 for place, word in enumerate(words[:-1]) if word in _FIND_RUNS)]
    return range(len(words)) if program in _RUNNERS else (0,)


def given_to_shell(words: Sequence[str]) -> str | None:
    """The command that a shell is given (`-c`, `-lc`)."""
    rest = [word for word in words if word != "--"]
    return next((after for word, after in pairwise(rest) if re.fullmatch(r"-[a-z]*c", word)), None)


def without_documents(command: str) -> Iterator[str]:
    """The lines of a command without its here-documents, except those that a shell reads, and substitutions."""
    end, substitutes = None, False
    for line in command.split("\n"):
        if end is not None:
            yield from (part[0] for part in SUBSTITUTED.finditer(line) if substitutes)
            end = end if line.strip() != end else None
            continue
        yield line
        found = _HERE_DOCUMENT.search(line)
        if found is not None and not SHELLS & set(re.split(r"\W+", line)):
            end, substitutes = found[2], not found[1]


def denied_by(command: str, denied: Sequence[str], depth: int = 0) -> str | None:
    """The one of these beginnings (`git push`, `rm -rf`) with which a simple command in the line begins (`*`: any),
    also in a substitution, in what another shell is given, and behind a program that runs it; None without."""
    text = "\n".join(without_documents(command.replace("\\\n", "")))
    if EVERY_COMMAND in denied and command.strip():
        return EVERY_COMMAND
    for words in _commands(text):
        for place in _places(words):
            if (found := next((one for one in denied if _begins(words[place:], one.split())), None)) is not None:
                return found
    inner = _given_on(text) if depth < NESTED_MAX else ()
    return next((found for one in inner if (found := denied_by(one, denied, depth + 1))), None)


def _given_on(text: str) -> Iterator[str]:
    """Yields what is in quoted substitutions, and what another shell and `eval` are given."""
    for quote in IN_QUOTES.finditer(text):
        yield from (part[1] or part[2] for part in SUBSTITUTED.finditer(quote[1] or ""))
    for sign, word in pairwise(_words(text)):
        if sign == "<<<":
            yield word.translate(_UNHIDDEN)
    for words in _commands(text):
        for place, word in enumerate(words):
            if os.path.basename(word) in _TAKES_LINES and (given := given_to_shell(words[place + 1 :])):  # noqa: PTH119
                yield given
        if "eval" in words[:2]:
            yield " ".join(words[words.index("eval") + 1 :])
        if words[0] == "trap":
            yield from words[1:]
        if os.path.basename(words[0]) == "env":  # noqa: PTH119 - a word
            yield from (after for word, after in pairwise(words) if word == "-S")


def _begins(words: Sequence[str], beginning: Sequence[str]) -> bool:
    """Whether a command begins so, whatever the path of its program is and whichever options are before the rest."""
    if os.path.basename(words[0]) != beginning[0]:  # noqa: PTH119 - a word
        return False
    rest = list(words[1:])
    if rest[: len(beginning) - 1] == list(beginning[1:]):
        return True
    while rest and rest[0].startswith("-"):
        rest = rest[2:] if rest[0] in GIT_OPTIONS_WITH_VALUE and beginning[0] == "git" else rest[1:]
    return len(beginning) > 1 and rest[: len(beginning) - 1] == list(beginning[1:])


def written_by(command: str, depth: int = 0) -> list[str]:
    """The files that a line for a shell writes by a redirection or `tee`, as far as they can be told, also in what
    another shell is given."""
    text = "\n".join(without_documents(command.replace("\\\n", "")))
    words = _words(text)
    found = [
        word
        for sign, word in pairwise(words if depth else _without_comparisons(words))
        if ">" in sign and _is_sign(sign) and not sign.endswith("(")
        if not (sign.endswith("&") and _DESCRIPTOR.fullmatch(word)) and not _is_sign(word)
    ]
    for one in _commands(text):
        tee = next((place for place in _places(one) if os.path.basename(one[place]) == "tee"), len(one))  # noqa: PTH119
        found += [word for word in one[tee + 1 :] if not word.startswith("-")]
    for inner in _given_on(text) if depth < NESTED_MAX else ():
        found += written_by(inner, depth + 1)
    return [name for word in found if (name := word.translate(_UNHIDDEN)) and name != "/dev/null"]


def _without_comparisons(words: Sequence[str]) -> Iterator[str]:
    """The words without those of `[[ a > b ]]` and `(( 1 > 2 ))`, in which nothing is redirected (bash(1))."""
    end, begins = "", True
    for place, word in enumerate(words):
        if end:
            end = "" if word == end else end
            continue
        rest = words[place + 1 :]
        if word == "[[" and begins and "]]" in rest:
            end = "]]"
        elif word.endswith("((") and next((sign for sign in rest if set(sign) & set("()")), "") == "))":
            end = "))"
        else:
            yield word
        begins = word in _KEYWORDS or (_is_sign(word) and not set(word) & set("<>"))
