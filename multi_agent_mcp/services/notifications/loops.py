"""Notifies agents that only answer each other (docs/protocol.md, Loops)."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from operator import attrgetter
from typing import TYPE_CHECKING

from multi_agent_mcp.domain.loops import (
    LOOP_ANSWERS,
    LOOP_MESSAGES,
    LOOP_MESSAGES_ASKED_FOR,
    LOOP_WINDOW,
    Exchange,
    ExchangeMessage,
    Loop,
    common_superior,
    loop_in,
    loop_notice,
)
from multi_agent_mcp.errors import Refusal, StorageError
from multi_agent_mcp.session import Service

if TYPE_CHECKING:
    from multi_agent_mcp.domain.message import Message
    from multi_agent_mcp.services.notifications.writing import NoticeWriter
    from multi_agent_mcp.store.workspace import Workspace

logger = logging.getLogger(__name__)


# Recent mail between two agents, by subject or conversation. Each file is read once, because nothing in it changes but
# `read_at`.

PARTS_REMEMBERED = 1_000
BY_AGE = attrgetter("created_at", "id")


class RecentMail:
    """Caches the recent mail of the mailboxes that were asked for."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._known: dict[str, dict[str, ExchangeMessage]] = {}
        """By receiver and file name."""

    def since(self, moment: datetime, exchange: Exchange, receivers: Sequence[str]) -> list[ExchangeMessage]:
        """The messages of the exchange since `moment` that are in these receivers' mailboxes, oldest first."""
        found = (part for agent_id in receivers for part in self._received(agent_id, moment))
        return sorted((part for part in found if part.exchange == exchange and part.alone), key=BY_AGE)

    def episode(self, moment: datetime, exchange: Exchange) -> list[ExchangeMessage]:
        """The exchange's messages since `moment` in both mailboxes, and those before without a gap of `LOOP_WINDOW`."""
        found: list[ExchangeMessage] = []
        while len(more := self.since(moment, exchange, exchange.agents)) > len(found):
            found, moment = more, min(moment, more[0].created_at) - LOOP_WINDOW
        return found

    def _received(self, agent_id: str, moment: datetime) -> list[ExchangeMessage]:
        inbox, known = self._workspace.mailbox(agent_id), self._known.get(agent_id, {})
        parts: dict[str, ExchangeMessage] = {}
        for directory, name in inbox.since(moment):
            if (part := known.get(name)) is not None:
                parts[name] = part
            elif (message := directory.load(name)) is not None:
                parts[name] = ExchangeMessage.of(message)
        newest = sorted({**known, **parts})[-PARTS_REMEMBERED:]
        self._known[agent_id] = {name: parts.get(name) or known[name] for name in newest}
        return list(parts.values())


OWN_SHARE = LOOP_MESSAGES // 2
"""The number of a loop's messages that one of its two agents must have sent at least."""
REMEMBERED = 200


@dataclass(eq=False)
class Loops(Service):
    """Watches the messages that this process sends. The two mailboxes are examined only when this process alone has
    sent half of a loop, so that other sending costs nothing more."""

    writer: NoticeWriter
    _sent: dict[Exchange, deque[datetime]] = field(default_factory=dict, init=False)
    _recent_mail: RecentMail = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._recent_mail = RecentMail(self.workspace)

    def after_sending(self, messages: Sequence[Message]) -> None:
        """Notifies both agents and their superior, once, if a message just stored is part of a loop. Never raises."""
        for message in messages:
            try:
                part = ExchangeMessage.of(message)
                if (
                    part.alone
                    and self._has_sent_its_share(part.exchange, part.created_at)
                    and self._is_judged_by(part.sender_id, part.exchange)
                    and not any(map(self._is_person, part.exchange.agents))
                ):
                    self._examine(part.exchange, part.sender_id)
            except Refusal as refusal:
                logger.warning("whether %s goes round in circles is not known: %s", message.sender_id, refusal)

    def _has_sent_its_share(self, exchange: Exchange, at: datetime) -> bool:
        mine = self._sent.pop(exchange, None) or deque(maxlen=OWN_SHARE)
        mine.append(at)
        self._sent[exchange] = mine
        while len(self._sent) > REMEMBERED:
            del self._sent[next(iter(self._sent))]  # the one unused for longest
        return len(mine) == OWN_SHARE and mine[-1] - mine[0] <= LOOP_WINDOW

    def _examine(self, exchange: Exchange, sender_id: str) -> None:
        recently = self.clock() - LOOP_WINDOW
        if len(self._recent_mail.since(recently, exchange, (sender_id,))) < LOOP_ANSWERS:
            self._rest(exchange, OWN_SHARE)  # without answers there is no loop to look for
            return
        lacking = LOOP_MESSAGES - len(self._recent_mail.since(recently, exchange, exchange.agents))
        self._rest(exchange, OWN_SHARE if lacking <= 0 else (lacking + 1) // 2)  # before that there cannot be enough
        if lacking <= 0:
            enough = LOOP_MESSAGES_ASKED_FOR if self._was_delegated(exchange) else LOOP_MESSAGES
            loop = loop_in(self._recent_mail.episode(recently, exchange), self._changed_at(exchange), enough)
            if loop is not None:
                self._tell(exchange, loop, enough)

    def _rest(self, exchange: Exchange, messages: int) -> None:
        """Makes the next examination wait for this many further messages."""
        self._sent[exchange] = deque(list(self._sent.get(exchange, ()))[messages:], OWN_SHARE)

    def _changed_at(self, exchange: Exchange) -> datetime | None:
        """When a task of either agent was last changed, or None."""
        latest = (self.workspace.tasks.all(agent_id, limit=1) for agent_id in exchange.agents)
        return max((task.updated_at for some in latest for task in some), default=None)

    def _is_judged_by(self, sender_id: str, exchange: Exchange) -> bool:
        """Whether this sender's process notifies about loops of this exchange: for agents on two machines that of the
        first one alone, because each machine gets the other's mail later and would find a slightly different loop."""
        homes = {self.workspace.registry.get(agent_id).machine for agent_id in exchange.agents}
        return len(homes) == 1 or sender_id == exchange.first

    def _is_person(self, agent_id: str) -> bool:
        """Whether the agent is a person: an Owner without a server counts as one, whatever its type."""
        agent = self.workspace.registry.get(agent_id)
        return agent.type == "human" or (agent.role == "owner" and not self.contributions.ask("is_alive", agent_id))

    def _was_delegated(self, exchange: Exchange) -> bool:
        found = None
        if exchange.conversation_id is not None:
            with suppress(StorageError):  # a hand-written id that is no file name
                found = self.workspace.conversations.find(exchange.conversation_id)
        return found is not None and found.delegation_id is not None

    def _tell(self, exchange: Exchange, loop: Loop, count: int) -> None:
        superior = common_superior(exchange, self.workspace.registry.all())
        names = {"count": count, "first": exchange.first, "second": exchange.second}
        reason = self.writer.texts("loop.seen", minutes=int(LOOP_WINDOW.total_seconds() // 60), **names)
        for target_id in (*exchange.agents, *([superior.id] if superior else ())):
            self.writer.put(loop_notice(exchange, loop, target_id, reason), "notice.loop_suspected")
