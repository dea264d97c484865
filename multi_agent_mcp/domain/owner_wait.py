"""The Owner's wait-lock: after `send_task` to an Admin the Owner waits for an answer and does not poll
(docs/protocol.md, Owner wait)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from multi_agent_mcp.domain.entity import EPOCH, Entity


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
