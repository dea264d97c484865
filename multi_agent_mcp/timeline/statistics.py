"""Statistics of a session over days: who did what, and how long it took."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from typing import TYPE_CHECKING, Any

from multi_agent_mcp.domain.question import ANSWERED, Question
from multi_agent_mcp.domain.times import in_zone
from multi_agent_mcp.session import Service

if TYPE_CHECKING:
    from multi_agent_mcp.timeline.building import Timelines

from multi_agent_mcp.timeline.figures import Statistics, compute

DAYS_SHOWN = 7
EVENTS_MAX = 20_000
"""The most messages, finished tasks and ended sessions that are examined: each of them is parsed."""


@dataclass(eq=False)
class StatisticsOfSession(Service):
    """Computes statistics; changes nothing."""

    timeline: Timelines

    def last_days(self, days: int, zone: tzinfo) -> Statistics:
        """The statistics of the last `days` days in `zone`, today included, until now."""
        now = self.clock()
        midnight = in_zone(now, zone).replace(hour=0, minute=0, second=0, microsecond=0)
        return self.of(midnight - timedelta(days=days - 1), now, zone)

    def answer(self, statistics: Statistics) -> dict[str, Any]:
        """The statistics as JSON-ready values, without those of features that are off."""
        found, shown = statistics.as_answer(), self.session.features.shown
        agents = [shown("figures of an agent", figures) for figures in found["agents"]]
        return found | {"agents": agents, "tasks": [shown("figures of a task", figures) for figures in found["tasks"]]}

    def prepare(self) -> None:
        """Reads what the page of statistics counts, so that it need not wait for that."""
        self.last_days(DAYS_SHOWN, UTC)

    def of(self, start: datetime, end: datetime, zone: tzinfo) -> Statistics:
        """The statistics from `start` to `end`; days begin at midnight in `zone`."""
        found, tasks = self.timeline.with_tasks(start, end, most=EVENTS_MAX)
        shown = {bar.task_id for bar in found.bars}
        mine = [task for task in tasks if task.id in shown]
        return compute(found, mine, self._answered(start, end), self._calls(start), zone)

    def _answered(self, start: datetime, end: datetime) -> Iterator[Question]:
        """The questions that somebody answered in this period; a default is nobody's answer."""
        answered = self.workspace.questions.closed(label=ANSWERED, limit=EVENTS_MAX, since=start)
        return (found for found in answered if found.answered_at is not None and start <= found.answered_at <= end)

    def _calls(self, start: datetime) -> Counter[str]:
        """The number of tool calls, by agent, of the sessions that ran since `start`."""
        ran = self.workspace.sessions.all(limit=EVENTS_MAX, since=start)
        return sum((Counter({session.agent_id: session.calls}) for session in ran), Counter())
