"""Statistics of a session over days: who did what, and how long it took."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo

from multi_agent_mcp.domain.statistics import Statistics, compute
from multi_agent_mcp.services.overview.timeline import Timelines
from multi_agent_mcp.store.workspace import Workspace

EVENTS_MAX = 20_000
"""The most messages, finished tasks and ended sessions that are examined: each of them is parsed."""


@dataclass(eq=False)
class StatisticsOfSession:
    """Computes statistics; changes nothing."""

    workspace: Workspace
    timeline: Timelines
    clock: Callable[[], datetime]

    def last_days(self, days: int, zone: tzinfo) -> Statistics:
        """The statistics of the last `days` days in `zone`, today included, until now."""
        now = self.clock()
        midnight = now.astimezone(zone).replace(hour=0, minute=0, second=0, microsecond=0)
        return self.of(midnight - timedelta(days=days - 1), now, zone)

    def of(self, start: datetime, end: datetime, zone: tzinfo) -> Statistics:
        """The statistics from `start` to `end`; days begin at midnight in `zone`."""
        found = self.timeline.of(start, end, most=EVENTS_MAX)
        tasks = (self.workspace.tasks.find(task_id) for task_id in dict.fromkeys(bar.task_id for bar in found.bars))
        return compute(found, [task for task in tasks if task is not None], self._calls(start), zone)

    def _calls(self, start: datetime) -> Counter[str]:
        """The number of tool calls, by agent, of the sessions that ran since `start`."""
        sessions = self.workspace.sessions
        ran = [*sessions.open(), *sessions.closed(limit=EVENTS_MAX, since=start)]
        return sum((Counter({session.agent_id: session.calls}) for session in ran), Counter())
