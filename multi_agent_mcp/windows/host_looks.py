"""What the supervisor sees of hosts beside their panes' state: usage limits, and what their models took
(docs/protocol.md, Limited agents, What it costs)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from multi_agent_mcp.errors import Refusal
from multi_agent_mcp.hosts import host_named

if TYPE_CHECKING:
    from datetime import datetime

    from multi_agent_mcp.domain.agent import Agent
    from multi_agent_mcp.domain.usage import Limit
    from multi_agent_mcp.wiring import Services

LOOK_EVERY_SECONDS = 4.0
SCREENS_EVERY = 8
"""Of how many looks one reads the screens of hosts that tell of a limit by a hook or a file, too."""


class HostLooks:
    """Looks at the files and screens of one session's hosts every few seconds. It keeps nothing that is needed."""

    def __init__(self, services: Services) -> None:
        self.services = services
        self._looked_at = 0.0
        self._looks = 0
        self._limited: set[tuple[str, datetime]] = set()

    def look(self) -> Iterator[Limit]:
        """Takes in what the hosts tell, if it is time to; yields the limits that were not seen in this process before.
        Rings agents without a server whose limit was reset. Raises `Refusal`."""
        if time.monotonic() - self._looked_at < LOOK_EVERY_SECONDS:
            return
        self._looked_at = time.monotonic()
        if self.services.usage.has_news():
            self.services.usage.refresh(recent=True)
            self.services.budgets.check()
        for agent in self._with_screens():
            if (shown := self.services.pane_notifier.limit(agent)) is not None:
                self.services.limits.shown(agent, *shown)
        self._looks += 1
        self.services.limits.tell()
        for limit in self.services.limits.all().values():
            if (limit.agent_id, limit.beginning) not in self._limited:
                self._limited.add((limit.agent_id, limit.beginning))
                yield limit
        self._ring()

    def _with_screens(self) -> list[Agent]:
        """The agents whose screens are to be read now: of most hosts a hook or a file tells sooner."""
        return [
            agent
            for agent in self.services.agents.all().values()
            if agent.pane_id is not None
            and not agent.may_be_human
            and self.services.limits.now(agent.id) is None
            and (host := host_named(agent.host)) is not None
            and host.limits.screen
            and (host.limits.is_on_screen_only or self._looks % SCREENS_EVERY == 0)
        ]

    def _ring(self) -> None:
        """Rings for agents that have a limit and no server that would do it."""
        for agent_id, agent in self.services.agents.all().items():
            with suppress(Refusal):
                awaits = not agent.may_be_human and self.services.doorbell.awaits_reset(agent_id)
                if awaits and not self.services.sessions.served_purposes(agent_id):
                    self.services.doorbell.ring(agent_id)
