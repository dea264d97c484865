"""Notifications, which an agent is told at its next tool call (docs/protocol.md, Notifications)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

from multi_agent_mcp.domain.entity import EPOCH, Readable

CHAT_NOTICE = "chat_session_notification"
TYPES = ("interrupt", "status_change", CHAT_NOTICE, "message")
ACTIONS = (
    *("blocked", "cancel", "pause", "resume"),
    *("task_assigned", "task_updated", "task_blocked", "agent_stuck", "loop_suspected"),
    *("delegation", "check_chat"),
)
BETWEEN_SESSIONS = frozenset({"delegation", "check_chat", "task_assigned", "task_updated"})
"""The actions of notifications that, if an agent caused them itself, come from one of its sessions to the other."""


@dataclass(frozen=True, kw_only=True)
class Notification(Readable):
    """A notification, one file, for the agent sessions of one agent with one purpose."""

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
    """The agent that caused it; None for the system (and in files of the first version)."""
    reason: str | None = None
    instruction: str = ""

    def meant_for(self, purpose: str) -> bool:
        """Whether it is for agent sessions of this purpose; no target purpose (or `both`) means every session."""
        return self.target_purpose in (None, "both", purpose)

    @property
    def interrupts(self) -> bool:
        return self.type == "interrupt"

    @property
    def rings(self) -> bool:
        """Whether it rings the agent: not if the agent caused it itself, unless it is for its other session
        (docs/protocol.md, When to ring)."""
        return self.sender_id != self.target_agent_id or self.action in BETWEEN_SESSIONS


def pressing_order(notice: Notification) -> tuple[bool, datetime, str]:
    """A sort key: interrupts before the rest, then oldest first."""
    return not notice.interrupts, notice.created_at, notice.id
