"""A worktree as it is recorded, as git knows it, and what would be lost with it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from multi_agent_mcp.system.working_tree import Unmerged


@dataclass(frozen=True)
class Worktree:
    """The record of a worktree. `base` is the commit that it began with, `setup` what became of the setup: None before
    it has run, `done`, or `failed`; `kept` why it was not removed although somebody wanted that; `place` where the team
    is below the top of the project, "" for the top itself."""

    agent_id: str
    path: str
    branch: str
    base: str
    port_base: int
    setup: str | None = None
    kept: str | None = None
    place: str = ""

    @property
    def is_there(self) -> bool:
        """Whether its directory is a working tree still."""
        return Path(self.path, ".git").exists()

    @property
    def directory(self) -> str:
        """Where the agent works: the team's place in the worktree, as far as that is there."""
        there = Path(self.path, self.place)
        while not there.is_dir() and there != Path(self.path):
            there = there.parent
        return str(there)


@dataclass(frozen=True)
class WorktreeState:
    """A worktree as git knows it now: its HEAD, the commits that the project's branch does not have, the files that are
    not committed. Of one whose directory is gone the files are unknown (`is_there`)."""

    worktree: Worktree
    head: str
    ahead: int
    behind: int
    dirty: tuple[str, ...]
    is_there: bool


@dataclass(frozen=True, kw_only=True)
class Holdings:
    """What would be lost with a worktree: a command of git that is not finished, files that are not committed, commits
    that the project's branch does not have (with the branches that lead to them), submodules with something of their
    own, ignored files; whether git has it locked; the tasks that its agent
    works on, or that are reported or in review."""

    worktree: Worktree
    unmerged: Unmerged
    in_progress: str | None = None
    dirty: tuple[str, ...] = ()
    submodules: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    is_locked: bool = False
    tasks: tuple[str, ...] = ()

    @property
    def keeps(self) -> str | None:
        """The weightiest reason why it must not be removed, or None."""
        return next(iter(self.reasons()), None)

    def reasons(self, *, discards: bool = False) -> tuple[str, ...]:
        """Why it must not be removed, the weightiest reason first; with `discards` not for ignored files."""
        holds = {
            "in_progress": self.in_progress,
            "dirty": self.dirty,
            "unmerged": self.unmerged.commits,
            "tasks": self.tasks,
            "submodules": self.submodules,
            "ignored": () if discards else self.ignored,
            "locked": self.is_locked,
        }
        return tuple(reason for reason, held in holds.items() if held)
