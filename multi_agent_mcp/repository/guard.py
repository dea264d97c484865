"""Commands of git that take work from others in the same repository (docs/protocol.md, Guard).

`git stash` is shared by all worktrees (git-stash(1)), switching the branch of a shared directory changes every file
under the hands of those who work there, and `git clean -x` takes the session itself, which git ignores."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from multi_agent_mcp.domain.shell import (
    GIT_OPTIONS_WITH_VALUE,
    IN_QUOTES,
    NESTED_MAX,
    SHELLS,
    SUBSTITUTED,
    given_to_shell,
    simple_commands,
    without_documents,
)
from multi_agent_mcp.domain.text import quoted
from multi_agent_mcp.errors import InvalidArguments, Refusal
from multi_agent_mcp.repository.worktrees import same_repository
from multi_agent_mcp.session import Service
from multi_agent_mcp.system.file_status import tree_of
from multi_agent_mcp.system.git import git

if TYPE_CHECKING:
    from multi_agent_mcp.domain.agent import Agent
    from multi_agent_mcp.hooks.answers import ToolCalls
    from multi_agent_mcp.hooks.first_look import ToolCall
    from multi_agent_mcp.repository.worktrees import Worktrees

_LOOKS = frozenset({"list", "show"})
_MAKES = ("-b", "-B", "-c", "-C", "--create", "--force-create", "--orphan", "-d", "--detach")
_FILES = frozenset({"--", "-p", "--patch", "--ours", "--theirs", "--pathspec-from-file"})
_QUIETLY = re.compile(r"--quiet|--interactive|-[qi]+")
_WOULD_REMOVE = "Would remove "


@dataclass(eq=False)
class Guard(Service):
    """Refuses what takes work from others where `guard: true` is in session.yaml, and by default to agents in
    worktrees; what would remove the session or a worktree it refuses to everybody, except with `guard: false`."""

    worktrees: Worktrees

    def why_not(self, agent: Agent, command: str, cwd: str) -> str | None:
        """Why a shell command must not be run, with what to do instead; None if it may be."""
        is_on = self.session.settings.of("guard")
        if is_on is False:
            return None
        is_guarded = is_on or self.worktrees.of(agent.id) is not None
        reasons = (
            self._why_not_clean(call) or (self._why_not_switch(call) if is_guarded else None)
            for call in git_calls(command, cwd)
        )
        return next(filter(None, reasons), None)

    def _why_not_switch(self, call: GitCall) -> str | None:
        place, words = call
        if words[0] == "stash" and not (len(words) > 1 and words[1] in _LOOKS):
            return self.texts("guard.stash") if self._is_shared(place) else None
        branch = switched_to(words)
        if branch is not None and self._is_shared(place) and (_is_earlier(branch) or _is_branch(place, branch)):
            return self.texts("guard.switch", branch=quoted(branch))
        return None

    def _why_not_clean(self, call: GitCall) -> str | None:
        """Asks git itself what the call would remove."""
        place, words = call
        if words[0] != "clean":
            return None
        options = [word for word in words[1:] if not _QUIETLY.fullmatch(word)]
        options = [re.sub(r"[qi]", "", word) if re.fullmatch(r"-[a-zA-Z]+", word) else word for word in options]
        with suppress(Refusal):
            for line in git(place, "clean", "--dry-run", *options).splitlines():
                removed = Path(os.path.realpath(Path(place, line.removeprefix(_WOULD_REMOVE).strip('"'))))
                if line.startswith(_WOULD_REMOVE) and (taken := self._taken_with(removed)) is not None:
                    return self.texts("guard.clean", path=taken)
        return None

    def _taken_with(self, removed: Path) -> Path | None:
        """The session's root or the worktree that is lost with this path."""
        root = Path(os.path.realpath(self.session.root))
        if removed.is_relative_to(root):
            return root
        ours = (root, *(Path(os.path.realpath(one.path)) for one in self.worktrees.all()))
        return next((path for path in ours if path.is_relative_to(removed)), None)

    def _is_shared(self, place: str) -> bool:
        tree = tree_of(f"{place}/-")
        try:
            return tree is not None and same_repository(tree, str(self.worktrees.project))
        except InvalidArguments:
            return False


class GitCall(NamedTuple):
    """A call of git in a shell command: the directory in which it runs, and its words from the subcommand on."""

    place: str
    words: Sequence[str]


def git_calls(command: str, cwd: str, depth: int = 0) -> Iterator[GitCall]:
    """Yields the calls of git in a shell command, as far as they can be told: also those in substitutions, and in
    what another shell is given (`bash -c`)."""
    text = "\n".join(without_documents(command.replace("\\\n", "")))
    if depth < NESTED_MAX:
        for quoted in IN_QUOTES.finditer(text):
            for inner in SUBSTITUTED.finditer(quoted[1] or ""):
                yield from git_calls(inner[1] or inner[2], cwd, depth + 1)
    for words in simple_commands(text):
        program, rest = os.path.basename(words[0]), words[1:]  # noqa: PTH119 - a word
        if program == "cd" and rest:
            cwd = str(Path(cwd, Path(rest[-1]).expanduser()))
        elif program == "git":
            yield from _git_call(rest, cwd)
        elif program in SHELLS or program == "eval":
            given = " ".join(rest) if program == "eval" else given_to_shell(rest)
            if given and depth < NESTED_MAX:
                yield from git_calls(given, cwd, depth + 1)


def _git_call(words: Sequence[str], cwd: str) -> Iterator[GitCall]:
    while words and words[0].startswith("-"):
        if words[0] == "-C" and len(words) > 1:
            cwd = str(Path(cwd, Path(words[1]).expanduser()))
        words = words[2:] if words[0] in GIT_OPTIONS_WITH_VALUE else words[1:]
    if words:
        yield GitCall(cwd, words)


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


def judge(calls: ToolCalls, agent: Agent, call: ToolCall) -> str | None:
    """Why a command must not be run that takes work from others."""
    if not call.may_be_guarded:
        return None
    guard: Guard = calls.contributions.service("guard")
    return guard.why_not(agent, call.command, call.cwd)
