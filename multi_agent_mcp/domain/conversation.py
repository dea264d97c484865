"""Conversations, and their delegation from an agent's task session to its chat session
(docs/protocol.md, Delegation, Conversations)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import ClassVar

from multi_agent_mcp.domain.entity import EPOCH, Identified
from multi_agent_mcp.domain.ids import entity_id
from multi_agent_mcp.errors import ConversationNotActive, InvalidId, NotParticipant


@dataclass(frozen=True, kw_only=True)
class Conversation(Identified):
    """`pending` until the other side reads or answers, then `active`, then `ended`."""

    BEGAN: ClassVar[str] = "started_at"

    id: str
    initiator_id: str = ""
    target_agent_id: str = ""
    task_id: str | None = None
    delegation_id: str | None = None
    purpose: str | None = None
    status: str = "pending"
    started_at: datetime = EPOCH
    ended_at: datetime | None = None
    ended_by: str | None = None

    def has(self, agent_id: str) -> bool:
        return agent_id in (self.initiator_id, self.target_agent_id)

    def require_participant(self, agent_id: str) -> None:
        """Raises `NotParticipant`."""
        if not self.has(agent_id):
            raise NotParticipant(conversation_id=self.id)

    def require_open(self) -> None:
        """Raises `ConversationNotActive` when it has ended."""
        if self.status == "ended":
            raise ConversationNotActive(conversation_id=self.id)

    def other(self, agent_id: str) -> str:
        """The participant who is not `agent_id`."""
        self.require_participant(agent_id)
        return self.target_agent_id if agent_id == self.initiator_id else self.initiator_id

    def seen_by(self, agent_id: str) -> Conversation:
        """The other side has read or answered."""
        if self.status == "pending" and agent_id == self.target_agent_id:
            return replace(self, status="active")
        return self

    def end(self, by: str, at: datetime) -> Conversation:
        """Over. Raises `NotParticipant`, `ConversationNotActive`."""
        self.require_participant(by)
        self.require_open()
        return replace(self, status="ended", ended_at=at, ended_by=by)


@dataclass(frozen=True, kw_only=True)
class Delegation(Identified):
    """A task session's wish that its chat session talk to somebody. `taken_by` is the chat session that took it;
    should that die before it started the conversation, the delegation is offered again."""

    BODY: ClassVar[str | None] = "context"

    id: str
    agent_id: str = ""
    target_agent_id: str = ""
    purpose: str = ""
    task_id: str | None = None
    status: str = "pending"
    taken_by: str | None = None
    conversation_id: str | None = None
    created_at: datetime = EPOCH
    updated_at: datetime = EPOCH
    context: str = ""

    @property
    def reserved_id(self) -> str | None:
        """The id of its conversation, should it have one: what somebody wrote there by hand need not be an id."""
        try:
            return entity_id("cnv", self.conversation_id)
        except InvalidId:
            return None

    def take(self, session_id: str, at: datetime) -> Delegation:
        if self.taken_by == session_id:
            return self
        return replace(self, status="taken", taken_by=session_id, updated_at=at)

    def start(self, session_id: str, conversation_id: str, at: datetime) -> Delegation:
        """Its conversation is about to be made; the id is fixed here, before it exists."""
        return replace(self, status="started", taken_by=session_id, conversation_id=conversation_id, updated_at=at)
