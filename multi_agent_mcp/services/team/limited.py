"""Which agents do nothing for a time because their hosts have met a usage limit. The feature `usage` knows; without it
nobody is limited."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from multi_agent_mcp.domain.times import format_time
from multi_agent_mcp.session import Service

UNKNOWN = "unknown"


class Limited(NamedTuple):
    """A usage limit of an agent's host: `since` when, `until` its reset, None if that is unknown, the `window` in the
    host's words, a sentence that says all this, and whether it `lasts`: else it was reset, and the agent has not acted
    since."""

    agent_id: str
    since: datetime
    until: datetime | None
    window: str | None
    words: str
    lasts: bool

    @property
    def until_said(self) -> str:
        """The reset for answers and views."""
        return UNKNOWN if self.until is None else format_time(self.until)


@dataclass(eq=False)
class LimitedAgents(Service):
    def of(self, agent_id: str) -> Limited | None:
        """The agent's limit, also between its reset and the agent's next act."""
        found: Limited | None = self.contributions.ask("limit", agent_id)
        return found

    def now(self, agent_id: str) -> Limited | None:
        """The agent's limit if it is limited now."""
        found = self.of(agent_id)
        return found if found is not None and found.lasts else None

    def all(self) -> dict[str, Limited]:
        """The agents that are limited now."""
        found = {agent_id: self.now(agent_id) for agent_id in self.workspace.registry.active()}
        return {agent_id: limited for agent_id, limited in found.items() if limited is not None}
