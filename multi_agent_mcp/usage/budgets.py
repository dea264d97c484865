"""Budgets of tokens, and contexts that are nearly full (docs/protocol.md, What it costs, Budgets)."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from multi_agent_mcp.domain.agent import Agent, nearest_superior
from multi_agent_mcp.domain.notification import Notification, derived_id
from multi_agent_mcp.domain.times import in_zone
from multi_agent_mcp.errors import Refusal
from multi_agent_mcp.session import Service

if TYPE_CHECKING:
    from multi_agent_mcp.domain.task import Task
    from multi_agent_mcp.services.notifications.writing import Interrupts
    from multi_agent_mcp.usage.usage import Usage

logger = logging.getLogger(__name__)

BUDGET_REACHED, HANDOFF_SOON = "budget_reached", "handoff_soon"
PER_DAY, PER_TASK = "tokens_per_day", "tokens_per_task"
ALLOWED = "tokens_allowed"
"""The field of an agent's record with the budgets that a person has raised, by day or task."""
ALLOWANCES_KEPT = 50


@dataclass(frozen=True)
class Budget:
    """One budget of an agent: `key` is the day or the task, `limit` what it may use, `used` what it has used."""

    agent_id: str
    kind: str
    key: str
    limit: int
    used: int
    task_id: str | None = None

    @property
    def is_reached(self) -> bool:
        return self.used >= self.limit


@dataclass(eq=False)
class Budgets(Service):
    """Pauses agents whose budget is used up, once for each, and notifies those whose context is nearly full. What it
    knows comes from the ledger; its methods never raise."""

    usage: Usage
    interrupts: Interrupts

    def look(self) -> None:
        """Reads what the hosts have written and checks; for servers while no supervisor does so."""
        if not self.contributions.ask("is_supervised") and self.usage.has_news():
            self.usage.refresh(recent=True)
            self.check()

    def check(self) -> list[Notification]:
        """Pauses and notifies whom it concerns; returns the new notifications. Reads no host's files."""
        try:
            return [notice for notice in self._due() if notice is not None]
        except Refusal as refusal:
            logger.warning("the budgets could not be checked: %s", refusal)
            return []

    def section(self, agent: Agent, _task: Task | None) -> str | None:
        """The section of the briefing about the agent's own budgets, and those below it that have met a usage limit."""
        limits, agents = self.usage.limits, self.workspace.registry.all()
        limited = (limit for limit in limits.all().values() if nearest_superior(limit.agent_id, agents) == agent)
        lines = [*map(limits.sentence, limited), *map(self.sentence, self.of(agent))]
        return "\n".join(lines) or None

    def of(self, agent: Agent) -> Iterator[Budget]:
        """Yields the agent's budgets with what it has used of them: its day's, and that of the task it works on."""
        limits = self._limits(agent)
        midnight = in_zone(self.clock(), self.session.zone).replace(hour=0, minute=0, second=0, microsecond=0)
        allowed = _allowed(agent)
        if PER_DAY in limits:
            day = f"{midnight:%Y-%m-%d}"
            used = self.usage.total(agent.id, since=midnight)
            yield Budget(agent.id, PER_DAY, day, max(limits[PER_DAY], allowed.get(day, 0)), used)
        if PER_TASK in limits:
            for task in self.usage.workspace.tasks.in_progress(agent.id):
                used = self.usage.total(agent.id, task_id=task.id)
                limit = max(limits[PER_TASK], allowed.get(task.id, 0))
                yield Budget(agent.id, PER_TASK, task.id, limit, used, task.id)

    def sentence(self, budget: Budget) -> str:
        """The sentence that says how much of a budget is used."""
        key = f"briefing.budget.{budget.kind}"
        return self.texts(key, used=budget.used, limit=budget.limit, task_id=budget.task_id or "")

    def allow(self, agent: Agent, tokens: int) -> None:
        """Raises the agent's budgets of today and of its task to `tokens` more than it has used by now. Raises
        `AgentNotFound`."""
        self.usage.refresh()
        raised = {budget.key: budget.used + tokens for budget in self.of(agent)}

        def change(known: Agent) -> dict[str, Any]:
            kept = [item for item in _allowed(known).items() if item[0] not in raised][-ALLOWANCES_KEPT:]
            return {ALLOWED: {**dict(kept), **raised}}

        if raised:
            self.usage.workspace.registry.revise(agent.id, change)

    def _due(self) -> Iterator[Notification | None]:
        for agent in self._agents():
            for budget in self.of(agent):
                if budget.is_reached:
                    yield from self._reached(budget)
        for filled in self.usage.filled():
            yield self._nearly_full(filled.agent_id, filled.conversation, filled.fillings, filled.share)

    def _reached(self, budget: Budget) -> Iterator[Notification | None]:
        """Pauses an agent in the name of the system, and notifies its superior."""
        cause = budget.agent_id, budget.kind, budget.key, budget.limit
        reason = self.texts(f"budget.{budget.kind}", used=budget.used, limit=budget.limit, task_id=budget.task_id or "")
        yield self.interrupts.pause_once(derived_id("budget", *cause), budget.agent_id, budget.task_id, reason)
        superior = nearest_superior(budget.agent_id, self.usage.workspace.registry.all())
        if superior is not None:
            yield self._put(
                id=derived_id(BUDGET_REACHED, *cause),
                target_agent_id=superior.id,
                target_purpose="task",
                action=BUDGET_REACHED,
                task_id=budget.task_id,
                sender_id=budget.agent_id,
                reason=reason,
            )

    def _nearly_full(self, agent_id: str, conversation: str, filling: int, share: float) -> Notification | None:
        if agent_id not in self.usage.workspace.registry.active():
            return None
        return self._put(
            id=derived_id(HANDOFF_SOON, agent_id, conversation, filling),
            target_agent_id=agent_id,
            action=HANDOFF_SOON,
            reason=self.texts("budget.context", percent=int(share * 100)),
        )

    def _put(self, **fields: Any) -> Notification | None:
        """Writes a notification of the system, unless it was written before."""
        notice = Notification(type="status_change", created_at=self.clock(), **fields)
        writer = self.interrupts.writer
        worded = writer.worded(notice, f"notice.{notice.action}")
        return worded if writer.put_first(worded) else None

    def _agents(self) -> list[Agent]:
        return [agent for agent in self.usage.workspace.registry.active().values() if self.usage.is_counted(agent)]

    def _limits(self, agent: Agent) -> dict[str, int]:
        """The agent's own limits, else the team's; none that is not a positive number."""
        own = agent.extra.get("limits")
        said = {name: getattr(self.session.settings.limits, name) for name in (PER_DAY, PER_TASK)}
        said |= {name: own[name] for name in (PER_DAY, PER_TASK) if isinstance(own, Mapping) and name in own}
        return {name: limit for name, limit in said.items() if isinstance(limit, int) and limit > 0}


def _allowed(agent: Agent) -> dict[str, int]:
    found = agent.extra.get(ALLOWED)
    items = found.items() if isinstance(found, Mapping) else ()
    return {str(key): limit for key, limit in items if isinstance(limit, int)}
