"""A small model of mailboxes, tasks and interrupts, which predicts the answers to every process."""

from __future__ import annotations

from dataclasses import dataclass, field

from multi_agent_mcp.domain.task import INTERRUPT_ACTIONS, TRANSITIONS


@dataclass
class Notice:
    """An interrupt about a task."""

    task_id: str
    action: str
    told: bool = False


@dataclass
class Job:
    status: str
    assignee: str


@dataclass
class Agent:
    """`unread` and `read` are message ids; `last` is what the last answer handed out and no later one confirmed."""

    unread: set[str] = field(default_factory=set)
    read: set[str] = field(default_factory=set)
    notices: list[Notice] = field(default_factory=list)
    last_mail: set[str] = field(default_factory=set)
    last_notices: list[Notice] = field(default_factory=list)

    def confirmed(self) -> None:
        """A later call was answered, or the process ended regularly."""
        self.last_mail, self.last_notices = set(), []

    def died(self) -> None:
        """Marks everything that the dead process was handed last as unread again."""
        self.unread |= self.last_mail
        self.read -= self.last_mail
        for notice in self.last_notices:
            notice.told = False
        self.confirmed()

    def reads(self) -> set[str]:
        handed, self.unread = self.unread, set()
        self.read |= handed
        self.last_mail = set(handed)
        return handed


@dataclass
class Model:
    agents: dict[str, Agent]
    jobs: dict[str, Job] = field(default_factory=dict)

    def pending(self, agent_id: str) -> list[Notice]:
        """Untold interrupts that still apply: their task is where they say."""
        return [
            notice
            for notice in self.agents[agent_id].notices
            if not notice.told and INTERRUPT_ACTIONS.get(self.jobs[notice.task_id].status) == notice.action
        ]

    def may_move(self, task_id: str, status: str) -> bool:
        return status in TRANSITIONS[self.jobs[task_id].status]

    def move(self, task_id: str, status: str, by: str) -> None:
        """Changes a status; `blocked` or `cancelled` by another agent interrupts an assignee at work, which it is until
        it has read of a block."""
        job = self.jobs[task_id]
        works = job.status == "in_progress" or task_id in {notice.task_id for notice in self.pending(job.assignee)}
        job.status = status
        if status in INTERRUPT_ACTIONS and by != job.assignee and works:
            self.agents[job.assignee].notices.append(Notice(task_id, INTERRUPT_ACTIONS[status]))
