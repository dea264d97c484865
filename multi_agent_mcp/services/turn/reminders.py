"""Rings an idle agent again about a task that it knows of and has not begun (docs/protocol.md, When to ring).

All of it follows from files: when the agent was last active, the task's history, and the reminders that were written,
whose ids are derived from the announcement. So a process may be killed anywhere, and several write each one once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from multi_agent_mcp.domain.entity import EPOCH
from multi_agent_mcp.domain.notification import announcement_of, reminders_of
from multi_agent_mcp.domain.stuck import BUSY
from multi_agent_mcp.domain.task import WITH_ASSIGNEE, Task
from multi_agent_mcp.services.notifications.derived import text_of
from multi_agent_mcp.session import Service

if TYPE_CHECKING:
    from multi_agent_mcp.services.notifications.derived import DerivedNotices
    from multi_agent_mcp.services.sessions.agent_sessions import Sessions
    from multi_agent_mcp.services.tasks.changes import TaskChanges
    from multi_agent_mcp.services.team.limited import LimitedAgents

REMINDED_AFTER = (timedelta(minutes=2), timedelta(minutes=10))
"""How long an agent is idle before the first reminder, and how much later the second follows."""


@dataclass(eq=False)
class Reminders(Service):
    """The reminders of one session's agents. The doorbell's thread of a server asks when nothing else is to be rung."""

    sessions: Sessions
    derived: DerivedNotices
    task_changes: TaskChanges
    limited: LimitedAgents

    def look(self, agent_id: str, screen: Callable[[], str | None]) -> timedelta | None:
        """Writes the reminder that is due to an agent with nothing unread, which rings it. Returns after what time to
        look again; None if there is nothing to be reminded of until a file changes. `screen` returns the state of the
        host's screen: one that works is left alone. Raises `StorageError`."""
        task = self._waiting(agent_id)
        told = None if task is None else announcement_of(task)
        if task is None or told is None:
            return None
        idle_since = self._idle_since(agent_id, task)
        due, reminder = idle_since + REMINDED_AFTER[0], None
        for notice in reminders_of(told, self.clock()):
            if (written := self.workspace.notices(agent_id).find(notice.id)) is None:
                reminder = notice
                break
            due = max(self._latest(written[1].created_at) + REMINDED_AFTER[1], idle_since + REMINDED_AFTER[0])
        if reminder is None:
            return None
        if (remaining := due - self.clock()) > timedelta(0):
            return remaining
        if screen() == BUSY:
            return REMINDED_AFTER[0]
        self.derived.writer.put_first(self.derived.writer.worded(reminder, text_of(reminder)))
        return timedelta(0)

    def _waiting(self, agent_id: str) -> Task | None:
        """The task that an idle agent would be handed next; None for one that works, is paused or has met a limit."""
        if not any(task.status in WITH_ASSIGNEE for task in self.workspace.tasks.open(agent_id)):
            return None
        if self.limited.of(agent_id) is not None or self.derived.pause_of(agent_id) is not None:
            return None
        working = self.workspace.tasks.in_progress(agent_id)
        if any(self.derived.is_begun(task) for task in working):
            return None
        return next(iter([*working, *self.task_changes.startable(agent_id)]), None)

    def _idle_since(self, agent_id: str, task: Task) -> datetime:
        """When the agent made its last call, or was resumed, or could first begin the task, whichever was last."""
        told = self.derived.interrupts.newest_of_pausing(agent_id)
        awaited = filter(None, map(self.workspace.tasks.find, task.dependencies))
        return self._latest(
            task.changed_at,
            self.sessions.last_activity(agent_id),
            None if told is None else told.created_at,
            *(found.completed_at for found in awaited),
        )

    def _latest(self, *moments: datetime | None) -> datetime:
        """The last of these; those ahead of the clock, which was set back since, do not count."""
        now = self.clock()
        return max((moment for moment in moments if moment is not None and moment <= now), default=EPOCH)
