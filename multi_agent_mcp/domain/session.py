"""Agent sessions: one running server process of an agent, with a purpose (docs/protocol.md, Agent sessions)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import ClassVar

from multi_agent_mcp.domain.entity import EPOCH, Identified

SESSION_LIFETIME = timedelta(seconds=3600)
DIED = "died"


@dataclass(frozen=True, kw_only=True)
class AgentSession(Identified):
    """An agent session. `state` is `active`, `ended`, `expired`, or `died` if its process did not end it. `unconfirmed`
    are the leased files of the last answers (paths in the session directory and the time of the mark; without it, or
    ids, in files of earlier versions), which the agent's next server makes unread again if this process dies before its
    next call. `calls` counts the tool calls. `machine` is that of the process, in a shared session."""

    LEFT_OUT: ClassVar[frozenset[str]] = frozenset({"machine"})

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

    def on_task(self, task_id: str | None) -> AgentSession:
        """The session bound to this task."""
        return replace(self, task_id=task_id)

    def end(self, at: datetime, state: str = "ended") -> AgentSession:
        return self if self.ended_at else replace(self, state=state, ended_at=at)

    def expired(self, at: datetime) -> bool:
        return at >= self.expires_at
