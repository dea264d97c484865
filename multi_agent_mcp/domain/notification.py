"""Notifications: what an agent must be told at its next tool call (docs/protocol.md, Notifications)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from multi_agent_mcp.domain.entity import EPOCH, Readable


@dataclass(frozen=True, kw_only=True)
class Notification(Readable):
    """One file; scope is the agent, the session directory and the purpose of the agent session it is meant for."""

    BODY: ClassVar[str | None] = "instruction"
    LEFT_OUT: ClassVar[frozenset[str]] = frozenset({"sender_id", "reason"})

    id: str
    target_agent_id: str = ""
    target_purpose: str | None = None
    type: str = "message"
    action: str | None = None
    task_id: str | None = None
    conversation_id: str | None = None
    message: str = ""
    created_at: datetime = EPOCH
    read_at: datetime | None = None
    sender_id: str | None = None
    """Whose doing it is; None for the system's own (and in files of the first version)."""
    reason: str | None = None
    instruction: str = ""

    def meant_for(self, purpose: str) -> bool:
        """Whether an agent session with this purpose is told; no target purpose (or `both`) means every session."""
        return self.target_purpose in (None, "both", purpose)

    @property
    def interrupts(self) -> bool:
        return self.type == "interrupt"
