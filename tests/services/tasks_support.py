"""Support for the tests of tasks, interrupts, conversations and delegations."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from multi_agent_mcp.domain.agent import Agent, AgentSession
from multi_agent_mcp.domain.message import Conversation, Delegation
from multi_agent_mcp.domain.notification import Notification
from multi_agent_mcp.domain.task import UNASSIGNED, Task
from multi_agent_mcp.services.sessions.agent_sessions import LiveSession
from multi_agent_mcp.services.tasks.board import NewTask
from multi_agent_mcp.wiring import Services
from tests.programs import ran

UNKNOWN = "tsk_000000000000"


def new(
    services: Services,
    title: str = "Build",
    assignee_id: str | None = "worker-a",
    *,
    by: str = "admin",
    parent: str | None = None,
    **fields: Any,
) -> Task:
    """A task, `todo` with an assignee."""
    item = NewTask(title=title, assignee_id=assignee_id, **fields)
    (task,) = services.task_creation.create(services.agents.get(by), [item], parent)
    return task


def moved(services: Services, task: Task, *path: str) -> Task:
    """The task, moved along by its assignee."""
    actor = services.agents.get(task.assignee_id or task.created_by)
    for status in path:
        task, _ = services.task_changes.set_status(actor, task.id, status)
    return task


def running(services: Services, title: str = "Build", assignee_id: str = "worker-a", **fields: Any) -> Task:
    """A task somebody works on."""
    return moved(services, new(services, title, assignee_id, **fields), "in_progress")


def mailed(services: Services, assignee_id: str = "worker-a", *, by: str = "admin") -> Task:
    """A task that its assignee received by mail."""
    return services.task_creation.send(services.agents.get(by), assignee_id, "Build", "the house").task


def again(services: Services, task: Task) -> Task:
    """Reads the task again from the disk."""
    return services.task_changes.get(task.id)


def path_of(services: Services, task: Task) -> Path:
    return services.workspace.path / "tasks" / (task.assignee_id or UNASSIGNED) / f"{task.id}.md"


def inbox(services: Services, agent_id: str) -> list[tuple[str, str, str]]:
    mailbox = services.workspace.mailbox(agent_id)
    unread = [message for name, _ in mailbox.unread(fresh=True) if (message := mailbox.hot.load(name)) is not None]
    return sorted((item.message_type, item.sender_id, item.content) for item in unread)


def notices(services: Services, agent_id: str) -> list[Notification]:
    """Every unread notification file of an agent, whether it still applies or not, oldest first."""
    found = [notice for _, notice in services.workspace.notices(agent_id).unread(fresh=True)]
    return sorted(found, key=lambda notice: (notice.created_at, notice.id))


def shown(services: Services, agent_id: str, purpose: str = "task") -> list[dict[str, Any]]:
    """The notifications an agent would be shown now; they are not marked as read."""
    return services.notifications.read(agent_id, purpose, mark_as_read=False)


def open_session(services: Services, agent_id: str, purpose: str = "task") -> LiveSession:
    return services.sessions.open(agent_id, purpose)


def dies(services: Services, session: LiveSession) -> None:
    """Simulates the death of the session's process."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    services.workspace.sessions.update(
        session.record.id, lambda found: replace(found, pid=process.pid, pid_started_at="0")
    )


def delegate(
    services: Services,
    session: LiveSession,
    target: str = "worker-b",
    purpose: str = "play",
    context: str | None = None,
) -> Delegation:
    agent = services.agents.get(session.record.agent_id)
    return services.delegations.delegate(agent, session.record, target, purpose, context)[0]


def converse(
    services: Services, session: AgentSession, target: str = "worker-b", words: str = "hello", **options: Any
) -> Conversation:
    """A conversation begun by a chat session."""
    agent = services.agents.get(session.agent_id)
    return services.delegations.start_conversation(agent, session, target, words, **options)[0]


def snapshot(services: Services) -> dict[str, bytes]:
    """Every entity file of the session, with its content."""
    base = services.workspace.path
    return {
        str(path.relative_to(base)): path.read_bytes()
        for path in sorted(base.rglob("*"))
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(base).parts)
    }


def agent(services: Services, agent_id: str) -> Agent:
    return services.agents.get(agent_id)


def forked(job: str, *arguments: str | Path) -> list[str]:
    """Runs a job of `tests.services.forks` in a process of its own; the words it printed."""
    done = ran(sys.executable, "-m", "tests.services.forks", job, *map(str, arguments))
    assert done.returncode == 0, done.stderr
    return done.stdout.split()
