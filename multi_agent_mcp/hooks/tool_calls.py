"""What a host's own tools may do to the files of a team, and what they did (docs/protocol.md, Edits, Reservations)."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from multi_agent_mcp.errors import Refusal
from multi_agent_mcp.hooks.edited_files import ToolCall, relative_paths, tool_call

if TYPE_CHECKING:
    from multi_agent_mcp.domain.agent import Agent
    from multi_agent_mcp.services.repository.reservations import Edits, Reservations
    from multi_agent_mcp.services.repository.worktrees import Guard
    from multi_agent_mcp.texts import Texts

logger = logging.getLogger(__name__)


@dataclass(eq=False)
class ToolCalls:
    """Judges calls that are to be made, and notes edits that were made, or that no hook will tell of afterwards."""

    edits: Edits
    reservations: Reservations
    guard: Guard
    texts: Texts

    def look(self, agent: Agent, event: str, facts: Mapping[str, Any], *, is_noted: bool) -> str | None:
        """Returns why the call of an event must not be made, or None. Notes the edits of one that was made, unless they
        are noted, and tells the agents that edit the same files. `facts` is what the host says. Never raises: an
        interrupt must reach the agent all the same."""
        if event not in ("PreToolUse", "PostToolUse") or "tool_input" not in facts:
            return None
        try:
            call = tool_call(facts, self.edits.hook_settings()["tools"])
            if event == "PreToolUse":
                why_not = self._reserved(agent, call) or self._guarded(agent, call)
                if why_not is None and call.patches_in_shell:
                    self._made(agent, call, is_noted=False)
                return why_not
            self._made(agent, call, is_noted=is_noted)
        except Refusal as refusal:
            logger.warning("a call of %s was not looked at: %s", agent.id, refusal)
        return None

    def _made(self, agent: Agent, call: ToolCall, *, is_noted: bool) -> None:
        if call.paths:
            if not is_noted:
                self.edits.note(agent.id, call.paths, call.cwd)
            self.edits.tell(agent.id, call.paths, call.cwd)

    def _guarded(self, agent: Agent, call: ToolCall) -> str | None:
        return self.guard.why_not(agent, call.command, call.cwd) if call.may_be_guarded else None

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
