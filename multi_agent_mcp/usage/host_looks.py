"""What the supervisor looks at beside the panes' state: usage limits, and what the models of agents took
(docs/protocol.md, Limited agents, What it costs)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from multi_agent_mcp.errors import Refusal
from multi_agent_mcp.session import Service
from multi_agent_mcp.usage.limit import limit_rules_of

if TYPE_CHECKING:
    from multi_agent_mcp.domain.agent import Agent
    from multi_agent_mcp.doorbell.ringing import Doorbell
    from multi_agent_mcp.doorbell.tmux.notifier import TmuxNotifier
    from multi_agent_mcp.services.sessions.agent_sessions import Sessions
    from multi_agent_mcp.services.team.agents import Agents
    from multi_agent_mcp.usage.budgets import Budgets
    from multi_agent_mcp.usage.limits import UsageLimits
    from multi_agent_mcp.usage.usage import Usage

LOOK_EVERY_SECONDS = 4.0
SCREENS_EVERY = 8
"""Of how many looks one reads the screens of hosts that tell of a limit by a hook or a file, too."""


@dataclass(eq=False)
class HostLooks(Service):
    """Looks at the files and screens of one session's hosts every few seconds. It keeps nothing that is needed."""

    agents: Agents
    sessions: Sessions
    usage: Usage
    budgets: Budgets
    limits: UsageLimits
    doorbell: Doorbell
    pane_notifier: TmuxNotifier
    _looked_at: float = field(default=0.0, init=False)
    _looks: int = field(default=0, init=False)
    _limited: set[tuple[str, datetime]] = field(default_factory=set, init=False)

    def look(self) -> list[str]:
        """Takes in what the hosts tell, if it is time to; returns a sentence for each limit that was not seen in this
        process before. Rings agents without a server whose limit was reset. Raises `Refusal`."""
        if time.monotonic() - self._looked_at < LOOK_EVERY_SECONDS:
            return []
        self._looked_at = time.monotonic()
        if self.usage.has_news():
            self.usage.refresh(recent=True)
            self.budgets.check()
        for agent in self._with_screens():
            if (shown := self.pane_notifier.limit(agent)) is not None:
                self.limits.saw_on_screen(agent, *shown)
        self._looks += 1
        self.limits.tell()
        found = list(self._new())
        self._ring()
        return found

    def _new(self) -> Iterator[str]:
        for limit in self.limits.all().values():
            if (limit.agent_id, limit.beginning) not in self._limited:
                self._limited.add((limit.agent_id, limit.beginning))
                yield self.limits.sentence(limit)

    def _with_screens(self) -> list[Agent]:
        """The agents whose screens are to be read now: of most hosts a hook or a file tells sooner."""
        return [
            agent
            for agent in self.agents.all().values()
            if agent.pane_id is not None
            and not agent.may_be_human
            and self.limits.now(agent.id) is None
            and (rules := limit_rules_of(agent.host)) is not None
            and rules.screen
            and (rules.is_on_screen_only or self._looks % SCREENS_EVERY == 0)
        ]

    def _ring(self) -> None:
        """Rings for agents that have a limit and no server that would do it."""
        for agent_id, agent in self.agents.all().items():
            with suppress(Refusal):
                awaits = not agent.may_be_human and self.doorbell.has_ring_to_come(agent_id)
                if awaits and not self.sessions.served_purposes(agent_id):
                    self.doorbell.ring(agent_id)
