"""What agents have recently written to each other, by subject or conversation. Each file is read once: nothing in it
changes but whether it is read."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from operator import attrgetter

from multi_agent_mcp.domain.loops import LOOP_WINDOW, Exchange, Letter
from multi_agent_mcp.store.workspace import Workspace

BY_AGE = attrgetter("created_at", "id")


class RecentMail:
    """Of the mailboxes that were asked for; what was archived is forgotten."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._known: dict[str, dict[str, Letter]] = {}
        """By the agent who received it and the name of its file."""

    def since(self, moment: datetime, exchange: Exchange, receivers: Sequence[str]) -> list[Letter]:
        """What they have written to each other of this and what lies in these mailboxes, oldest first."""
        found = (letter for agent_id in receivers for letter in self._received(agent_id, moment))
        return sorted((letter for letter in found if letter.exchange == exchange and letter.alone), key=BY_AGE)

    def episode(self, moment: datetime, exchange: Exchange) -> list[Letter]:
        """The same in both mailboxes, and what came before without a pause as long as `LOOP_WINDOW`."""
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
