"""Commands of git that take work from others in the same repository (docs/protocol.md, Guard).

`git stash` is shared by all worktrees (git-stash(1)), and switching the branch of a shared directory changes every file
under the hands of those who work there."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import dropwhile
from typing import TYPE_CHECKING

from multi_agent_mcp.domain.text import quoted
from multi_agent_mcp.errors import InvalidArguments
from multi_agent_mcp.services.repository.worktrees import same_repository
from multi_agent_mcp.session import Service
from multi_agent_mcp.system.file_status import tree_of
from multi_agent_mcp.system.git import git

if TYPE_CHECKING:
    from multi_agent_mcp.domain.agent import Agent
    from multi_agent_mcp.services.repository.worktrees import Worktrees

_CALLS = re.compile(r"stash|checkout|switch")
_QUOTED_MAX = 10_000
"""Longer parts of a command are split at blanks alone, as a host does not wait long."""
_SEPARATOR = re.compile(r"[;&|()\n]+")
_LOOKS = frozenset({"list", "show"})
_WITH_VALUE = frozenset({"-C", "-c", "--git-dir", "--work-tree", "--namespace", "--exec-path"})
_MAKES = ("-b", "-B", "-c", "-C", "--create", "--force-create", "--orphan", "-d", "--detach")
_FILES = frozenset({"--", "-p", "--patch", "--ours", "--theirs", "--pathspec-from-file"})


@dataclass(eq=False)
class Guard(Service):
    """Refuses such commands where `guard: true` stands in session.yaml, and by default to agents in worktrees."""

    worktrees: Worktrees

    def why_not(self, agent: Agent, command: str, cwd: str) -> str | None:
        """Why a shell command must not be run, with what to do instead; None if it may be."""
        is_on = self.session.settings.repository.guard
        if not (self.worktrees.of(agent.id) is not None if is_on is None else is_on) or not self._is_shared(cwd):
            return None
        for words in git_calls(command):
            if words[0] == "stash" and not (len(words) > 1 and words[1] in _LOOKS):
                return self.texts("guard.stash")
            branch = switched_to(words)
            if branch is not None and (_is_earlier(branch) or _is_branch(cwd, branch)):
                return self.texts("guard.switch", branch=quoted(branch))
        return None

    def _is_shared(self, cwd: str) -> bool:
        tree = tree_of(f"{cwd}/-")
        try:
            return tree is not None and same_repository(tree, str(self.worktrees.project))
        except InvalidArguments:
            return False


def git_calls(command: str) -> Iterator[Sequence[str]]:
    """Yields the words of each call of git in a shell command from its subcommand on, as far as they can be told."""
    for part in _SEPARATOR.split(command):
        if "git" not in part or _CALLS.search(part) is None:
            continue
        try:
            words = shlex.split(part) if len(part) <= _QUOTED_MAX else part.split()
        except ValueError:  # a quote that spans a separator
            words = part.split()
        words = [*dropwhile(lambda word: word.rpartition("/")[2] != "git", words)][1:]
        while words and words[0].startswith("-"):
            words = words[2:] if words[0] in _WITH_VALUE else words[1:]
        if words:
            yield words


def switched_to(words: Sequence[str]) -> str | None:
    """The branch to which a call of git switches, if it makes none; None for any other call."""
    if words[0] not in ("switch", "checkout"):
        return None
    words = words[:-1] if words[-1] == "--" else words  # no file follows
    options = [word for word in words[1:] if word.startswith("-") and word != "-"]
    if any(option.split("=")[0] in _MAKES for option in options) or _FILES & set(options):
        return None
    names = [word for word in words[1:] if not word.startswith("-") or word == "-"]
    return names[0] if len(names) == 1 else None


def _is_earlier(branch: str) -> bool:
    """Whether this is the branch of before (git-checkout(1), `@{-N}`)."""
    return branch == "-" or branch.startswith("@{-")


def _is_branch(cwd: str, name: str) -> bool:
    return bool(git(cwd, "rev-parse", "--verify", "--quiet", f"refs/heads/{name}", ok=(0, 1, 128)))
