"""Recent mail between two agents, by subject or conversation. Each file is read once, because nothing in it changes but
`read_at`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from operator import attrgetter

from multi_agent_mcp.domain.loops import LOOP_WINDOW, Exchange, Letter
from multi_agent_mcp.store.workspace import Workspace

BY_AGE = attrgetter("created_at", "id")


class RecentMail:
    """Caches the mail of the mailboxes that were asked for, until it is archived."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._known: dict[str, dict[str, Letter]] = {}
        """By receiver and file name."""

    def since(self, moment: datetime, exchange: Exchange, receivers: Sequence[str]) -> list[Letter]:
        """The messages of the exchange since `moment` that are in these receivers' mailboxes, oldest first."""
        found = (letter for agent_id in receivers for letter in self._received(agent_id, moment))
        return sorted((letter for letter in found if letter.exchange == exchange and letter.alone), key=BY_AGE)

    def episode(self, moment: datetime, exchange: Exchange) -> list[Letter]:
        """The exchange's messages since `moment` in both mailboxes, and those before without a gap of `LOOP_WINDOW`."""
        found: list[Letter] = []
        while len(more := self.since(moment, exchange, exchange.agents)) > len(found):
            found, moment = more, min(moment, more[0].created_at) - LOOP_WINDOW
        return found

    def _received(self, agent_id: str, moment: datetime) -> list[Letter]:
        inbox, known = self._workspace.mailbox(agent_id), self._known.get(agent_id, {})
        names, recent = inbox.names_since(moment)
        letters = {name: letter for name in names if (letter := known.get(name)) is not None}
        for name in recent:
            if name not in letters and (message := inbox.hot.load(name)) is not None:
                letters[name] = Letter.of(message)
        self._known[agent_id] = letters
        return [letters[name] for name in recent if name in letters]
