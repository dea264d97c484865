"""The interface of a channel, one way to ring an agent."""

from __future__ import annotations

import subprocess
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from multi_agent_mcp.domain.delivery import MANY, About, ChannelReport, Delivery

if TYPE_CHECKING:
    from multi_agent_mcp.domain.agent import Agent

LINE_GONE = "line_gone"
HOOK = "hook"
"""The channel that leaves the ring to a waiter in the host, and the reason that the delivery log gives for it."""

CALL_SECONDS = 5.0


def has_taken(call: Sequence[str], environment: Mapping[str, str] | None = None) -> bool:
    """Runs `call`; whether it exited with 0 within `CALL_SECONDS`."""
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
        """The reason why `ring` would fail at this moment, or None. Types nothing, shows nothing, never raises."""

    @abstractmethod
    def ring(self, agent: Agent, line: str, about: About = MANY) -> Delivery:
        """Rings the agent. The state `stored`, with a reason, means that this channel is not usable now."""

    def ring_at_once(self, agent: Agent, line: str, about: About) -> Delivery | None:  # noqa: ARG002 - most are no phone
        """Rings a person's phone, whatever was rung before; None if the person has none."""
        return None

    def finish(self, agent: Agent) -> Delivery:  # noqa: ARG002 - most leave no line behind
        """Enters a line that an earlier attempt typed but did not enter: `submitted`, or `stored` with the reason,
        which is `line_gone` when no such line is left."""
        return Delivery("stored", LINE_GONE)

    def clear(self, agent: Agent) -> None:  # noqa: B027 - most show nothing that lasts
        """Removes anything still displayed, by whichever process; called when nothing is unread any more."""

    def names(self, agent: Agent) -> tuple[str, ...]:  # noqa: ARG002 - only a chain differs between agents
        """The names of the agent's channels, strongest first."""
        return (self.name,)

    def explain(self, agent: Agent, *, is_silent: bool = False) -> tuple[ChannelReport, ...]:  # noqa: ARG002
        """The names of the agent's channels and their `check`, strongest first. `is_silent`: its tmux did not answer a
        moment ago, and is not asked again."""
        return (ChannelReport(self.name, self.check(agent)),)


# A channel that only records its rings: for tests, and for agents that no human or program plays.


@dataclass
class Recorder(Channel):
    """Records every ring and returns `outcome`."""

    outcome: Delivery = field(default_factory=lambda: Delivery("submitted"))
    name: str = "recorder"
    rings: list[tuple[str, str]] = field(default_factory=list)

    def check(self, agent: Agent) -> str | None:  # noqa: ARG002 - the same for everybody
        return self.outcome.reason if self.outcome.state == "stored" else None

    def ring(self, agent: Agent, line: str, about: About = MANY) -> Delivery:  # noqa: ARG002 - the line says enough
        self.rings.append((agent.id, line))
        return self.outcome
