"""When an agent whose host has met a usage limit is rung: not until it is reset and the host has had its time to go on
by itself, then once (docs/protocol.md, Limited agents)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from multi_agent_mcp.domain.delivery import DoorbellItem, Due, GoOn, Pauses
from multi_agent_mcp.domain.times import parse_time
from multi_agent_mcp.session import Service

if TYPE_CHECKING:
    from datetime import datetime

    from multi_agent_mcp.domain.agent import Agent
    from multi_agent_mcp.usage.limit import Limit
    from multi_agent_mcp.usage.limits import UsageLimits


@dataclass(eq=False)
class LimitedRings(Service):
    """The rings of one session's agents that have met a usage limit."""

    limits: UsageLimits

    def hold(self, agent_id: str) -> LimitHold | None:
        """What holds the rings for an agent; None if nothing does."""
        limit = self.limits.of(agent_id)
        return None if limit is None else LimitHold(limit, self.limits)


@dataclass(frozen=True)
class LimitHold:
    """As `doorbell.ringing.Hold`: the episode of a usage limit, also after its reset, until the agent acts."""

    limit: Limit
    limits: UsageLimits

    reason: ClassVar[str] = "limited"

    @property
    def has_ring_to_come(self) -> bool:
        return self.limit.next_ring is not None

    @property
    def lasts(self) -> bool:
        return self.limit.holds_until(self.limits.clock()) is not None

    def decides(self, unread: Callable[[], Sequence[DoorbellItem]]) -> bool:
        """After its one ring it decides until the agent acts, unless something has arrived since."""
        rung_at = self.limit.rung_at
        if self.has_ring_to_come or rung_at is None:
            return True
        return not any(self._arrived(item) > rung_at for item in unread())

    def take_due(
        self, agent: Agent, purpose: str | None, unread: Callable[[], Sequence[DoorbellItem]], pauses: Pauses
    ) -> Due[DoorbellItem]:
        limit, now, policy = self.limit, self.limits.clock(), self.limits.policy(agent)
        if not self.has_ring_to_come:
            return Due()
        if policy != "off" and (until := limit.holds_until(now)) is not None:
            return Due(after=until - now)
        found = unread()
        if policy == "tell" and not any(limit.until and self._arrived(item) > limit.until for item in found):
            return Due(after=pauses.longest)
        if self.limits.contributions.ask("is_at_work", agent):
            self.limits.acted(agent.id)
            return Due(after=pauses.shortest)
        items: list[DoorbellItem] = [*found] or self._to_go_on(agent, purpose)
        if not items and limit.until is not None:
            return Due(after=pauses.longest)  # its one ring is for what comes
        if not items:
            self.rung()
        return Due(tuple(items))

    def _arrived(self, item: DoorbellItem) -> datetime:
        """When it came to the agent: what was for whoever is free may be older than a limit that is over."""
        taken = self.limits.contributions.ask("taken", item.id) or {}
        return max(item.created_at, parse_time(taken.get("taken_at")) or item.created_at)

    def rung(self) -> None:
        self.limits.rung(self.limit.agent_id)

    def _to_go_on(self, agent: Agent, purpose: str | None) -> list[DoorbellItem]:
        """What an agent with nothing unread is told after its limit: to go on, if its task session holds a task."""
        holds = purpose != "chat" and self.limits.workspace.tasks.in_progress(agent.id)
        if not holds or self.limits.contributions.service("notifications").is_paused(agent.id):
            return []
        limit = self.limit
        return [GoOn(f"limit-{agent.id}-{limit.until_said}-{limit.probes}", limit.beginning)]
