"""Who is free: awake and idle (docs/protocol.md, Whoever is free)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from multi_agent_mcp.domain.agent import ROLES, Agent, is_known_superior
from multi_agent_mcp.errors import AgentNotFound
from multi_agent_mcp.session import Service

if TYPE_CHECKING:
    from multi_agent_mcp.services.notifications.derived import DerivedNotices
    from multi_agent_mcp.services.overview.stuck_agents import StuckAgents
    from multi_agent_mcp.services.sessions.agent_sessions import Sessions
    from multi_agent_mcp.services.team.agents import Agents
    from multi_agent_mcp.services.team.limited import LimitedAgents

ANY = "@any"
KINDS = (*(f"@{role}" for role in ROLES), ANY)
Suits = Callable[[Agent], bool]


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
        found = self._others(sender_id, to) if to in KINDS else []
        if not found:
            kinds = ", ".join(kind for kind in KINDS if self._others(sender_id, kind))
            key, facts = ("nobody_of_that_kind", {"kinds": kinds}) if kinds else ("nobody_of_any_kind", {})
            raise AgentNotFound(key, receiver=f"{to:.60}", **facts)
        return found

    def _others(self, sender_id: str, to: str) -> list[Agent]:
        agents = self.agents.all()
        if to == ANY:
            return [agent for agent in agents.values() if is_known_superior(sender_id, agent.id, agents)]
        return [agent for agent in agents.values() if agent.id != sender_id and f"@{agent.role}" == to]

    def first(self, sender_id: str, to: str, suits: Suits) -> Agent | None:
        """The one of them that is free, suits, and has the shortest queue; None while nobody is. Agents come before
        people; where only people are meant, one of them has it at once, whatever else that person has to do."""
        in_order = self._in_order(sender_id, to, suits)
        found = next(filter(self.is_free, in_order), None)
        if found is None and all(map(is_person, self.meant(sender_id, to))):
            return next((one for one in in_order if not self.agents.is_leaving(one.id)), None)
        return found

    def asleep(self, sender_id: str, to: str, suits: Suits) -> list[str]:
        """Those of them, the shortest queue first, that would be free if somebody started them, but for mail."""
        return [
            agent.id
            for agent in self._in_order(sender_id, to, suits)
            if not self.is_awake(agent) and not self.workspace.tasks.in_progress(agent.id) and self._is_let(agent)
        ]

    def _in_order(self, sender_id: str, to: str, suits: Suits) -> list[Agent]:
        owed = Counter(question.to_id for question in self.workspace.questions.open())
        tasks = self.workspace.tasks

        def waiting(agent: Agent) -> tuple[bool, int]:
            return is_person(agent), sum(task.status == "todo" for task in tasks.open(agent.id)) + owed[agent.id]

        return sorted(filter(suits, self.meant(sender_id, to)), key=waiting)

    def is_free(self, agent: Agent) -> bool:
        """Whether the agent is awake, works on no task, has no unread mail, and is not limited, paused, stuck or being
        removed. A person is always awake."""
        if not self.is_awake(agent) or self.workspace.tasks.in_progress(agent.id):
            return False
        if self.workspace.mailbox(agent.id).unread() or not self._is_let(agent):
            return False
        return not self.stuck_agents.find(only=agent.id)

    def is_awake(self, agent: Agent) -> bool:
        """Whether a server of the agent runs, or it is a person."""
        return is_person(agent) or self.sessions.alive(agent.id)

    def _is_let(self, agent: Agent) -> bool:
        """Whether nothing keeps the agent from work: no limit, no pause, no removal."""
        if self.agents.is_leaving(agent.id) or self.limited.now(agent.id) is not None:
            return False
        return self.derived_notices.pause_of(agent.id) is None


def is_person(agent: Agent) -> bool:
    """Whether the agent is a person, who needs no server: an Owner is one unless a program is started for it."""
    return agent.type == "human" or (agent.may_be_human and agent.command is None)
