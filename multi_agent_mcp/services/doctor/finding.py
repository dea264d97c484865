"""Findings, and what the checks get to work with."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.services.doctor.usage import Usage
from multi_agent_mcp.services.notices.derived import DerivedNotices
from multi_agent_mcp.services.operations import Operations
from multi_agent_mcp.services.overview.missing_sessions import MissingSessions
from multi_agent_mcp.services.overview.pane_looks import LookAtPane
from multi_agent_mcp.services.overview.stuck_agents import StuckAgents
from multi_agent_mcp.services.sessions.agent_sessions import Sessions
from multi_agent_mcp.services.sessions.owner_waits import OwnerWaits
from multi_agent_mcp.services.team.agents import Agents
from multi_agent_mcp.services.team.signatures import Signatures
from multi_agent_mcp.store.workspace import Workspace
from multi_agent_mcp.texts import Texts

PROBLEM, NOTE = "problem", "note"

T = TypeVar("T")


class Track(Protocol):
    """Passes items on, and may show somebody how many of them have passed. `name` says what they are, `total` how many
    about there are, if that is known."""

    def __call__(self, items: Iterable[T], name: str, total: int | None, /) -> Iterable[T]: ...


def untracked(items: Iterable[T], _name: str, _total: int | None) -> Iterable[T]:
    return items


@dataclass(frozen=True)
class Finding:
    """`level`: a `problem` makes `doctor` exit with 1, a `note` does not. `repair` says what helps; with `fix`
    `doctor --repair` does it, and loses nothing that can be read."""

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
    """The services that checks use, and the words for what they find. `probe` says why an agent's pane cannot be rung,
    or None; `look_at` which host is there; `hosts` are the names of the profiles by which a pane can be looked at,
    `profiles_left_out` the files of others that cannot be used, and why; `notify_command` is that of `Settings`.
    `track` gets what there may be very many of; the walk through the session's directory adds to `usage`."""

    workspace: Workspace
    agents: Agents
    sessions: Sessions
    owner_waits: OwnerWaits
    missing_sessions: MissingSessions
    derived: DerivedNotices
    stuck_agents: StuckAgents
    signatures: Signatures
    operations: Operations
    texts: Texts
    probe: Callable[[Agent], str | None]
    look_at: LookAtPane
    hosts: Collection[str]
    profiles_left_out: Mapping[str, str]
    notify_command: Sequence[str] | None
    track: Track = untracked
    usage: Usage = field(default_factory=Usage)

    def found(
        self, check: str, level: str, subject: str, key: str, fix: Callable[[], object] | None = None, /, **values: Any
    ) -> Finding:
        """The finding in words: the texts `finding.{key}` and `repair.{key}`, filled with `values`."""
        repair = f"repair.{key}"
        words = self.texts(repair, **values) if repair in self.texts else ""
        return Finding(check, level, subject, self.texts(f"finding.{key}", **values), words, fix)
