"""Decides from the known facts whether an agent is stuck, and why (docs/protocol.md, Stuck agents)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from multi_agent_mcp.domain.delivery import OFFLINE
from multi_agent_mcp.domain.notification import Notification, derived_id

AGENT_STUCK = "agent_stuck"
LOGIN = "login"
"""The state of a host's screen that asks a person to log in."""
DIALOG = "dialog"
"""The state of a host's screen that asks a person anything else."""
BUSY = "busy"
"""The state of the screen of a host that works."""
PANE_PATIENCE = timedelta(seconds=60)
"""How long a pane may be in a bad state: a starting host has no server yet, a server may be restarted."""

Cause = Literal["login", "offline", "no_server", "silent", "untaken", "unanswered"]


@dataclass(frozen=True)
class PaneLook:
    """A look at an agent's pane: the host, the state of its screen, and whether it is `served` by a server of ours.
    `since` is the time from which looks have been alike (`is_like`)."""

    host: str
    state: str
    served: bool
    since: datetime

    @property
    def asks_for_login(self) -> bool:
        return self.state == LOGIN

    @property
    def asks(self) -> bool:
        return self.state == DIALOG

    @property
    def is_offline(self) -> bool:
        """Whether the host cannot reach its model."""
        return self.state == OFFLINE

    def is_like(self, other: PaneLook) -> bool:
        """Whether host, server, need of a login and reach of its model are the same in both looks."""
        return self._facts == other._facts

    @property
    def _facts(self) -> tuple[object, ...]:
        return self.host, self.served, self.asks_for_login, self.is_offline


@dataclass(frozen=True, kw_only=True)
class AgentFacts:
    """The known facts about an agent at one moment.

    `alive`: a server process of it runs. `left`: its server has logged out but still runs. `active_at`: the time of its
    last call, or of its last pause or resumption if later. `task_id`: the task that it works on, its turn since
    `task_since`; None while it waits for tasks that it has given to others. `untaken_id`: while it works on none, the
    task that it could have begun since `untaken_since`. `unread_since`: the creation time of its
    oldest readable unread item.
    """

    alive: bool = False
    left: bool = False
    active_at: datetime | None = None
    task_id: str | None = None
    task_since: datetime | None = None
    untaken_id: str | None = None
    untaken_since: datetime | None = None
    unread_since: datetime | None = None
    pane: PaneLook | None = None


@dataclass(frozen=True)
class Patience:
    """How long a silence or the bad state of a pane may last before the agent counts as stuck."""

    silence: timedelta
    pane: timedelta = PANE_PATIENCE


@dataclass(frozen=True)
class Stuck:
    """A stuck agent: the cause, its beginning, the end of patience from which it counts, and the facts."""

    cause: Cause
    since: datetime
    counts_from: datetime
    facts: AgentFacts

    @property
    def kind(self) -> str:
        """The key of the text to use: the cause, or `gone` or `dialog`, which are more useful to a superior."""
        if self.cause == "silent" and not self.facts.alive:
            return "gone"
        return DIALOG if self.cause == "no_server" and self.facts.pane and self.facts.pane.asks else self.cause

    @property
    def task_id(self) -> str | None:
        return {"silent": self.facts.task_id, "untaken": self.facts.untaken_id}.get(self.cause)


def stuck(facts: AgentFacts, now: datetime, patience: Patience) -> Stuck | None:
    """The most specific cause that has lasted too long; None for an agent that is not stuck, such as one that has
    nothing to do."""
    for cause, since, length in _beginnings(facts, patience):
        if now - since >= length:
            return Stuck(cause, since, since + length, facts)
    return None


def _beginnings(facts: AgentFacts, patience: Patience) -> Iterator[tuple[Cause, datetime, timedelta]]:
    if facts.pane is not None and facts.pane.asks_for_login:
        yield "login", facts.pane.since, patience.pane
    if facts.pane is not None and facts.pane.is_offline:
        yield "offline", facts.pane.since, patience.pane
    if facts.pane is not None and not (facts.pane.served or facts.alive or facts.left):
        yield "no_server", facts.pane.since, patience.pane
    if facts.task_since is not None:
        yield "silent", max(facts.task_since, facts.active_at or facts.task_since), patience.silence
    if facts.untaken_since is not None:
        yield "untaken", max(facts.untaken_since, facts.active_at or facts.untaken_since), patience.silence
    if facts.unread_since is not None:
        yield "unanswered", max(facts.unread_since, facts.active_at or facts.unread_since), patience.silence


def stuck_notice(agent_id: str, found: Stuck, superior_id: str, reason: str) -> Notification:
    """The superior's notification, without its text; every process derives the same one for the same beginning."""
    return Notification(
        id=derived_id(AGENT_STUCK, agent_id, found.cause, found.since, superior_id),
        target_agent_id=superior_id,
        target_purpose="task",
        type="status_change",
        action=AGENT_STUCK,
        task_id=found.task_id,
        created_at=found.counts_from,
        sender_id=agent_id,
        reason=reason,
    )
