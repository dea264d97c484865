"""Which conversations of which hosts are an agent's, and which files the host keeps of them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from multi_agent_mcp.config import home_of
from multi_agent_mcp.domain.agent import PURPOSES
from multi_agent_mcp.domain.hosts.limit import LimitRules
from multi_agent_mcp.domain.ids import is_name
from multi_agent_mcp.hosts import host_named
from multi_agent_mcp.system.other_files import matching, named_from

if TYPE_CHECKING:
    from multi_agent_mcp.domain.hosts.usage import UsageRules
    from multi_agent_mcp.store.workspace import Workspace

SHORT_ID = 8
RECENT = 3
"""The number of an agent's conversations that may still grow."""


@dataclass(frozen=True)
class Source:
    """One conversation of a host: whose it is, and its file, if the host told us."""

    agent_id: str
    purpose: str
    host: str
    conversation: str
    path: str | None = None

    @property
    def rules(self) -> UsageRules | None:
        """The host's rules; None for a host without any."""
        host = host_named(self.host)
        return None if host is None else host.usage

    @property
    def limits(self) -> LimitRules:
        """The host's rules of what tells of a limit."""
        host = host_named(self.host)
        return LimitRules() if host is None else host.limits

    def files(self) -> Iterator[tuple[Path, bool]]:
        """Yields the files of the conversation that exist, and whether it is its main line."""
        rules = self.rules
        if rules is None or rules.database or not is_name(self.conversation):
            return
        words = {"id": self.conversation, "id8": self.conversation[:SHORT_ID]}
        known = [Path(self.path)] if self.path else []
        found = [path for path in known if path.is_file()] or [
            path for home in [home_of(rules.variable, rules.home)] for path in matching(home, rules.transcripts, words)
        ]
        for path in found:
            yield path, True
            place = {**words, "dir": str(path.parent), "stem": str(path.with_suffix(""))}
            for pattern in rules.beside:
                yield from ((other, False) for other in matching(Path("/"), pattern, place) if other not in found)

    def later_files(self, main: Path) -> Iterator[Path]:
        """Yields files beside or after the main one, of which some may belong to it; their first line tells."""
        rules = self.rules
        if rules is not None and rules.later:
            yield from named_from(main, rules.later)

    def database(self) -> Path | None:
        """The host's database, if it keeps one and it exists."""
        rules = self.rules
        path = home_of(rules.variable, rules.home) / rules.database if rules is not None and rules.database else None
        return path if path is not None and path.is_file() else None


@dataclass(eq=False)
class Sources:
    """Finds the conversations of one session's agents: those that hooks were told, and those of agent sessions."""

    workspace: Workspace

    def all(self, since: datetime | None = None, *, recent: bool = False) -> Iterator[Source]:
        """Yields the conversations that are known, those of ended sessions only if they ended `since`; with `recent`,
        only the last ones that hooks were told."""
        for agent in self.workspace.registry.all().values():
            for purpose in PURPOSES:
                told = list(self._told(agent.id, purpose, agent.host))
                yield from told[-RECENT:] if recent else told
            ended = self.workspace.sessions.closed(agent.id, since=since)
            for session in (*self.workspace.sessions.open(agent.id), *ended):
                host, conversation = (getattr(session, name, None) for name in ("host", "host_session"))
                if conversation and (host or agent.host):
                    yield Source(agent.id, session.purpose, str(host or agent.host), str(conversation))

    def _told(self, agent_id: str, purpose: str, host: str | None) -> Iterator[Source]:
        state = self.workspace.hook_state(agent_id, purpose).read()
        told = state.get("transcripts") if isinstance(state, dict) else None
        for conversation, facts in told.items() if isinstance(told, Mapping) else ():
            with suppress(TypeError, ValueError):
                name, path = facts
                if isinstance(name or host, str):
                    yield Source(agent_id, purpose, str(name or host), conversation, _absolute(path))


def _absolute(path: Any) -> str | None:
    return path if isinstance(path, str) and os.path.isabs(path) else None  # noqa: PTH117 - a text from JSON
