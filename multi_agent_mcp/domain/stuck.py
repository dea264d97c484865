"""Decides from the known facts whether an agent is stuck, and why; and whether two only answer each other
(docs/protocol.md, Stuck agents, Loops)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any, Literal

from multi_agent_mcp.domain.agent import Agent, owners, superiors
from multi_agent_mcp.domain.message import Message
from multi_agent_mcp.domain.notification import Notification, derived_id
from multi_agent_mcp.errors import AgentNotFound, InvalidArguments

AGENT_STUCK = "agent_stuck"
LOGIN = "login"
"""The state of a host's screen that asks a person to log in."""
DIALOG = "dialog"
"""The state of a host's screen that asks a person anything else."""
PANE_PATIENCE = timedelta(seconds=60)
"""How long a pane may be in a bad state: a starting host has no server yet, a server may be restarted."""

Cause = Literal["login", "no_server", "silent", "untaken", "unanswered"]


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

    def is_like(self, other: PaneLook) -> bool:
        """Whether host, server and need of a login are the same in both looks."""
        return (self.host, self.served, self.asks_for_login) == (other.host, other.served, other.asks_for_login)


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


# Detects loops: two agents that only answer each other (docs/protocol.md, Loops).

LOOP_SUSPECTED = "loop_suspected"
LOOP_MESSAGES = 10
LOOP_WINDOW = timedelta(minutes=10)
LOOP_MESSAGES_ASKED_FOR = 30
"""The number in a delegated conversation, which somebody asked for and whose end is awaited."""
LOOP_ANSWERS = 3
"""The number of messages that each of the two must have written: reports without answers are no loop."""
_REPLY = re.compile(r"(re|aw)\s*:\s*", re.IGNORECASE)


@dataclass(frozen=True)
class Exchange:
    """Two agents and what they write about: a conversation, or else a subject without reply prefixes."""

    first: str
    second: str
    conversation_id: str | None
    subject: str

    @classmethod
    def of(cls, message: Message) -> Exchange:
        first, second = sorted((message.sender_id, message.receiver_id))
        conversation_id = _conversation_of(message.metadata)
        return cls(first, second, conversation_id, "" if conversation_id else _topic(message.subject))

    @property
    def agents(self) -> tuple[str, str]:
        return self.first, self.second


@dataclass(frozen=True)
class Letter:
    """The facts about a message that matter for loops. `alone`: it is not a copy of a broadcast."""

    id: str
    sender_id: str
    created_at: datetime
    exchange: Exchange
    alone: bool

    @classmethod
    def of(cls, message: Message) -> Letter:
        alone = "broadcast_id" not in message.metadata
        return cls(message.id, message.sender_id, message.created_at, Exchange.of(message), alone)


@dataclass(frozen=True)
class Loop:
    """A loop: the message with which the episode began, and the time `at` from which it counted as a loop."""

    message_id: str
    began_at: datetime
    at: datetime


def loop_in(letters: Sequence[Letter], changed_at: datetime | None, enough: int = LOOP_MESSAGES) -> Loop | None:
    """The loop in which these letters of one exchange, oldest first, end, or None: `enough` of them to and fro within
    `LOOP_WINDOW`, all after the last change of a task of either agent (`changed_at`)."""
    episode = list(letters)
    for index, (before, after) in enumerate(pairwise(letters), 1):
        if after.created_at - before.created_at > LOOP_WINDOW:
            episode = list(letters[index:])
    if changed_at is not None:
        episode = [letter for letter in episode if letter.created_at > changed_at]
    for start, last in enumerate(episode[enough - 1 :]):
        some = episode[start : start + enough]
        if last.created_at - some[0].created_at <= LOOP_WINDOW and _goes_to_and_fro(some):
            return Loop(episode[0].id, episode[0].created_at, last.created_at)
    return None


def _goes_to_and_fro(letters: Sequence[Letter]) -> bool:
    written = Counter(letter.sender_id for letter in letters)
    return len(written) > 1 and min(written.values()) >= LOOP_ANSWERS


def loop_notice(exchange: Exchange, loop: Loop, target_id: str, reason: str) -> Notification:
    """The notification about a loop for one of the agents or a superior, without its text, one per episode. If it is a
    conversation, it is for the agents' sessions of either purpose."""
    takes_part = target_id in exchange.agents
    return Notification(
        id=derived_id(LOOP_SUSPECTED, exchange, loop.message_id, target_id),
        target_agent_id=target_id,
        target_purpose=None if takes_part and exchange.conversation_id else "task",
        type="status_change",
        action=LOOP_SUSPECTED,
        conversation_id=exchange.conversation_id,
        created_at=loop.at,
        sender_id=exchange.second if target_id == exchange.first else exchange.first,
        reason=reason,
    )


def common_superior(exchange: Exchange, agents: Mapping[str, Agent]) -> Agent | None:
    """The nearest common superior of both agents, else an Owner that is neither of them, else None."""
    above = [_above(agent_id, agents) for agent_id in exchange.agents]
    common = [agent for agent in above[0] if agent in above[1]]
    return next(
        (agent for agent in [*common, *owners(agents)] if agent.id not in exchange.agents and not agent.removed), None
    )


def _above(agent_id: str, agents: Mapping[str, Agent]) -> list[Agent]:
    try:
        return list(superiors(agent_id, agents))
    except (AgentNotFound, InvalidArguments):  # the hierarchy is broken
        return []


def _conversation_of(metadata: Mapping[str, Any]) -> str | None:
    found = metadata.get("conversation_id")
    return found if isinstance(found, str) and found else None


def _topic(subject: str) -> str:
    """A subject without reply prefixes, case-folded."""
    rest = subject.strip()
    while (found := _REPLY.match(rest)) is not None:
        rest = rest[found.end() :]
    return rest.casefold()
