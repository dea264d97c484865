"""Who is free: awake and idle (docs/protocol.md, Whoever is free)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from multi_agent_mcp.domain.agent import ROLES, Agent, is_superior
from multi_agent_mcp.errors import AgentNotFound, InvalidArguments
from multi_agent_mcp.session import Service

if TYPE_CHECKING:
    from multi_agent_mcp.services.notifications.derived import DerivedNotices
    from multi_agent_mcp.services.overview.stuck_agents import StuckAgents
    from multi_agent_mcp.services.sessions.agent_sessions import Sessions
    from multi_agent_mcp.services.team.agents import Agents
    from multi_agent_mcp.services.team.limited import LimitedAgents

ANY = "@any"


@dataclass(eq=False)
class Free(Service):
    """Who is free: awake and idle."""

    agents: Agents
    sessions: Sessions
    limited: LimitedAgents
    derived_notices: DerivedNotices
    stuck_agents: StuckAgents

    def meant_by(self, agent: Agent, to: str) -> list[str]:
        """The ids of `meant`."""
        return [found.id for found in self.meant(agent.id, to)]

    def meant(self, sender_id: str, to: str) -> list[Agent]:
        """The agents that `@role` means, or `@any`: those below the sender. Raises `AgentNotFound` if there is none."""
        agents, role = self.agents.all(), to.removeprefix("@")
        found = [
            agent
            for agent in agents.values()
            if agent.id != sender_id and (agent.role == role if to != ANY else self._is_below(agent.id, sender_id))
        ]
        if not found or (to != ANY and role not in ROLES):
            raise AgentNotFound("nobody_of_that_kind", receiver=f"{to:.60}")
        return found

    def first(self, sender_id: str, to: str, suits: Callable[[Agent], bool] = lambda _: True) -> Agent | None:
        """The one of them that is free, suits, and has the shortest queue; None while nobody is."""
        owed = Counter(question.to_id for question in self.workspace.questions.open())
        tasks = self.workspace.tasks

        def waiting(agent: Agent) -> int:
            return sum(task.status == "todo" for task in tasks.open(agent.id)) + owed[agent.id]

        in_order = sorted(filter(suits, self.meant(sender_id, to)), key=waiting)
        return next(filter(self.is_free, in_order), None)

    def is_free(self, agent: Agent) -> bool:
        """Whether the agent is awake, works on no task, has no unread mail, and is not limited, paused, stuck or being
        removed."""
        if (
            self.agents.is_leaving(agent.id)
            or not self.sessions.alive(agent.id)
            or self.workspace.tasks.in_progress(agent.id)
        ):
            return False
        if self.workspace.mailbox(agent.id).unread() or self.limited.of(agent.id) is not None:
            return False
        return self.derived_notices.pause_of(agent.id) is None and not self.stuck_agents.find(only=agent.id)

    def _is_below(self, agent_id: str, superior_id: str) -> bool:
        try:
            return is_superior(superior_id, agent_id, self.agents.all())
        except (AgentNotFound, InvalidArguments):  # the hierarchy is broken
            return False
