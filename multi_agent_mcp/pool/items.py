"""What is offered to whoever is free beside mail: tasks, questions and delegations (docs/protocol.md, Whoever is free).

The file of each decides who has it. What it is, its id says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from multi_agent_mcp.domain.agent import WHOEVER
from multi_agent_mcp.domain.history import Change
from multi_agent_mcp.domain.message import Delegation
from multi_agent_mcp.domain.question import Question
from multi_agent_mcp.domain.task import CLAIMABLE, Task
from multi_agent_mcp.errors import Refusal
from multi_agent_mcp.session import Service

if TYPE_CHECKING:
    from multi_agent_mcp.domain.agent import Agent
    from multi_agent_mcp.pool.claims import Claims
    from multi_agent_mcp.services.questions import QuestionEffects

Item = Task | Question | Delegation


@dataclass(eq=False)
class Items(Service):
    """Tasks, questions and delegations that wait for whoever is free."""

    claims: Claims
    question_effects: QuestionEffects

    def find(self, item_id: str) -> Item | None:
        workspace = self.workspace
        if item_id.startswith("tsk_"):
            return workspace.tasks.find(item_id)
        return workspace.questions.find(item_id) or workspace.delegations.find(item_id)

    def suits(self, item: Item | None, sender_id: str) -> Callable[[Agent], bool]:
        """Which agents can have it now. A task is for one that could begin no other."""
        changes, agents = self.claims.task_changes, self.claims.agents.all()
        senders = self.workspace.registry.all()  # what one that was removed has sent is still handed out

        def can_begin(agent: Agent) -> bool:
            if not isinstance(item, Task):
                return True
            try:
                self.claims.agents.require_assignable(senders[sender_id], agent)
                self.claims.require_able(agent, replace(item, assignee_id=agent.id), agents)
            except (Refusal, KeyError):
                return False
            return item.status == "todo" and not changes.startable(agent.id)

        return can_begin

    def give(self, item_id: str, agent_id: str, sender_id: str, message_id: str | None) -> Item:
        """Gives it to the agent; nothing happens the second time. `message_id` is the message that brings a task.
        Raises `AlreadyExists` if somebody else has the task by now."""
        now = self.clock()
        if item_id.startswith("tsk_"):
            change = Change(by=sender_id, at=now)
            return self.workspace.tasks.update(
                item_id, lambda it: it if it.assignee_id == agent_id else it.claimed(agent_id, change, message_id)
            )
        of_kind: Any = self.workspace.questions if item_id.startswith("qst_") else self.workspace.delegations
        given: Item = of_kind.update(item_id, lambda it: it.readdressed(agent_id, now) if taker_of(it) is None else it)
        return given

    def follow_up(self, item: Item) -> None:
        """Notifies those concerned by what was given."""
        if isinstance(item, Task):
            self.claims.derived_notices.follow_up(item)
        elif isinstance(item, Question):
            self.question_effects.follow(item, acting=True)
        else:
            self.claims.derived_notices.tell_delegation(item)


def taker_of(item: Item) -> str | None:
    """Who has it; "" if nobody will; None while it waits for whoever is free."""
    if isinstance(item, Task):
        return item.assignee_id or (None if item.status in CLAIMABLE else "")
    receiver = item.to_id if isinstance(item, Question) else item.target_agent_id
    if not receiver.startswith(WHOEVER):
        return receiver
    return "" if isinstance(item, Question) and item.closed else None
