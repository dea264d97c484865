"""The next action of a chat session (docs/protocol.md, Next action)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from multi_agent_mcp.domain.agent import Agent
from multi_agent_mcp.domain.conversation import Conversation
from multi_agent_mcp.domain.message import Message
from multi_agent_mcp.domain.session import AgentSession
from multi_agent_mcp.services.chat.conversations import ENDED, Conversations, is_conversational
from multi_agent_mcp.services.chat.delegations import Delegations, as_answer
from multi_agent_mcp.store.workspace import Workspace
from multi_agent_mcp.texts import Texts


@dataclass(eq=False)
class ChatAction:
    """Chooses a chat session's next action: delegations, requests, ends of conversations, messages."""

    workspace: Workspace
    delegations: Delegations
    conversations: Conversations
    texts: Texts

    def next_action(self, agent: Agent, session: AgentSession) -> dict[str, Any]:
        """The most urgent action; `exit` once the conversations of this session are over, else `wait`."""
        delegations = self.delegations.take(session)
        if delegations:
            return self._action("process_delegation", delegation=as_answer(delegations[0]))
        mine = self.conversations.of_agent(agent.id)
        unread = [message for _, message in self.workspace.mailbox(agent.id).unread()]
        in_conversation = [(message, of) for message in unread if (of := self.conversations.of_mail(agent.id, message))]
        return (
            self._request(agent, mine, {of.id for _, of in in_conversation})
            or self._mail("conversation_ended", [of for message, of in in_conversation if tells_end(message, of)])
            or self._mail("conversation_message", [of for message, of in in_conversation if is_conversational(message)])
            or (self._action("read_messages", unread_count=len(unread)) if unread else None)
            or self._action("exit" if self._is_over(mine, session) else "wait")
        )

    def _request(self, agent: Agent, mine: list[Conversation], waiting: set[str]) -> dict[str, Any] | None:
        """The action for a pending conversation that another agent has requested, or None."""
        for item in mine:
            if item.status == "pending" and item.target_agent_id == agent.id and item.id in waiting:
                facts = {"conversation_id": item.id, "initiator_id": item.initiator_id, "purpose": item.purpose}
                return self._action("conversation_request", **facts)
        return None

    def _mail(self, action: str, each: list[Conversation]) -> dict[str, Any] | None:
        """The action for unread messages, or None if there are none; `each` holds the conversation of each message."""
        ids = list(dict.fromkeys(conversation.id for conversation in each))
        return self._action(action, conversation_ids=ids, unread_count=len(each)) if ids else None

    def _is_over(self, mine: list[Conversation], session: AgentSession) -> bool:
        """Whether a conversation has ended during this session and none of the agent's is open. If the clock was set
        back since the session began, any ended conversation counts."""
        set_back = session.last_activity_at < session.created_at
        ended_here = any(
            item.ended_at is not None and (set_back or item.ended_at >= session.created_at) for item in mine
        )
        return ended_here and all(item.status == "ended" for item in mine)

    def _action(self, action: str, **needed: Any) -> dict[str, Any]:
        key = f"next.chat.{action}"
        return {"action": action, "instruction": self.texts(key if key in self.texts else f"next.{action}"), **needed}


def tells_end(message: Message, conversation: Conversation) -> bool:
    """Whether this message announces the end of its conversation and the conversation has in fact ended."""
    return bool(message.metadata.get(ENDED)) and conversation.status == "ended"
