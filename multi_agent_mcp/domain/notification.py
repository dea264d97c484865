"""Notifications: what an agent must be told at its next tool call (docs/protocol.md, Notifications)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from multi_agent_mcp.domain.entity import EPOCH, Readable

CHAT_NOTICE = "chat_session_notification"
TYPES = ("interrupt", "status_change", CHAT_NOTICE, "message")
ACTIONS = (
    *("blocked", "cancel", "pause", "resume"),
    *("task_assigned", "task_blocked", "agent_stuck", "loop_suspected"),
    *("delegation", "check_chat"),
)
BETWEEN_SESSIONS = frozenset({"delegation", "check_chat"})
"""What one session of an agent tells the agent's other one."""


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

    @property
    def rings(self) -> bool:
        """Nobody is rung for what they did themselves, unless it is for their other session (docs/protocol.md, When to
        ring)."""
        return self.sender_id != self.target_agent_id or self.action in BETWEEN_SESSIONS


def pressing_order(notice: Notification) -> tuple[bool, datetime, str]:
    """Sort key: interrupts before the rest, then oldest first."""
    return not notice.interrupts, notice.created_at, notice.id
