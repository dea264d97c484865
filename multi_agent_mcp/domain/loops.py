"""Detects loops: two agents that only answer each other (docs/protocol.md, Loops)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any, NamedTuple

from multi_agent_mcp.domain.agent import Agent, owners, superiors
from multi_agent_mcp.domain.message import Message
from multi_agent_mcp.domain.notification import Notification, derived_id
from multi_agent_mcp.errors import AgentNotFound, InvalidArguments

LOOP_SUSPECTED = "loop_suspected"
LOOP_MESSAGES = 10
LOOP_WINDOW = timedelta(minutes=10)
LOOP_MESSAGES_ASKED_FOR = 30
"""The number in a delegated conversation, which somebody asked for and whose end is awaited."""
LOOP_ANSWERS = 3
"""The number of messages that each of the two must have written: reports without answers are no loop."""
_REPLY = re.compile(r"(re|aw)\s*:\s*", re.IGNORECASE)


class Exchange(NamedTuple):
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


class ExchangeMessage(NamedTuple):
    """Of a message of an exchange, what matters for loops. `alone`: it is not a copy of a broadcast."""

    id: str
    sender_id: str
    created_at: datetime
    exchange: Exchange
    alone: bool

    @classmethod
    def of(cls, message: Message) -> ExchangeMessage:
        alone = "broadcast_id" not in message.metadata
        return cls(message.id, message.sender_id, message.created_at, Exchange.of(message), alone)


class Loop(NamedTuple):
    """A loop: the message with which the episode began, and the time `at` from which it counted as a loop."""

    message_id: str
    began_at: datetime
    at: datetime


def loop_in(parts: Sequence[ExchangeMessage], changed_at: datetime | None, enough: int = LOOP_MESSAGES) -> Loop | None:
    """The loop in which these parts of one exchange, oldest first, end, or None: `enough` of them to and fro within
    `LOOP_WINDOW`, all after the last change of a task of either agent (`changed_at`)."""
    episode = list(parts)
    for index, (before, after) in enumerate(pairwise(parts), 1):
        if after.created_at - before.created_at > LOOP_WINDOW:
            episode = list(parts[index:])
    if changed_at is not None:
        episode = [part for part in episode if part.created_at > changed_at]
    for start, last in enumerate(episode[enough - 1 :]):
        some = episode[start : start + enough]
        if last.created_at - some[0].created_at <= LOOP_WINDOW and _goes_to_and_fro(some):
            return Loop(episode[0].id, episode[0].created_at, last.created_at)
    return None


def _goes_to_and_fro(parts: Sequence[ExchangeMessage]) -> bool:
    written = Counter(part.sender_id for part in parts)
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
