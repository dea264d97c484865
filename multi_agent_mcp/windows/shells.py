"""What runs an agent's command: /bin/sh, or with `shell: default` the person's own shell (docs/protocol.md, Team in
tmux). In either our values arrive byte for byte."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path

from multi_agent_mcp.doorbell.tmux.client import BEGINS
from multi_agent_mcp.doorbell.tmux.team_panes import executed, is_compound
from multi_agent_mcp.hosts import hosts

SH = "/bin/sh"
OF_HOSTS = (
    *("AGENT", "AI_AGENT", "COLORTERM", "COREPACK_ENABLE_AUTO_PIN", "NO_COLOR", "NoDefaultCurrentDirectoryInExePath"),
    *("PAGER", "PYTHONUNBUFFERED", "npm_config_user_agent", "GCM_INTERACTIVE", "GH_PAGER", "GH_PROMPT_DISABLED"),
    *("GIT_ASKPASS", "GIT_CONFIG_COUNT", "GIT_EDITOR", "GIT_OPTIONAL_LOCKS", "GIT_PAGER", "GIT_TERMINAL_PROMPT"),
    "SSH_ASKPASS",
)
"""What hosts set for the programs that they run, because nobody sees these; a person may have set them, too."""
GIT_SETTINGS = ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM")
"""What Gemini CLI sets so that git has no settings of the person's: with /dev/null for the first of them."""
_OF_GIT = (
    *("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_PREFIX", "GIT_NAMESPACE"),
    *("GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_QUARANTINE_PATH", "GIT_CONFIG_PARAMETERS"),
)
"""What git sets for its hooks and aliases, of the repository that these run in."""
_OF_AN_AGENT = tuple(f"MULTI_AGENT_MCP_{name}" for name in ("AGENT", "PURPOSE", "CONFIGURED", "PANE", "SOCKET"))
"""Our own variables that name another agent where a host has started this."""
_EXECUTES = re.compile(r"(ba|da|z|k|mk|a|c|tc|fi|xon)?sh|nu")
"""Shells whose `exec` replaces them by a program."""


def quoted(shell: str, text: str) -> str:
    """One word of this shell that is the text; a shell that we do not know is taken for one like sh(1)."""
    return _QUOTES.get(Path(shell).name, shlex.quote)(text)


def requoted(shell: str, words: str) -> str:
    """Words written for sh(1), written for this shell."""
    return words if shell == SH else " ".join(quoted(shell, word) for word in shlex.split(words))


def started(command: str, shell: str, *, directory: str | None, environment: Mapping[str, str]) -> tuple[str, ...]:
    """The words that run the command in a window, for tmux to hand on to no shell but /bin/sh, which reads no files of
    the person's. It works in `directory`, or not at all; `environment` is added to what tmux gives to a new window,
    without what hosts and git have told other processes about themselves."""
    steps = [f"{BEGINS}{_without_inherited()}"]
    steps += [f"export {' '.join(f'{name}={shlex.quote(value)}' for name, value in environment.items())}"]
    place = "" if directory is None else f"cd -- {shlex.quote(directory)} && "
    is_program = shell == SH and not is_compound(command)
    run = command if is_program else shlex.join([shell, "-c", executed(command) if replaces_itself(shell) else command])
    return (SH, "-c", "; ".join([*steps, f"{place}exec {run}"]))


LONGEST_BYTES = 4_000
"""Of the words of a window: tmux takes 16 kB of a command (its `MAX_IMSGSIZE`), in which each of their quotation marks
may take four."""


def are_too_long(words: tuple[str, ...]) -> bool:
    """Whether tmux would not take them: a statement in Japanese, long paths or a person's instructions are long."""
    return sum(len(word.encode("utf-8", "surrogateescape")) for word in words) > LONGEST_BYTES


def read_from(path: Path) -> tuple[str, ...]:
    """The words that run what `started` returned, its last word, from a file."""
    return (SH, "-c", f'{BEGINS}. "$0"', str(path))


def _without_inherited() -> str:
    """Shell commands that drop the variables of a host that somebody's shell runs in, and those of git's hooks."""
    marks = sorted(name for host in hosts().values() for name in host.inherited)
    found = "".join(f"${{{name}-}}" for name in marks)
    own = " ".join([*marks, *_OF_GIT, *_OF_AN_AGENT])
    settings = f'[ "${{{GIT_SETTINGS[0]}-}}" != /dev/null ] || unset {" ".join(GIT_SETTINGS)}'
    return f'[ -z "{found}" ] || {{ unset {" ".join(OF_HOSTS)}; {settings}; }}; unset {own}'


def quoted_in_any(text: str) -> set[str]:
    """The text as a word of each shell."""
    return {shlex.quote(text), *(quote(text) for quote in _QUOTES.values())}


def replaces_itself(shell: str) -> bool:
    return _EXECUTES.fullmatch(Path(shell).name) is not None


def _of_fish(text: str) -> str:
    return "'" + re.sub(r"([\\'])", r"\\\1", text) + "'"


def _of_csh(text: str) -> str:
    return "'" + text.replace("'", "'\\''").replace("!", "\\!").replace("\n", "\\\n") + "'"


def _of_nu(text: str) -> str:
    fence = "#" * (1 + max((len(found) for found in re.findall("'(#*)", text)), default=0))
    return f"r{fence}'{text}'{fence}"


def _of_xonsh(text: str) -> str:
    return f"@({text!r})"


_QUOTES: Mapping[str, Callable[[str], str]] = {
    "fish": _of_fish,
    "csh": _of_csh,
    "tcsh": _of_csh,
    "nu": _of_nu,
    "xonsh": _of_xonsh,
}
