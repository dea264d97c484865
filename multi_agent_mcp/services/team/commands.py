"""The commands that a person writes into team.yaml, judged before anything starts them."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from difflib import get_close_matches

from multi_agent_mcp.errors import Reason
from multi_agent_mcp.programs import child_environment

PLACEHOLDERS = ("mcp_config", "prompt", "root", "session", "agent", "worktree", "python", "examples")
"""What stands in braces in an agent's command and is filled by `up`."""
COMMAND = "command"
"""The placeholder of a `sandbox`, beside the others."""
NEARLY = 0.85
"""From which likeness on (`difflib`) an unknown word is a misspelt one."""
SYNTAX_SECONDS = 5.0
_BRACES = re.compile(r"""'[^']*'|"(?:[^"\\]|\\.)*"|\\.|(?<![$@{\w])\{([\w-]+)\}""", re.DOTALL)
"""A quoted part, or outside of quotes a word in braces that is nothing to a shell or to git (`${x}`, `@{upstream}`)."""
_WORD = re.compile(r"(?<![$@{\w])\{([\w-]+)\}")
_WHERE = re.compile(r"^\S*sh: (?:-c: )?(?:line )?(?:\d+: )?")


def problem_of(name: str, command: str, known: tuple[str, ...] = PLACEHOLDERS) -> Reason | None:
    """Why the value of the key `name` is no command for sh(1): a placeholder that there is not, or text that sh cannot
    read. Braces in quotes are the shell's, unless they nearly name a placeholder. None for one that it can run."""
    if "\0" in command:
        return Reason("no_shell_command", name=name, problem="NUL")
    for word in _in_braces(command, known):
        return Reason("no_placeholder", name=name, value=f"{word:.60}", allowed=", ".join(known))
    said = _syntax_error(command)
    return None if said is None else Reason("no_shell_command", name=name, problem=said)


def _in_braces(command: str, known: tuple[str, ...]) -> Iterator[str]:
    for part in _BRACES.finditer(command) if "<<" not in command else ():
        if part[1] is not None and part[1] not in known:
            yield part[1]
        for word in _WORD.findall(part[0]) if part[1] is None else ():
            if word not in known and get_close_matches(word, known, 1, NEARLY):
                yield word


def _syntax_error(command: str) -> str | None:
    """What sh(1) says that it cannot read in a command, which it does not run; None for one that it can, and where it
    cannot be asked."""
    try:
        done = subprocess.run(
            ["/bin/sh", "-n", "-c", command],
            env=child_environment(LC_ALL="C"),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=SYNTAX_SECONDS,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    lines = done.stderr.decode(errors="replace").splitlines()
    return _WHERE.sub("", lines[0])[:120] if done.returncode and lines else None
