"""Who reviews a task (docs/protocol.md, Done means proven)."""

from __future__ import annotations

from collections.abc import Mapping

from multi_agent_mcp.domain.agent import Agent, is_known_superior
from multi_agent_mcp.domain.proof import REVIEW, reviewer_of, reviews_in
from multi_agent_mcp.domain.task import Task


def open_reviews(task: Task, agents: Mapping[str, Agent]) -> dict[str, str | None]:
    """The reviewer of each review that a task in `review` still waits for. A task that was moved there without such a
    condition waits for its assignee's nearest superior."""
    if task.status != "review" or task.assignee_id is None:
        return {}
    given = task.reviews_given
    wanted = reviews_in(task.done_when) or [REVIEW]
    return {name: reviewer_of(name, task.assignee_id, agents) for name in wanted if name not in given}


def reviews_by(actor_id: str, task: Task, agents: Mapping[str, Agent]) -> list[str]:
    """The open reviews that this agent may decide: its own, and those of agents below it; never of its own task."""
    if actor_id == task.assignee_id:
        return []
    reviews = open_reviews(task, agents).items()
    return [name for name, who in reviews if who is None or who == actor_id or is_known_superior(actor_id, who, agents)]
