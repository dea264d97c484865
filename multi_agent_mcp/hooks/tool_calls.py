"""What a host's own tools may do to the files of a team, and what they did (docs/protocol.md, Edits, Reservations)."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from multi_agent_mcp.errors import Refusal
from multi_agent_mcp.hooks.edited_files import ToolCall, relative_paths, tool_call

if TYPE_CHECKING:
    from multi_agent_mcp.domain.agent import Agent
    from multi_agent_mcp.services.repository.edits import Edits
    from multi_agent_mcp.services.repository.reservations import Reservations
    from multi_agent_mcp.texts import Texts

logger = logging.getLogger(__name__)


class Event(NamedTuple):
    """An event in the host, for which it calls `hook`. `host` is the host's name if the hook's command line gives it,
    `facts` what the host says of the event, `is_noted` whether the edits of its call are in the log already."""

    name: str
    host_session: str | None = None
    host: str | None = None
    facts: Mapping[str, Any] = MappingProxyType({})
    is_noted: bool = False

    @property
    def transcript(self) -> str | None:
        """The file in which the host keeps the conversation."""
        path = self.facts.get("transcript_path")
        return path if isinstance(path, str) else None


@dataclass(eq=False)
class ToolCalls:
    """Judges calls that are to be made, and notes edits that were made."""

    edits: Edits
    reservations: Reservations
    texts: Texts

    def look(self, agent: Agent, event: Event) -> str | None:
        """Returns why a call must not be made, or None. Notes the edits of one that was made, and tells the agents that
        edit the same files. Never raises: an interrupt must reach the agent all the same."""
        if event.name not in ("PreToolUse", "PostToolUse") or "tool_input" not in event.facts:
            return None
        try:
            return self._looked(agent, event)
        except Refusal as refusal:
            logger.warning("a call of %s was not looked at: %s", agent.id, refusal)
            return None

    def _looked(self, agent: Agent, event: Event) -> str | None:
        call = tool_call(event.facts, self.edits.hook_settings()["tools"])
        if event.name == "PreToolUse":
            return self._reserved(agent, call)
        if call.paths:
            if not event.is_noted:
                self.edits.note(agent.id, call.paths, call.cwd)
            self.edits.tell(agent.id, call.paths, call.cwd)
        return None

    def _reserved(self, agent: Agent, call: ToolCall) -> str | None:
        """Why files must not be edited that another agent has reserved; None where that is not enforced."""
        if not call.paths or not self.reservations.enforces:
            return None
        self.reservations.settle()
        self.reservations.index()
        for path in relative_paths(call):
            holder = self.reservations.holder_of(path, agent.id)
            if holder is not None:
                reason = self.texts.sentence(self.reservations.refusal(holder))
                return self.texts("hook.reserved", path=path, reason=reason)
        return None
