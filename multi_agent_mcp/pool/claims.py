"""Claiming: an agent takes an unassigned task of one of its superiors (docs/protocol.md, Whoever is free).

The task's file decides: the claim is a change under its lock, on several machines at the hub, so it has one winner."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from multi_agent_mcp.domain.agent import is_known_superior
from multi_agent_mcp.domain.history import Change
from multi_agent_mcp.domain.proof import require_reviewers
from multi_agent_mcp.domain.task import CLAIMABLE, UNASSIGNED, Task, work_order
from multi_agent_mcp.errors import AlreadyExists, Refusal, Unauthorized
from multi_agent_mcp.services.tasks.board import summary_of
from multi_agent_mcp.services.tasks.changes import require_startable
from multi_agent_mcp.session import Service

if TYPE_CHECKING:
    from multi_agent_mcp.domain.agent import Agent
    from multi_agent_mcp.services.notifications.derived import DerivedNotices
    from multi_agent_mcp.services.tasks.changes import TaskChanges
    from multi_agent_mcp.services.team.agents import Agents


@dataclass(eq=False)
class Claims(Service):
    """The tasks that nobody has, and who takes them."""

    agents: Agents
    task_changes: TaskChanges
    derived_notices: DerivedNotices

    def claim(self, agent: Agent, task_id: str) -> Task:
        """Assigns the task to the agent; it is in `todo` then. Raises `InvalidId`, `TaskNotFound`, `AlreadyExists` if
        somebody has it, `Unauthorized` if it is no superior's or needs what the agent cannot, and as
        `require_startable` and `require_reviewers`."""
        task = self.task_changes.get(task_id)
        agents = self.agents.all()
        change = Change(by=agent.id, at=self.clock())

        def take(found: Task) -> Task:
            taken = found.claimed(agent.id, change)
            self._require(agent, taken, agents)
            return taken

        task.claimed(agent.id, change)  # who comes late need not wait for the lock
        claimed = self.workspace.tasks.update(task.id, take)
        self.derived_notices.follow_up(claimed)
        return claimed

    def take(self, agent: Agent) -> Task | None:
        """Claims the first of those that the agent could do, in the order of work; None if there is none."""
        for task in self.claimable(agent):
            with suppress(AlreadyExists):  # another agent was faster
                return self.claim(agent, task.id)
        return None

    def claimable(self, agent: Agent) -> Iterator[Task]:
        """The tasks that the agent could claim now, in the order of work."""
        agents = self.agents.all()
        for task in sorted(self.workspace.tasks.open(UNASSIGNED), key=work_order):
            if task.status in CLAIMABLE:
                with suppress(Refusal):
                    self._require(agent, replace(task, assignee_id=agent.id), agents)
                    yield task

    def offer(self, agent: Agent) -> dict[str, Any] | None:
        """The action for a worker that has nothing to do while there is a task that it could claim, or None."""
        first = next(self.claimable(agent), None) if agent.role == "worker" else None
        if first is None:
            return None
        words = self.texts("next.claim", task_id=first.id)
        about = {"task_id": first.id, "task": summary_of(first)}
        return {"action": "claim", "authority": "system", "instruction": words, **about}

    def _require(self, agent: Agent, taken: Task, agents: Mapping[str, Agent]) -> None:
        """Raises unless the agent may claim the task, which is in its hands for a try."""
        if not is_known_superior(taken.created_by, agent.id, agents):
            raise Unauthorized("not_superiors_task", task_id=taken.id, created_by=taken.created_by)
        self.require_able(agent, taken, agents)

    def require_able(self, agent: Agent, taken: Task, agents: Mapping[str, Agent]) -> None:
        """Raises unless the agent can do the task, and begin it now, which is in its hands for a try."""
        if lacking := lacking_skills(agent, taken):
            raise Unauthorized("lacks_skills", task_id=taken.id, skills=", ".join(lacking))
        require_startable(self.workspace, taken)
        require_reviewers(taken.done_when, agent.id, agents)


def lacking_skills(agent: Agent, task: Task) -> list[str]:
    """What the task needs and the agent cannot do, by its record's `skills`. Case does not matter."""
    given = agent.extra.get("skills")
    known = {str(skill).casefold() for skill in given} if isinstance(given, (list, tuple)) else set()
    return [skill for skill in task.needs if str(skill).casefold() not in known]
