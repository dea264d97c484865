"""What the models of a team took and cost, for views."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, tzinfo
from typing import TYPE_CHECKING, Any

from multi_agent_mcp.domain.entity import fields_of
from multi_agent_mcp.domain.times import in_zone
from multi_agent_mcp.errors import Refusal
from multi_agent_mcp.session import Service
from multi_agent_mcp.usage.tokens import Prices, UsageRow, grouped

if TYPE_CHECKING:
    from multi_agent_mcp.usage.budgets import Budgets
    from multi_agent_mcp.usage.usage import Usage


@dataclass(eq=False)
class Spending(Service):
    """Reads of prices.yaml what can be read: the command `usage` says what is wrong with it."""

    usage: Usage
    budgets: Budgets

    def tokens(self, days: int, zone: tzinfo) -> dict[str, int]:
        """All tokens of each agent of these days, as far as they were read before."""
        return self.usage.by_agent(self.usage.beginning(days, zone))

    def today(self) -> str | None:
        """What was spent today, as far as it is known and has a price."""
        prices = self._prices()
        cost = _cost(self.usage.known(self.usage.beginning(1, self.session.zone)), prices)
        return None if not cost else f"{cost:.2f} {'USD' if prices is None else prices.currency}"

    def figures(self, days: int, zone: tzinfo) -> dict[str, Any]:
        """The tokens of these days: by agent, task and model, and of each day by agent, with what is known of its cost;
        and the budgets of agents that have one."""
        rows, prices = self.usage.rows(days, zone), self._prices()
        by_day = self.usage.by_day(days, zone)
        return {
            "rows": [row.as_answer(prices) for row in rows],
            "days": [_day(in_zone(start, zone), found, prices) for start, found in by_day],
            "currency": None if prices is None else prices.currency,
            "budgets": list(self._budgets()),
        }

    def _budgets(self) -> Iterator[dict[str, Any]]:
        for agent in self.workspace.registry.active().values():
            for one in self.budgets.of(agent):
                yield fields_of(one, "agent_id", "kind", "limit", "used", "task_id")

    def _prices(self) -> Prices | None:
        try:
            return self.usage.prices()
        except Refusal:
            return None


def _day(start: datetime, rows: list[UsageRow], prices: Prices | None) -> dict[str, Any]:
    tokens = {str(row.agent_id): row.tokens.total for row in grouped(rows, "agent_id") if row.tokens is not None}
    return {"day": f"{start:%Y-%m-%d}", "tokens": tokens, "cost": _cost(rows, prices)}


def _cost(rows: Iterable[UsageRow], prices: Prices | None) -> float | None:
    """What these cost, as far as that is known; None if nothing is."""
    known = [cost for row in rows if (cost := row.cost_at(prices)) is not None]
    return sum(known) if known else None
