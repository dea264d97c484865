"""What a channel is: one way to ring an agent."""

from __future__ import annotations

import subprocess
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.delivery import ChannelReport, Delivery

LINE_GONE = "line_gone"
HOOK = "hook"
"""The channel that leaves the ring to a waiter in the host, and the reason that the delivery log gives for it."""

CALL_SECONDS = 5.0


def has_taken(call: Sequence[str], environment: Mapping[str, str] | None = None) -> bool:
    """Whether a program that was given a line ended with 0, in time."""
    quiet = subprocess.DEVNULL
    try:
        done = subprocess.run(
            call, env=environment, stdin=quiet, capture_output=True, timeout=CALL_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


class Channel(ABC):
    """A way to ring, or the chain of all of them."""

    name: str

    @abstractmethod
    def check(self, agent: Agent) -> str | None:
        """Why `ring` would not get across at this moment, or None. Types nothing, shows nothing, never raises."""

    @abstractmethod
    def ring(self, agent: Agent, line: str) -> Delivery:
        """Returns how far it got; `stored` with a reason means that this way was not usable now."""

    def finish(self, agent: Agent) -> Delivery:  # noqa: ARG002 - most leave no line behind
        """Enters a line that an earlier attempt left behind, typed but not entered: `submitted`, or `stored` with the
        reason; `line_gone`: nothing is left."""
        return Delivery("stored", LINE_GONE)

    def clear(self, agent: Agent) -> None:  # noqa: B027 - most show nothing that lasts
        """Nothing is unread any more: takes back what is still on show, whichever process has put it there."""

    def explain(self, agent: Agent) -> tuple[ChannelReport, ...]:
        """As `check`, with the name, for every channel that the agent has, the strongest first."""
        return (ChannelReport(self.name, self.check(agent)),)
