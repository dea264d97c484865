"""The author, time and reason of a change, recorded as one line of a task's history."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from multi_agent_mcp.domain.entity import EPOCH
from multi_agent_mcp.domain.times import format_time, parse_time


@dataclass(frozen=True, kw_only=True)
class Change:
    """A change of a task: by whom, when, why, and (from a chat) at whose request."""

    by: str
    at: datetime
    reason: str | None = None
    requester_id: str | None = None
    message_id: str | None = None
    conversation_id: str | None = None
    intent_id: str | None = None
    purpose: str | None = None
    """`chat` for a change by the author's chat session, which its task session does not know of."""

    @classmethod
    def of(cls, facts: Mapping[str, Any], intent_id: str) -> Change:
        """Parses the `facts` of a change in an intent, and adds the intent's id, by which it is recognised later."""
        return cls(**{**facts, "at": parse_time(facts["at"]) or EPOCH, "intent_id": intent_id})

    @property
    def facts(self) -> dict[str, Any]:
        return {**vars(self), "at": format_time(self.at)}

    def entry(self, **changed: Any) -> dict[str, Any]:
        """The change as a line of the task's history; unset fields are left out."""
        facts = {
            "at": format_time(self.at),
            "by": self.by,
            "purpose": self.purpose,
            "reason": self.reason,
            "requester_id": self.requester_id,
            "message_id": self.message_id,
            "conversation_id": self.conversation_id,
            "intent_id": self.intent_id,
        }
        return {**{key: value for key, value in facts.items() if value is not None}, **changed}
