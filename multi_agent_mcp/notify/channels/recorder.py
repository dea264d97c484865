"""A channel that only records its rings: for tests, and for agents that no human or program plays."""

from __future__ import annotations

from dataclasses import dataclass, field

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.delivery import Delivery
from multi_agent_mcp.notify.channel import Channel


@dataclass
class Recorder(Channel):
    """Records every ring and returns `outcome`."""

    outcome: Delivery = field(default_factory=lambda: Delivery("submitted"))
    name: str = "recorder"
    rings: list[tuple[str, str]] = field(default_factory=list)

    def check(self, agent: Agent) -> str | None:  # noqa: ARG002 - the same for everybody
        return self.outcome.reason if self.outcome.state == "stored" else None

    def ring(self, agent: Agent, line: str) -> Delivery:
        self.rings.append((agent.id, line))
        return self.outcome
