"""The keys of session.yaml of this folder's features."""

from __future__ import annotations

from functools import partial
from typing import Any

from multi_agent_mcp.settings import is_word, parse_choice, refused
from multi_agent_mcp.yaml_files import truth

ADVISE, ENFORCE = "advise", "enforce"
"""Whether conflicting reservations are told of or refused."""
SHARED, WORKTREE = "shared", "worktree"
BY_AGENT, BY_SERVER = "agent", "server"
"""Who commits what an agent has done in its worktree."""
RESERVATIONS = partial(parse_choice, allowed=(ADVISE, ENFORCE))
WORKSPACE = partial(parse_choice, allowed=(SHARED, WORKTREE))
COMMIT = partial(parse_choice, allowed=(BY_AGENT, BY_SERVER))


def parse_setup(given: Any, name: str) -> str | tuple[str, ...] | None:
    """Parses `workspace_setup`: a command, or a program and its arguments. Raises `InvalidArguments`."""
    words = [given] if isinstance(given, str) else given
    if given is not None and not (isinstance(words, list) and words and all(map(is_word, words))):
        raise refused("no_command", name=name)
    return tuple(given) if isinstance(given, list) else given


def parse_guard(given: Any, name: str) -> bool | None:
    """Parses `guard`: true or false; None to leave it to where each agent works. Raises `InvalidArguments`."""
    given = truth(given)
    if not isinstance(given, bool | None):
        raise refused("no_bool", name=name)
    return given
