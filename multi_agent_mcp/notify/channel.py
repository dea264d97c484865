"""What a rung of the ladder is."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.delivery import Delivery

LINE_GONE = "line_gone"


class Notifier(Protocol):
    """One way to ring. Returns how far it got; `stored` with a reason means that this way was not usable now."""

    name: str

    def ring(self, agent: Agent, line: str) -> Delivery: ...


class Channel(Notifier, Protocol):
    """A way to ring that can also be asked why it could not."""

    def check(self, agent: Agent) -> str | None:
        """Why `ring` would not get across at this moment, or None. Types nothing, shows nothing, never raises."""
        ...


@runtime_checkable
class Finisher(Protocol):
    """A notifier that may leave a line standing, typed but not entered."""

    def finish(self, agent: Agent) -> Delivery:
        """Enters what was left standing: `submitted`, or `stored` with the reason; `line_gone`: nothing is left."""
        ...
