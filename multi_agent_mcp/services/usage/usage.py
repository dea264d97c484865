"""What each agent's model took, from the ledger, which it updates from the hosts' own files, and budgets of it
(docs/protocol.md, What it costs, Budgets)."""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta, tzinfo
from functools import cached_property
from itertools import pairwise
from math import inf
from typing import TYPE_CHECKING, Any, TypeVar

from multi_agent_mcp.config import read_prices
from multi_agent_mcp.domain.agent import Agent, nearest_superior
from multi_agent_mcp.domain.notification import Notification, derived_id
from multi_agent_mcp.domain.times import in_zone
from multi_agent_mcp.domain.usage import Prices, UsageRow
from multi_agent_mcp.errors import Refusal
from multi_agent_mcp.services.usage.ledger import ConversationFile, ConversationFiles, FileRead, Ledger
from multi_agent_mcp.session import Service
from multi_agent_mcp.system.file_status import modified_at, signature_of

if TYPE_CHECKING:
    from multi_agent_mcp.contributions import Contributions
    from multi_agent_mcp.domain.task import Task
    from multi_agent_mcp.services.notifications.writing import Interrupts
    from multi_agent_mcp.services.usage.limits import UsageLimits

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
        return Ledger(self.workspace.path, self.clock, self._task_at, self.limits.read, self.limits.acted)

    @cached_property
    def sources(self) -> ConversationFiles:
        return ConversationFiles(self.workspace)

    @property
    def _counts(self) -> bool:
        return self.session.settings.usage and "usage" in self.session.features

    def is_counted(self, agent: Agent) -> bool:
        """Whether an agent's usage is counted: not a person's, nor where `usage: off` says so."""
        return self._counts and not agent.may_be_human and agent.extra.get("usage") not in (False, "off")

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
        """Whether a host may have written something since the last call in this process: a few stat(2)."""
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
        sessions = self.workspace.sessions
        return any(session.calls for session in (*sessions.open(agent_id), *sessions.closed(agent_id, since=since)))

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
        executions, tasks = self.workspace.executions, self.workspace.tasks
        for execution in (*executions.open(agent_id), *executions.closed(agent_id, since=since)):
            if execution.task_id is not None:
                yield execution.started_at, execution.completed_at, execution.task_id
        under_way = (task for task in tasks.open(agent_id) if task.status == "in_progress")
        for task in (*under_way, *tasks.closed(agent_id, since=since)):
            if task.started_at is not None:
                yield task.started_at, task.completed_at or task.reported_at, task.id


def _midnight(moment: datetime, zone: tzinfo) -> datetime:
    return in_zone(moment, zone).replace(hour=0, minute=0, second=0, microsecond=0)


# Budgets of tokens, and contexts that are nearly full.

BUDGET_REACHED, HANDOFF_SOON = "budget_reached", "handoff_soon"
PER_DAY, PER_TASK = "tokens_per_day", "tokens_per_task"
ALLOWED = "tokens_allowed"
"""The field of an agent's record with the budgets that a person has raised, by day or task."""
ALLOWANCES_KEPT = 50
LOOK_EVERY_SECONDS = 20.0


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
    contributions: Contributions
    next_look: float = field(default=-inf, init=False)
    """When `look` looks again, by the monotonic clock."""

    def look(self) -> None:
        """Reads what the hosts have written and checks, at most every `LOOK_EVERY_SECONDS` in this process; for servers
        while no supervisor does so."""
        if time.monotonic() >= self.next_look:
            self.next_look = time.monotonic() + LOOK_EVERY_SECONDS
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
        """Raises the agent's budgets of today and of its task to `tokens` more than it has used. Raises
        `AgentNotFound`."""
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
