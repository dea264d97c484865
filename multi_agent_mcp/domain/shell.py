"""The commands in a line for a shell, as far as they can be told without running it (docs/protocol.md, Guard)."""

from __future__ import annotations

import os.path
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from itertools import dropwhile, islice, pairwise

_QUOTED_MAX = 10_000
"""Longer commands are split at blanks alone, as a host does not wait long."""
GIT_OPTIONS_WITH_VALUE = frozenset({"-C", "-c", "--git-dir", "--work-tree", "--namespace", "--exec-path"})
KEYWORDS = frozenset({"!", "{", "if", "then", "elif", "else", "while", "until", "do", "time", "coproc"})
_BEFORE = KEYWORDS - {"time"}
"""`time` may have options with a value: it counts as a program that runs another."""
_NAMED = frozenset({"coproc", "function"})
"""Words before a name and `{`."""
SHELLS = frozenset(("sh", "bash", "dash", "zsh", "ksh", "fish", "ash", "csh", "mksh", "nu", "rbash", "tcsh", "xonsh"))
_RUNNERS = frozenset(
    (
        *("aa-exec", "arch", "builtin", "bunx", "busybox", "bwrap", "caffeinate", "cgexec", "chpst", "chronic"),
        *("chroot", "chrt", "command", "cpulimit", "cross-env", "dbus-run-session", "doas", "dumb-init", "eatmydata"),
        *("entr", "env", "envdir", "exec", "faketime", "fakeroot", "find", "firejail", "flatpak-spawn", "flock", "gdb"),
        *("gosu", "ionice", "ltrace", "nice", "nohup", "npx", "nsenter", "numactl", "parallel", "pkexec", "prlimit"),
        *("proot", "proxychains", "proxychains4", "rlwrap", "rr", "runuser", "screen", "script", "sem", "setarch"),
        *("setpriv", "setsid", "setuidgid", "ssh-agent", "start-stop-daemon", "stdbuf", "strace", "su-exec", "sudo"),
        *("systemd-run", "taskset", "time", "timeout", "tini", "tmux", "torsocks", "trickle", "unbuffer", "unshare"),
        *("valgrind", "watch", "watchexec", "xargs", "xvfb-run"),
    )
)
"""Programs that run the one that their arguments name."""
_MANAGERS = frozenset(
    (
        *("bundle", "conda", "direnv", "doppler", "hatch", "ip", "mise", "nix", "npm", "op", "pdm", "perf", "pipenv"),
        *("pnpm", "poetry", "uv", "yarn"),
    )
)
"""Programs that run the one that is named behind a word such as `run`."""
_RUN_WORDS = frozenset({"--", "develop", "dlx", "exec", "record", "run", "shell", "stat"})
_FIND_RUNS = frozenset({"-exec", "-execdir", "-ok", "-okdir"})
_TAKES_LINES = SHELLS | {"capsh", "flock", "npx", "runuser", "script", "sg", "su"}
"""Programs that give a shell the line behind `-c` or `--command`."""
_LINES = frozenset({"entr", "hyperfine", "nix-shell", "parallel", "screen", "script", "ssh", "tmux", "watch"})
"""Programs that give a shell what an argument of theirs says."""
_GIVERS = _TAKES_LINES | _LINES | {"env", "eval", "git", "trap"}
_GIVERS_MAX = 5
"""So many of them at most are looked for in one command."""
_GIT_LINES = frozenset(
    (
        *("-x", "--exec", "--extcmd", "--upload-pack", "--receive-pack", "--sendmail-cmd", "--open-files-in-pager"),
        *("--env-filter", "--tree-filter", "--index-filter", "--parent-filter", "--msg-filter", "--commit-filter"),
        *("--tag-name-filter", "--setup"),
    )
)
"""Options of git's commands whose value a shell is given."""
_READ_BY_PROGRAMS = re.compile(
    r"(?:\w*(?:EDITOR|PAGER|COMMAND|ASKPASS|_DIFF|BROWSER|SHELL|_SSH)|BASH_ENV|ENV)=(.+)", re.DOTALL
)
"""Variables whose value a program runs."""
_REDIRECTS = re.compile(r"(?:&>>?|>[>|&]?|<<<|<<|<[>&]?)\Z")
_GIVES = re.compile(r"-[a-z]*c[a-z]*")
_DESCRIPTOR = re.compile(r"\d+|\{\w+\}")
"""A word before a redirection that belongs to it."""
_ESCAPED = re.compile(r"\$'((?:\\.|[^'\\])*)'", re.DOTALL)
_SEPARATORS = "();<>|&\n`"
_HIDDEN = {ord(sign): 0xE000 + place for place, sign in enumerate(f"{_SEPARATORS}{{}},")}
UNHIDDEN = {hidden: sign for sign, hidden in _HIDDEN.items()}
_ASSIGNED = re.compile(r"\w+=")
IN_QUOTES = re.compile(r"""'[^']*'|\\.|"((?:\\.|[^"\\])*)\"""", re.DOTALL)
SUBSTITUTED = re.compile(r"\$\((.+)\)|`([^`]+)`", re.DOTALL)
_READ_BY = re.compile(rf"\b(?:{'|'.join(sorted(SHELLS))}|at|batch|eval|parallel|source|ssh|xargs)\b|(?:^|[;&|\s])\.\s")
"""What runs what a here-document says."""
_HERE_DOCUMENT = re.compile(r"<<-?[ \t]*(['\"\\]?)(\w+)")
_NESTED = re.compile(r"`((?:\\.|[^`\\])*)`", re.DOTALL)
_BRACES = re.compile(r"(.*?(?<!\$))\{([^{},]*,[^{}]*)\}(.*)", re.DOTALL)
_BRACES_MAX = 200
"""So many words at most are made of one."""
NESTED_MAX = 4
_LINES_MAX = 40
EVERY_COMMAND = "*"
"""Denies all of them."""


def simple_commands(text: str) -> Iterator[list[str]]:
    """Yields the words of each simple command, beginning with the program that is really run, if that is known."""
    yield from filter(None, map(_program, commands_in(text)))


def commands_in(text: str) -> Iterator[list[str]]:
    """Yields the words of each simple command, without what is before its program."""
    words: list[str] = []
    is_target = False
    for word in [*words_in(text), ";"]:
        if not is_sign(word):
            if not is_target:
                words += (one.translate(UNHIDDEN) for one in _expanded(word))
            is_target = False
        elif (redirects := _REDIRECTS.search(word)) is not None and redirects.start() == 0:
            words, is_target = [] if len(words) == 1 and _DESCRIPTOR.fullmatch(words[0]) else words, True
        else:
            if command := [*dropwhile(_is_before, _body(words))]:
                yield command
            words, is_target = [], redirects is not None


def _body(words: Sequence[str]) -> Sequence[str]:
    """The words without the name of a function or a coprocess before them."""
    is_named = bool(words) and words[0] in _NAMED and "{" in words
    return words[words.index("{") :] if is_named else words


def _is_before(word: str) -> bool:
    """Whether a word is before the program of its command."""
    return word in _BEFORE or word.startswith("-") or _ASSIGNED.match(word) is not None


def words_in(text: str) -> list[str]:
    """The words and the signs between them; a sign that is quoted is hidden (`UNHIDDEN`)."""
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


def _expanded(word: str) -> list[str]:
    """The words that a shell makes of braces (`{git,push}`; bash(1), Brace Expansion); the first of many."""
    found, left = list[str](), [word]
    while left and len(found) < _BRACES_MAX:
        one = left.pop()
        if (braces := _BRACES.fullmatch(one)) is None:
            found.append(one)
            continue
        parts = braces[2].split(",")[:_BRACES_MAX]
        left += [f"{braces[1]}{part}{braces[3]}" for part in reversed(parts)]
    return [one for one in found if one or one == word]


def is_sign(word: str) -> bool:
    return bool(word) and not word.strip(_SEPARATORS)


def _program(rest: list[str]) -> list[str]:
    """The words from the program on that is really run."""
    if os.path.basename(rest[0]) in _RUNNERS | _MANAGERS:  # noqa: PTH119 - a word
        known = SHELLS | {"git"}
        rest = [*dropwhile(lambda word: os.path.basename(word) not in known, rest)]  # noqa: PTH119
    return rest


def places(words: Sequence[str]) -> Iterable[int]:
    """Where in a simple command a program may be that is run."""
    program = os.path.basename(words[0])  # noqa: PTH119 - a word
    if program == "find":
        return [0, *(place + 1 for place, word in enumerate(words[:-1]) if word in _FIND_RUNS)]
    if program in _MANAGERS:
        behind = next((place + 1 for place, word in enumerate(words) if word in _RUN_WORDS), len(words))
        return [0, *range(behind, len(words))]
    return range(len(words)) if program in _RUNNERS else (0,)


def given_to_shell(words: Sequence[str]) -> str | None:
    """The command that a shell is given (`-c`, `-lc`, `--command`)."""
    for place, word in enumerate(words):
        if word.startswith("--command="):
            return word.partition("=")[2]
        if word == "--command" or _GIVES.fullmatch(word):
            return next((after for after in words[place + 1 :] if not after.startswith(("-", "+"))), None)
    return None


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
        if found is not None and not _READ_BY.search(line):
            end, substitutes = found[2], not found[1]


def denied_by(command: str, denied: Sequence[str]) -> str | None:
    """The one of these beginnings (`git push`, `rm -rf`) with which a simple command in the line begins (`*`: any),
    also in a substitution, in what another shell is given, and behind a program that runs it; None without."""
    if EVERY_COMMAND in denied and command.strip():
        return EVERY_COMMAND
    beginnings = [(one, one.split()) for one in denied]
    for line in lines_in(command):
        for words in commands_in(line):
            for place in places(words):
                for one, beginning in beginnings:
                    if _begins(words, place, beginning):
                        return one
    return None


def lines_in(command: str) -> Iterator[str]:
    """Yields a line for a shell, without its here-documents, and those that it gives others, which give more, as far as
    `NESTED_MAX` and `_LINES_MAX` allow."""
    left, number = [(command.replace("\\\n", ""), 0)], 0
    for line, depth in left:
        text = "\n".join(without_documents(line))
        yield text
        if depth < NESTED_MAX:
            for given in islice(given_on(text), _LINES_MAX - number):
                left.append((given, depth + 1))
                number += 1


def given_on(text: str) -> Iterator[str]:
    """Yields what is in quoted substitutions, and what another shell and `eval` are given."""
    for quote in IN_QUOTES.finditer(text):
        yield from (part[1] or part[2] for part in SUBSTITUTED.finditer(quote[1] or ""))
    for sign, word in pairwise(words_in(text)):
        if sign == "<<<":
            yield word.translate(UNHIDDEN)
    for found in _NESTED.finditer(text):
        if "\\`" in found[1]:
            yield re.sub(r"\\([`\\$])", r"\1", found[1])
    for word in words_in(text):
        if (given := _READ_BY_PROGRAMS.fullmatch(word)) is not None:
            yield given[1].translate(UNHIDDEN)
    for words in commands_in(text):
        givers = (place for place, word in enumerate(words) if os.path.basename(word) in _GIVERS)  # noqa: PTH119
        for place in islice(givers, _GIVERS_MAX):
            yield from _given_by(words[place:])


def _given_by(words: Sequence[str]) -> Iterator[str]:
    """Yields the lines that this program gives a shell."""
    program, rest = os.path.basename(words[0]), words[1:]  # noqa: PTH119 - a word
    if program in _TAKES_LINES and (given := given_to_shell(rest)):
        yield given
    if program == "eval":
        yield " ".join(rest)
    if program == "trap":
        yield from rest
    if program in _LINES:
        yield from (word for word in rest if " " in word)
    if program == "env":
        yield from (value for option, value in options_in(rest) if option in ("-S", "--split-string"))
    if program == "git":
        yield from _given_by_git(rest)


def _given_by_git(rest: Sequence[str]) -> Iterator[str]:
    """Yields what git gives a shell: by its options, by settings that name programs, and by commands that
    run others."""
    for option, value in options_in(rest):
        if option in _GIT_LINES:
            yield value
        name, equals, setting = value.partition("=")
        if option == "-c" and equals:
            yield from _set(name, setting)
    for place, word in enumerate(rest):
        if word == "config":
            keys = [word for word in rest[place + 1 :] if not word.startswith("-") and word not in ("set", "add")]
            yield from _set(keys[0], keys[1]) if len(keys) > 1 else ()
        elif (word, *rest[place + 1 : place + 2]) in (("bisect", "run"), ("submodule", "foreach")):
            yield " ".join(word for word in rest[place + 2 :] if word != "--recursive")


def _set(name: str, value: str) -> Iterator[str]:
    """Yields what git runs because of a setting: an alias is a command of its own, or of a shell (`!`)."""
    yield value.removeprefix("!")
    if name.lower().startswith("alias."):
        yield f"git {value}"


def options_in(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The options of a command with what may be their value: behind `=`, in the same word, or the next word."""
    for place, word in enumerate(words):
        name, equals, value = word.partition("=")
        if word.startswith("--"):
            yield name, value if equals else "".join(words[place + 1 : place + 2])
        elif word.startswith("-") and len(word) > 1:
            after = "".join(words[place + 1 : place + 2])
            yield word[:2], word[2:] or after
            if len(word) > 2:
                yield f"-{word[-1]}", after  # the last of several in one word


def _begins(words: Sequence[str], place: int, beginning: Sequence[str]) -> bool:
    """Whether a command begins so there, whatever the path of its program is, and whichever options are before the
    rest."""
    if os.path.basename(words[place]).lower() != beginning[0].lower():  # noqa: PTH119 - a word; macOS ignores case
        return False
    rest = list(words[place + 1 :])
    if rest[: len(beginning) - 1] == list(beginning[1:]):
        return True
    at = 0
    while at < len(rest) and rest[at].startswith("-"):
        at += 2 if rest[at] in GIT_OPTIONS_WITH_VALUE and beginning[0] == "git" else 1
    return len(beginning) > 1 and rest[at : at + len(beginning) - 1] == list(beginning[1:])
