"""A session at a glance, for people who look on: who works on what, what waits, what was written last."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from multi_agent_mcp.domain.agent import Agent, in_tree_order
from multi_agent_mcp.domain.task import TASK_STATUSES, Task, priority_rank
from multi_agent_mcp.domain.times import json_values
from multi_agent_mcp.services.mail.search import MailSearch
from multi_agent_mcp.services.mail.tracking import DeliveryTracking
from multi_agent_mcp.services.notices.interrupts import Interrupts
from multi_agent_mcp.services.sessions.agent_sessions import Sessions
from multi_agent_mcp.services.sessions.owner_waits import OwnerWaits
from multi_agent_mcp.store.workspace import Workspace

ORDER = ("in_progress", "blocked", "todo", "backlog")
"""Open tasks: what is being done first."""
SUBJECT_CHARACTERS = 120


@dataclass(frozen=True, kw_only=True)
class AgentRow:
    """`interrupted`: an interrupt that it has not read yet still applies."""

    id: str
    role: str
    depth: int
    alive: bool
    unread: int
    interrupted: bool
    task_id: str | None
    task_title: str | None
    waiting_for: str | None
    active_at: datetime | None


@dataclass(frozen=True, kw_only=True)
class TaskRow:
    """`since`: when its status became what it is."""

    id: str
    title: str
    status: str
    assignee_id: str | None
    progress: int
    blocked_reason: str | None
    since: datetime


@dataclass(frozen=True, kw_only=True)
class MessageRow:
    """`state` is the furthest step; `reason` says why it went no further. `subject`: or the first words."""

    id: str
    sender_id: str
    receiver_id: str
    message_type: str
    subject: str
    created_at: datetime
    state: str
    reason: str | None


@dataclass(frozen=True, kw_only=True)
class Seen:
    """One look. `tasks` are the open ones, `counts` counts all by status; `messages` are the newest."""

    session: str
    at: datetime
    counts: dict[str, int]
    agents: tuple[AgentRow, ...]
    tasks: tuple[TaskRow, ...]
    messages: tuple[MessageRow, ...]

    def as_answer(self) -> dict[str, Any]:
        """As JSON knows it."""
        return asdict(self, dict_factory=json_values)


class Snapshots:
    """Looks, and changes nothing."""

    def __init__(
        self,
        workspace: Workspace,
        sessions: Sessions,
        owner_waits: OwnerWaits,
        interrupts: Interrupts,
        mail_search: MailSearch,
        tracking: DeliveryTracking,
        clock: Callable[[], datetime],
    ) -> None:
        self.workspace = workspace
        self.sessions = sessions
        self.owner_waits = owner_waits
        self.interrupts = interrupts
        self.mail_search = mail_search
        self.tracking = tracking
        self.clock = clock

    def look(self, *, messages: int = 20) -> Seen:
        """What is to be seen now. Costs little while little has changed: the folders' indexes are asked."""
        tasks = sorted(self.workspace.tasks.open(), key=_urgency)
        counts = Counter(task.status for task in tasks) + self.workspace.tasks.closed_counts()
        everybody = in_tree_order(self.workspace.registry.active())
        return Seen(
            session=self.workspace.session,
            at=self.clock(),
            counts={status: counts[status] for status in TASK_STATUSES},
            agents=tuple(self._agent(agent, depth, tasks) for agent, depth in everybody),
            tasks=tuple(_task(task) for task in tasks if not task.final),
            messages=tuple(self._messages(messages)),
        )

    def _agent(self, agent: Agent, depth: int, tasks: list[Task]) -> AgentRow:
        current = next((task for task in tasks if task.assignee_id == agent.id and task.status == "in_progress"), None)
        running = self.sessions.running(agent.id)
        wait = self.owner_waits.of(agent.id) if agent.role == "owner" else None
        notices = self.workspace.notices(agent.id).unread()
        return AgentRow(
            id=agent.id,
            role=agent.role,
            depth=depth,
            alive=bool(running),
            unread=len(self.workspace.mailbox(agent.id).unread()),
            interrupted=any(notice.interrupts and self.interrupts.applies(notice) for _, notice in notices),
            task_id=current.id if current else None,
            task_title=current.title if current else None,
            waiting_for=wait.admin_id if wait else None,
            active_at=max((session.last_activity_at for session in running), default=None),
        )

    def _messages(self, limit: int) -> Iterator[MessageRow]:
        found = self.mail_search.page(limit=limit).messages
        for message, progress in zip(found, self.tracking.progress(found), strict=True):
            yield MessageRow(
                id=message.id,
                sender_id=message.sender_id,
                receiver_id=message.receiver_id,
                message_type=message.message_type,
                subject=" ".join((message.subject or message.content).split())[:SUBJECT_CHARACTERS],
                created_at=message.created_at,
                state=progress["state"],
                reason=progress.get("reason"),
            )


def _task(task: Task) -> TaskRow:
    return TaskRow(
        id=task.id,
        title=task.title,
        status=task.status,
        assignee_id=task.assignee_id,
        progress=task.progress,
        blocked_reason=task.blocked_reason,
        since=task.status_changed_at or task.created_at,
    )


def _urgency(task: Task) -> tuple[int, int, datetime, str]:
    place = ORDER.index(task.status) if task.status in ORDER else len(ORDER)
    return place, -priority_rank(task.priority), task.created_at, task.id
