"""What each reviewer was last shown of the tasks in review, so that nobody approves something else."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from multi_agent_mcp.domain.history import new_value, old_value
from multi_agent_mcp.domain.notification import review_requests_of
from multi_agent_mcp.domain.reviews import reviews_by
from multi_agent_mcp.errors import NotProven, StorageError
from multi_agent_mcp.session import Service

if TYPE_CHECKING:
    from multi_agent_mcp.domain.agent import Agent
    from multi_agent_mcp.domain.task import Task

SHORT_COMMIT = 7
"""The fewest characters by which a commit may be named."""


class ShownStates(Service):
    """The states of tasks in review that reviewers have seen."""

    def note(self, reviewer_id: str, tasks: Iterable[Task]) -> None:
        """Notes what these tasks deliver, as the reviewer is shown it. Never raises."""
        record = self.workspace.reviews_shown(reviewer_id)
        known, shown = record.facts(), {task.id: delivered_head(task) for task in tasks if task.status == "review"}
        if all(known.get(task_id) == head for task_id, head in shown.items()):
            return
        agents = self.workspace.registry.all()
        waiting = {task.id for task in self.workspace.tasks.open() if reviews_by(reviewer_id, task, agents)}
        with suppress(StorageError):  # then its approval has to name the state
            record.write({key: head for key, head in {**known, **shown}.items() if key in waiting}, durable=False)

    def require(self, reviewer: Agent, task: Task, state: str | None) -> None:
        """Raises `NotProven` if a review would be of something else than what the task delivers now."""
        head = delivered_head(task)
        if state is None:
            is_seen = self._has_seen(reviewer.id, task, head)
        else:
            is_seen = state == head or (len(state) >= SHORT_COMMIT and head.startswith(state))
        if head and not is_seen:
            if state is not None:  # an earlier one, or none that ever was
                raise NotProven("not_that_state", task_id=task.id, head=head, state=f"{state:.60}")
            raise NotProven("another_state", task_id=task.id, head=head)

    def _has_seen(self, reviewer_id: str, task: Task, head: str) -> bool:
        """Whether this is the state of the task that the reviewer was last shown, with the task or in the request to
        review it; else whether there was no other since the task was last given back: that one it has asked for."""
        last = self.workspace.reviews_shown(reviewer_id).facts().get(task.id)
        if last == head or self._has_read_request(reviewer_id, task):
            return True
        return _times_asked(task) < 2

    def _has_read_request(self, reviewer_id: str, task: Task) -> bool:
        notices = self.workspace.notices(reviewer_id)
        found = [notices.find(notice.id) for notice in review_requests_of(task, [reviewer_id])]
        return any(one is not None and not notices.is_unread(one[0].name, one[1]) for one in found)


def delivered_head(task: Task) -> str:
    """The name of what a task in review delivers; empty if it was not delivered."""
    return str((task.delivery or {}).get("head") or "")


def _times_asked(task: Task) -> int:
    """How often the task came to review since a reviewer last gave it back."""
    times = 0
    for line in task.history.having("status"):
        if old_value(line, "status") == "review" and line.get("by") != task.assignee_id:
            break
        times += new_value(line, "status") == "review"
    return times
