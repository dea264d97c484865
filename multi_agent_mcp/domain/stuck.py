"""What is wrong with an agent now, decided from what is known of it (docs/protocol.md, Stuck agents)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from multi_agent_mcp.domain.derived_notifications import derived_id
from multi_agent_mcp.domain.notification import Notification

AGENT_STUCK = "agent_stuck"
LOGIN = "login"
"""The state of a host's screen that asks a person to log in."""
DIALOG = "dialog"
"""The state of a host's screen that asks a person anything else."""
PANE_PATIENCE = timedelta(seconds=60)
"""How long a pane may look wrong: a host that begins has no server yet, a server may be restarted."""

Cause = Literal["login", "no_server", "silent", "unanswered"]


@dataclass(frozen=True)
class PaneLook:
    """A described host in an agent's pane. `served`: with a server of ours. `since`: since when it has been there like
    this, served or not, at its login screen or not."""

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

    def is_like(self, other: PaneLook) -> bool:
        """Whether nothing that counts has changed between them."""
        return (self.host, self.served, self.asks_for_login) == (other.host, other.served, other.asks_for_login)


@dataclass(frozen=True, kw_only=True)
class AgentFacts:
    """What is known of an agent at one moment.

    `alive`: a server process of it runs. `left`: its server has logged out, and runs. `active_at`: its last call, or
    when it was last told to go on.
    `task_id`: the task that it works on, and since `task_since` it is its turn; none while it waits for others to do
    what it has given to them.
    `unread_since`: when the oldest came of what it has been rung about and has not read.
    """

    alive: bool = False
    left: bool = False
    active_at: datetime | None = None
    task_id: str | None = None
    task_since: datetime | None = None
    unread_since: datetime | None = None
    pane: PaneLook | None = None


@dataclass(frozen=True)
class Patience:
    """How long something may last before it counts: a silence, a pane that looks wrong."""

    silence: timedelta
    pane: timedelta = PANE_PATIENCE


@dataclass(frozen=True)
class Stuck:
    """`cause` and its beginning; it `counts_from` the moment when patience ended. `facts` are the evidence."""

    cause: Cause
    since: datetime
    counts_from: datetime
    facts: AgentFacts

    @property
    def kind(self) -> str:
        """Which words tell it: those of the cause, or of what a superior should know instead."""
        if self.cause == "silent" and not self.facts.alive:
            return "gone"
        return DIALOG if self.cause == "no_server" and self.facts.pane and self.facts.pane.asks else self.cause

    @property
    def task_id(self) -> str | None:
        return self.facts.task_id if self.cause == "silent" else None


def stuck(facts: AgentFacts, now: datetime, patience: Patience) -> Stuck | None:
    """The first cause that has lasted too long, the most telling one first; None for an agent with which nothing is
    wrong, such as one that waits and has nothing to do."""
    for cause, since, length in _beginnings(facts, patience):
        if now - since >= length:
            return Stuck(cause, since, since + length, facts)
    return None


def _beginnings(facts: AgentFacts, patience: Patience) -> Iterator[tuple[Cause, datetime, timedelta]]:
    if facts.pane is not None and facts.pane.asks_for_login:
        yield "login", facts.pane.since, patience.pane
    if facts.pane is not None and not (facts.pane.served or facts.alive or facts.left):
        yield "no_server", facts.pane.since, patience.pane
    if facts.task_since is not None:
        yield "silent", max(facts.task_since, facts.active_at or facts.task_since), patience.silence
    if facts.unread_since is not None:
        yield "unanswered", max(facts.unread_since, facts.active_at or facts.unread_since), patience.silence


def stuck_notice(agent_id: str, found: Stuck, superior_id: str, reason: str) -> Notification:
    """The superior's notification, without its text: the same one for the same beginning in every process."""
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
