"""Where agents work on this machine: in a place that a feature makes for each of them (a worktree), else wherever their
host was started."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from multi_agent_mcp.session import Service

if TYPE_CHECKING:
    from multi_agent_mcp.domain.agent import Agent
    from multi_agent_mcp.system.commits import CommitPlace

RECORDS = ".workspaces"
"""The directory of their records, which is not there as long as nobody has one: then looking costs a stat(2)."""


class Workplace(Protocol):
    """A place of an agent's own: `path` is its top, `directory` where the agent works in it."""

    @property
    def path(self) -> str: ...

    @property
    def directory(self) -> str: ...

    @property
    def branch(self) -> str: ...


@dataclass(eq=False)
class Workplaces(Service):
    def of(self, agent_id: str) -> Workplace | None:
        """The agent's own place; None if it has none."""
        found: Workplace | None = self.contributions.ask("workplace", agent_id) if self._are_there() else None
        return found

    def directory(self, agent_id: str) -> Path | None:
        """The directory of the agent's own place, if that is there."""
        found = self.of(agent_id)
        return Path(found.directory) if found is not None and Path(found.path).is_dir() else None

    def head(self, agent_id: str) -> str | None:
        """The commit that the agent's own place is at; None without one. Never raises."""
        if (place := self.directory(agent_id)) is None:
            return None
        from multi_agent_mcp.system.git import NO_HEAD, head_of

        found = head_of(place)
        return None if found == NO_HEAD else found

    def commit_place(self, agent_id: str) -> CommitPlace | None:
        """The agent's own place, if our server commits in it."""
        found: CommitPlace | None = self.contributions.ask("commit_place", agent_id) if self._are_there() else None
        return found

    def wants(self, agent: Agent) -> bool:
        """Whether the agent is to have a place of its own."""
        return bool(self.contributions.ask("wants_workplace", agent))

    def ensure(self, agent: Agent) -> None:
        """Makes the agent's own place if it has none. Raises `Refusal`."""
        self.contributions.ask("make_workplace", agent)

    def environment(self, agent_id: str) -> dict[str, str]:
        """The variables that the agent's programs get because of its place."""
        found: dict[str, str] | None = self.contributions.ask("variables", agent_id) if self._are_there() else None
        return found or {}

    def prompt(self, agent_id: str) -> str:
        """What the agent is told about its place; "" without one."""
        if (place := self.of(agent_id)) is None:
            return ""
        key = "prompt.worktree" if self.commit_place(agent_id) is None else "prompt.worktree.committed"
        return self.texts(key, branch=place.branch)

    def _are_there(self) -> bool:
        return (self.workspace.path / RECORDS).is_dir()
