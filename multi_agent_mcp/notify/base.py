"""What a rung of the ladder is."""

from __future__ import annotations

from typing import Protocol

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.delivery import Delivery


class Notifier(Protocol):
    """One way to ring. Returns how far it got; `stored` with a reason means that this way was not usable now."""

    name: str

    def ring(self, agent: Agent, line: str) -> Delivery: ...


class Rung(Notifier, Protocol):
    """A way to ring that can also be asked why it could not."""

    def check(self, agent: Agent) -> str | None:
        """Why `ring` would not get across at this moment, or None. Types nothing, shows nothing, never raises."""
        ...
