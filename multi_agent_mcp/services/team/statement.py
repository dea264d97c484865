"""The statement: what an agent's host has beside its operator's instructions, outside of every message
(docs/protocol.md, Statement)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from multi_agent_mcp.domain.agent import ROLES
from multi_agent_mcp.hosts import SERVER_NAME
from multi_agent_mcp.session import Service
from multi_agent_mcp.settings import parse_switch

if TYPE_CHECKING:
    from multi_agent_mcp.domain.agent import Agent


@dataclass(eq=False)
class Statements(Service):
    """The statements of one session's agents."""

    def is_wanted(self, agent: Agent) -> bool:
        """Whether the agent is to have it: not with `statement: off` of the agent, else of the team."""
        own = agent.extra.get("statement")
        return self.session.settings.statement if own is None else parse_switch(own, "statement")

    def of(self, agent: Agent) -> str:
        """The statement, in the session's language; "" for an agent that is not to have it."""
        if not self.is_wanted(agent):
            return ""
        role = agent.role if agent.role in ROLES else "worker"
        superior = agent.parent_id or self.texts("prompt.nobody")
        who = {"agent_id": agent.id, "role": role, "session": self.session.name, "superior": superior}
        return self.texts("statement", server=SERVER_NAME, **who)

    def instructions(self, agent: Agent | None) -> str:
        """What a server says to its host at the start: the statement first, for an agent whose host has it nowhere
        else."""
        said = "" if agent is None else self.of(agent)
        return "\n".join(filter(None, (said, self.texts("server.instructions"))))
