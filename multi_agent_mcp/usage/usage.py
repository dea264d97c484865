"""What each agent's model took, from the ledger, which it updates from the hosts' own files (docs/protocol.md, What it
costs)."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta, tzinfo
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar

from multi_agent_mcp.domain.times import in_zone
from multi_agent_mcp.errors import Refusal
from multi_agent_mcp.session import Service
from multi_agent_mcp.system.file_status import modified_at, signature_of
from multi_agent_mcp.usage.ledger import ConversationFile, ConversationFiles, FileRead, Ledger
from multi_agent_mcp.usage.prices import read_prices
from multi_agent_mcp.usage.tokens import Prices, UsageRow
from multi_agent_mcp.yaml_files import truth

if TYPE_CHECKING:
    from multi_agent_mcp.domain.agent import Agent
    from multi_agent_mcp.usage.limits import UsageLimits

logger = logging.getLogger(__name__)

T = TypeVar("T")


RECENT = timedelta(days=1)
"""How old a response may be for which only recent work is looked at."""
EARLIER = timedelta(minutes=5)
"""How much earlier than the last look agent sessions are looked at again: they are written while it looks."""
DAYS_MAX = 3_650
Work = tuple[datetime, datetime | None, str]


@dataclass(eq=False)
class Usage(Service):
    """The usage of one session's agents. Reading is best effort: what cannot be read is not known, never an error."""

    limits: UsageLimits
    _works: dict[str, tuple[datetime | None, list[Work]]] = field(default_factory=dict, init=False)
    """By agent, when it worked on which task, as far back as the time before."""
    _looked_at: datetime | None = field(default=None, init=False)
    _files: set[str] = field(default_factory=set, init=False)
    _signs: list[object] = field(default_factory=list, init=False)

    @cached_property
    def ledger(self) -> Ledger:
        return Ledger(self.workspace.path, self.clock, self._task_at, self.limits.saw_in_file, self.limits.acted)

    @cached_property
    def sources(self) -> ConversationFiles:
        return ConversationFiles(self.workspace)

    @property
    def _counts(self) -> bool:
        return self.session.settings.of("usage") is not False and "usage" in self.session.features

    def is_counted(self, agent: Agent) -> bool:
        """Whether an agent's usage is counted: not a person's, nor where `usage: off` says so."""
        return self._counts and not agent.may_be_human and truth(agent.extra.get("usage")) is not False

    def refresh(self, *, recent: bool = False) -> None:
        """Takes in what the hosts have written since the last time; with `recent`, only in conversations that may still
        grow. Never raises."""
        try:
            since = self.clock() if recent else None  # without hosts all ended sessions would be read, again and again
            begun = self.ledger.path.exists() or any(True for _ in self.sources.all(since))
            if self._counts and begun:
                self.ledger.use(lambda database: self._refresh(database, recent=recent))
        except Refusal as refusal:
            logger.info("the usage could not be updated: %s", refusal)

    def has_news(self) -> bool:
        """Whether a host may have written something since the last call in this process: a few stat(2). It tells a
        change, and keeps no value as a `Memory` does."""
        before, self._signs = self._signs, self._look()
        return self._counts and before != self._signs

    def rows(self, days: int, zone: tzinfo) -> list[UsageRow]:
        """The tokens by agent, task and model of the last `days` days in `zone`, today included, the largest first.
        Agents that have worked and of which nothing, or not all, could be read have a row without numbers."""
        self.refresh()
        return self.known(self.beginning(days, zone))

    def known(self, since: datetime) -> list[UsageRow]:
        """As `rows`, since a time and as far as it was read before."""
        found: list[UsageRow] = self._ask(lambda database: list(self.ledger.rows(database, since)), [])
        unknown = self._unknown(found, since) if self._counts else ()
        return [*found, *(UsageRow(agent_id, None, None, None) for agent_id in unknown)]

    def by_day(self, days: int, zone: tzinfo) -> list[tuple[datetime, list[UsageRow]]]:
        """The rows of each of the last `days` days, by the time at which it began. Reads no host's files."""
        first = self.beginning(days, zone)
        starts = [_midnight(first + timedelta(days=number, hours=12), zone) for number in range(days + 1)]
        pairs = list(pairwise(starts))
        nothing: list[list[UsageRow]] = [[] for _ in pairs]
        asked = self._ask(lambda database: [list(self.ledger.rows(database, *pair)) for pair in pairs], nothing)
        return [(start, rows) for (start, _), rows in zip(pairs, asked, strict=True)]

    def of_task(self, task_id: str) -> list[UsageRow]:
        """The rows of one task, whenever they were; none while the usage is not counted. Reads no host's files."""
        since = datetime.min.replace(year=2000, tzinfo=self.clock().tzinfo)
        return self._ask(lambda database: list(self.ledger.rows(database, since, task_id=task_id)), [])

    def filled(self) -> list[FileRead]:
        """The conversations whose context is nearly full. Reads no host's files."""
        return self._ask(self.ledger.filled, [])

    def total(self, agent_id: str, *, since: datetime | None = None, task_id: str | None = None) -> int:
        """All tokens of an agent since then, or for a task. Reads no host's files."""
        return self._ask(lambda database: self.ledger.total(database, agent_id, since, task_id), 0)

    def beginning(self, days: int, zone: tzinfo) -> datetime:
        """The midnight at which the last `days` days began."""
        return _midnight(self.clock() - timedelta(days=min(days, DAYS_MAX) - 1), zone)

    def by_agent(self, since: datetime) -> dict[str, int]:
        """All tokens of each agent since a time, as far as they were read before; none of agents that used none. Writes
        nothing."""
        found: dict[str, int] = {}
        rows: list[UsageRow] = self._ask(lambda database: list(self.ledger.rows(database, since)), [])
        for row in rows:
            if row.tokens is not None and row.agent_id is not None:
                found[row.agent_id] = found.get(row.agent_id, 0) + row.tokens.total
        return found

    def prices(self) -> Prices | None:
        """The prices that `{root}/prices.yaml` says, if there is one. Raises `InvalidArguments`."""
        found = read_prices(self.workspace.root / "prices.yaml")
        return None if found is None else Prices(*found)

    def unread_agents(self) -> list[str]:
        """The agents of whose usage since yesterday something is not known, for `doctor`. Writes nothing."""
        rows = self.known(self.clock() - timedelta(days=1)) if self.ledger.path.exists() else ()
        return sorted({str(row.agent_id) for row in rows if row.tokens is None})

    def _ask(self, question: Callable[[sqlite3.Connection], T], otherwise: T) -> T:
        try:
            return self.ledger.use(question) if self._counts and self.ledger.path.exists() else otherwise
        except Refusal as refusal:
            logger.info("the usage could not be read: %s", refusal)
            return otherwise

    def _look(self) -> list[object]:
        """Values of which one changes when a host writes, or a conversation begins."""
        places = [self.workspace.path / "sessions" / agent_id for agent_id in self.workspace.registry.active()]
        changed: list[object] = [modified_at(place) for place in (self.workspace.path / ".hooks", *places)]
        return changed + [signature_of(path) for path in sorted(self._files)]

    def _refresh(self, database: sqlite3.Connection, *, recent: bool) -> None:
        looked_at, now = self.ledger.looked_at(database), self.clock()
        self._looked_at = looked_at
        agents = self.workspace.registry.all()
        since = None if looked_at is None else min(looked_at, now) - EARLIER
        found = list(self.sources.all(since, recent=recent and since is not None))
        self.ledger.know(database, found, now)
        known = {(source.agent_id, source.conversation) for source in found}
        self._files.clear()
        for source in (ConversationFile(*row) for row in self.ledger.sources(database)):
            is_read = not recent or since is None or (source.agent_id, source.conversation) in known
            if is_read and source.agent_id in agents and self.is_counted(agents[source.agent_id]):
                self._files.update(self.ledger.read(database, source))
        self._works.clear()

    def _unknown(self, found: Iterable[UsageRow], since: datetime) -> Iterator[str]:
        """The agents that have called us in the period, and of which nothing or not all is known."""
        unreadable: set[str] = self._ask(lambda database: self.ledger.unreadable(database, since), set())
        known = {row.agent_id for row in found}
        for agent in self.workspace.registry.all().values():
            if self.is_counted(agent) and (
                agent.id in unreadable or (agent.id not in known and self._ran(agent.id, since))
            ):
                yield agent.id

    def _ran(self, agent_id: str, since: datetime) -> bool:
        """Whether the agent has made a call since then."""
        return any(session.calls for session in self.workspace.sessions.all(agent_id, since=since))

    def _task_at(self, agent_id: str, purpose: str, at: datetime) -> str | None:
        """The task that an agent's task session worked on at a time: its executions say so, else its tasks."""
        if purpose != "task":
            return None
        bound = None if self._looked_at is None or at < self._looked_at - RECENT else self._looked_at - RECENT
        known = self._works.get(agent_id)
        if known is None or (known[0] is not None and bound is None):
            known = self._works[agent_id] = bound, list(self._work(agent_id, bound))
        fitting = (task_id for start, end, task_id in known[1] if start <= at and (end is None or at <= end))
        return next(fitting, None)

    def _work(self, agent_id: str, since: datetime | None) -> Iterator[Work]:
        """When the agent worked on which task, as far as it did not end before."""
        for execution in self.workspace.executions.all(agent_id, since=since):
            if execution.task_id is not None:
                yield execution.started_at, execution.completed_at, execution.task_id
        tasks = self.workspace.tasks
        under_way = (task for task in tasks.open(agent_id) if task.status == "in_progress")
        for task in (*under_way, *tasks.closed(agent_id, since=since)):
            if task.started_at is not None:
                yield task.started_at, task.completed_at or task.reported_at, task.id


def _midnight(moment: datetime, zone: tzinfo) -> datetime:
    return in_zone(moment, zone).replace(hour=0, minute=0, second=0, microsecond=0)
