"""Findings, and the context of the checks that produce them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from multi_agent_mcp.store.directory import QUARANTINE

if TYPE_CHECKING:
    from multi_agent_mcp.domain.agent import Agent
    from multi_agent_mcp.domain.hosts.dialog import Dialog
    from multi_agent_mcp.domain.session import AgentSession
    from multi_agent_mcp.services.notifications.derived import DerivedNotices
    from multi_agent_mcp.services.operations import Operations
    from multi_agent_mcp.services.overview.stuck_agents import LookAtPane, StuckAgents
    from multi_agent_mcp.services.overview.supervision import MissingSessions, Supervision
    from multi_agent_mcp.services.questions.effects import QuestionEffects
    from multi_agent_mcp.services.repository.worktrees import Worktrees
    from multi_agent_mcp.services.sessions.agent_sessions import Sessions
    from multi_agent_mcp.services.sessions.owner_waits import OwnerWaits
    from multi_agent_mcp.services.tasks.checks import Checks
    from multi_agent_mcp.services.team.agents import Agents, Signatures
    from multi_agent_mcp.store.workspace import Workspace
    from multi_agent_mcp.system.files import Node
    from multi_agent_mcp.texts import Texts

# Disk usage of a session, by kind of file.

ASIDE = frozenset({"archive", "logs", QUARANTINE})
"""Subdirectories of a kind that are counted separately."""


class Usage:
    """The number of files and their size on the disk, by kind: `ipc`, `ipc/archive`, `executions/logs`, …"""

    def __init__(self) -> None:
        self._files: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()

    def add(self, node: Node) -> None:
        kind = _kind(node.name.rpartition("/")[0])
        self._files[kind] += not node.is_directory
        self._bytes[kind] += node.disk_bytes

    def files(self, *kinds: str) -> int:
        return sum(self._files[kind] for kind in kinds)

    def as_answer(self) -> list[dict[str, Any]]:
        """The kinds with their numbers of files and bytes, largest first."""
        return [{"kind": kind, "files": self._files[kind], "bytes": size} for kind, size in self._bytes.most_common()]


@lru_cache(maxsize=64)  # the files of a directory are adjacent
def _kind(directory: str) -> str:
    first, *deeper = directory.split("/")
    aside = [] if first.startswith(".") else [part for part in deeper if part in ASIDE]
    return "/".join([first or ".", *aside[:1]])


PROBLEM, NOTE = "problem", "note"

T = TypeVar("T")


class Track(Protocol):
    """Passes items on, and may display their count. `name` says what they are; `total` is their approximate number,
    None if unknown."""

    def __call__(self, items: Iterable[T], name: str, total: int | None, /) -> Iterable[T]: ...


def untracked(items: Iterable[T], _name: str, _total: int | None) -> Iterable[T]:
    return items


@dataclass(frozen=True)
class Finding:
    """A result of a check. A `problem` makes `doctor` exit with 1, a `note` does not. `repair` describes the remedy;
    `fix`, if any, is called by `doctor --repair` and loses nothing that can be read."""

    check: str
    level: str
    subject: str
    finding: str
    repair: str = ""
    fix: Callable[[], object] | None = field(default=None, compare=False, repr=False)

    def as_answer(self) -> dict[str, Any]:
        answer = {name: getattr(self, name) for name in ("check", "level", "subject", "finding", "repair")}
        return {**answer, "repairable": self.fix is not None}


@dataclass(frozen=True)
class CheckContext:
    """The services and texts that checks use. `probe` returns why an agent's pane cannot be rung, or None; `program`
    the files that run there; `look_at` the host in the pane; `hosts` are the names of the usable profiles,
    `profiles_left_out` the unusable files and why; `notify_command` is that of `Settings`. `dialog` reads the question
    in an agent's pane; `hooks_ran` tells whether a session's host has run a hook of ours. `uncounted` returns the
    agents whose usage is not known. `track` is passed items of which there may be very many; the walk through the
    session's directory adds to `usage`."""

    workspace: Workspace
    agents: Agents
    sessions: Sessions
    owner_waits: OwnerWaits
    missing_sessions: MissingSessions
    supervision: Supervision
    derived: DerivedNotices
    question_effects: QuestionEffects
    stuck_agents: StuckAgents
    signatures: Signatures
    checks: Checks
    operations: Operations
    texts: Texts
    probe: Callable[[Agent], str | None]
    program: Callable[[Agent], str]
    look_at: LookAtPane
    hosts: Collection[str]
    profiles_left_out: Mapping[str, str]
    notify_command: Sequence[str] | None
    worktrees: Worktrees
    dialog: Callable[[Agent], Dialog | None]
    hooks_ran: Callable[[AgentSession], bool]
    uncounted: Callable[[], Collection[str]] = tuple
    track: Track = untracked
    usage: Usage = field(default_factory=Usage)

    def found(
        self, check: str, level: str, subject: str, key: str, fix: Callable[[], object] | None = None, /, **values: Any
    ) -> Finding:
        """A finding with the texts `finding.{key}` and `repair.{key}`, filled with `values`."""
        repair = f"repair.{key}"
        words = self.texts(repair, **values) if repair in self.texts else ""
        return Finding(check, level, subject, self.texts(f"finding.{key}", **values), words, fix)
