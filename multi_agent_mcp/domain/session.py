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
    """`state` is `active`, `ended`, `expired`, or `died` when its process did not end it. `unconfirmed` are the files
    handed out in the last answers (paths in the session directory; ids in files of earlier versions): should this
    process die before its next call, they are unread again for the agent's next server. `calls` are the tool calls so
    far. `machine` is where the process runs, where there are several."""

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
        """A call was made: the hour starts again."""
        return replace(self, last_activity_at=at, expires_at=at + SESSION_LIFETIME, calls=self.calls + 1)

    def with_unconfirmed(self, files: tuple[str, ...]) -> AgentSession:
        """These were handed out and wait for the reader's next call."""
        return replace(self, unconfirmed=files)

    def on_task(self, task_id: str | None) -> AgentSession:
        """Work on this task has begun."""
        return replace(self, task_id=task_id)

    def end(self, at: datetime, state: str = "ended") -> AgentSession:
        return self if self.ended_at else replace(self, state=state, ended_at=at)

    def expired(self, at: datetime) -> bool:
        return at >= self.expires_at
