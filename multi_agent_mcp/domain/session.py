"""Agent sessions: one running server process of an agent, with a purpose (docs/protocol.md, Agent sessions)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import ClassVar, Literal

from multi_agent_mcp.domain.entity import EPOCH, Entity, Identified

SESSION_LIFETIME = timedelta(seconds=3600)
DIED = "died"


@dataclass(frozen=True, kw_only=True)
class AgentSession(Identified):
    """An agent session. `state` is `active`, `ended`, `expired`, or `died` if its process did not end it. `unconfirmed`
    are the leased files of the last answers (paths in the session directory and the time of the mark; without it, or
    ids, in files of earlier versions), which the agent's next server makes unread again if this process dies before its
    next call. `calls` counts the tool calls. `machine` is that of the process, in a shared session. `host` is the
    program that started the process, `host_session` that program's own id of its conversation, once known, and
    `host_directory` where it works."""

    LEFT_OUT: ClassVar[frozenset[str]] = frozenset({"machine", "host", "host_session", "host_directory"})

    id: str
    agent_id: str = ""
    purpose: str = "task"
    task_id: str | None = None
    state: str = "active"
    token_hash: str = ""
    pid: int = 0
    pid_started_at: str | None = None
    created_at: datetime = EPOCH
    last_activity_at: datetime = EPOCH
    expires_at: datetime = EPOCH
    ended_at: datetime | None = None
    unconfirmed: tuple[str, ...] = ()
    calls: int = 0
    machine: str | None = None
    host: str | None = None
    host_session: str | None = None
    host_directory: str | None = None

    def touch(self, at: datetime) -> AgentSession:
        """The session after a call, which renews its lifetime."""
        return replace(self, last_activity_at=at, expires_at=at + SESSION_LIFETIME, calls=self.calls + 1)

    @property
    def called(self) -> bool:
        """Whether a tool was called; `calls` begins at 1."""
        return self.calls > 1

    def with_unconfirmed(self, files: tuple[str, ...]) -> AgentSession:
        """The session with these files as unconfirmed."""
        return replace(self, unconfirmed=files)

    def in_conversation(
        self, host: str | None, host_session: str | None, host_directory: str | None = None
    ) -> AgentSession:
        """The session in this conversation of its host; what is not known stays as it was."""
        return replace(
            self,
            host=host or self.host,
            host_session=host_session or self.host_session,
            host_directory=host_directory or self.host_directory,
        )

    def on_task(self, task_id: str | None) -> AgentSession:
        """The session bound to this task."""
        return replace(self, task_id=task_id)

    def end(self, at: datetime, state: str = "ended") -> AgentSession:
        return self if self.ended_at else replace(self, state=state, ended_at=at)

    def expired(self, at: datetime) -> bool:
        return at >= self.expires_at


# Executions: one stretch of work of a task session on a task, with a log of its tool calls (docs/protocol.md,
# Executions).

ExecutionStatus = Literal["running", "completed", "failed"]


@dataclass(frozen=True, kw_only=True)
class Execution(Identified):
    """An execution. `log_file_path` is relative to the session directory; `duration_seconds` is set at the end."""

    BEGAN: ClassVar[str] = "started_at"
    LEFT_OUT: ClassVar[frozenset[str]] = frozenset({"traceparent"})

    id: str
    agent_id: str = ""
    task_id: str = ""
    session_id: str = ""
    status: str = "running"
    started_at: datetime = EPOCH
    completed_at: datetime | None = None
    exit_code: int | None = None
    duration_seconds: float | None = None
    log_file_path: str = ""
    error_message: str | None = None
    traceparent: str | None = None
    """The trace of the call that began it."""

    @property
    def running(self) -> bool:
        return self.completed_at is None

    def finish(self, at: datetime, *, error_message: str | None = None) -> Execution:
        """The finished execution: `completed` with exit code 0, or `failed` with 1 and the reason. Finishing twice
        changes nothing."""
        if not self.running:
            return self
        return replace(
            self,
            status="completed" if error_message is None else "failed",
            completed_at=at,
            exit_code=0 if error_message is None else 1,
            duration_seconds=round(max((at - self.started_at).total_seconds(), 0.0), 3),
            error_message=error_message,
        )


# Hand-offs: what an agent, or its superior, has to know to go on with a task (docs/protocol.md, Hand-offs).

HAND_OFF_CHARACTERS = 4_000


@dataclass(frozen=True, kw_only=True)
class HandOff(Identified):
    """A hand-off. `kind` is `written` by its agent, or `derived` from the task and its log. `task_id` is the task that
    it is about, if any."""

    BODY: ClassVar[str | None] = "content"

    id: str
    agent_id: str = ""
    task_id: str | None = None
    kind: str = "written"
    created_at: datetime = EPOCH
    content: str = ""


# The Owner's wait-lock: after `send_task` to an Admin the Owner waits for an answer and does not poll
# (docs/protocol.md, Owner wait).


@dataclass(frozen=True, kw_only=True)
class OwnerWait(Entity):
    """A wait-lock. `empty_checks` counts checks in a row that found no mail; `released_by` is the message that ended
    the wait."""

    owner_id: str = ""
    admin_id: str = ""
    task_id: str = ""
    message_id: str = ""
    since: datetime = EPOCH
    empty_checks: int = 0
    released_by: str | None = None

    def checked(self, unread: int) -> OwnerWait:
        """The wait after a check that found `unread` messages."""
        return replace(self, empty_checks=0 if unread else self.empty_checks + 1)
