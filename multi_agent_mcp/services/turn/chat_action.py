"""The next action of a chat session (docs/protocol.md, Next action)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from multi_agent_mcp.services.answer_budget import clipped
from multi_agent_mcp.services.chat.conversations import PURPOSE_CHARACTERS, Conversations, is_conversational
from multi_agent_mcp.services.chat.delegations import Delegations, as_answer
from multi_agent_mcp.session import Service

if TYPE_CHECKING:
    from multi_agent_mcp.domain.agent import Agent, AgentSession
    from multi_agent_mcp.domain.message import Conversation, Message
    from multi_agent_mcp.services.sessions.agent_sessions import LiveSession
    from multi_agent_mcp.services.team.agents import Signatures


CONVERSATIONS_SHOWN = 50


@dataclass(eq=False)
class ChatAction(Service):
    """Chooses a chat session's next action: questions, delegations, requests, ends of conversations, messages."""

    delegations: Delegations
    conversations: Conversations
    signatures: Signatures

    def next_action(self, agent: Agent, session: AgentSession, *, leaves: bool = False) -> dict[str, Any]:
        """The most urgent action; `exit` once the conversations of this session are over, else `wait`. One that
        `leaves`, as its window was opened for it only, has nothing to wait for without an open conversation."""
        if (first := self.contributions.next_action(agent, "chat", before_work=True)) is not None:
            return first
        delegations = self.delegations.take(session)
        if delegations:
            standing = self.signatures.standing(delegations[0].agent_id, agent.id)
            return self._action("process_delegation", standing, delegation=as_answer(delegations[0]))
        mine = self.conversations.of_agent(agent.id)
        unread = [message for _, message in self.workspace.mailbox(agent.id).unread()]
        in_conversation = [(message, of) for message in unread if (of := self.conversations.of_mail(agent.id, message))]
        return (
            self._request(agent, mine, {of.id for _, of in in_conversation})
            or self._mail("conversation_ended", agent, [of for _, of in in_conversation if of.status == "ended"])
            or self._mail(
                "conversation_message", agent, [of for item, of in in_conversation if is_conversational(item)]
            )
            or self._other_mail(agent, unread)
            or self._unanswered(agent, mine, session)
            or self.contributions.next_action(agent, "chat", before_work=False)
            or self._action("exit" if self._is_over(mine, session, leaves=leaves) else "wait")
        )

    def has_more(self, agent: Agent, session: LiveSession) -> bool:
        """As `NextAction.has_more`."""
        if self.contributions.has_action(agent, "chat", before_work=True):
            return True
        mine = (item.taken_by == session.record.id for item in self.delegations.unstarted(agent.id))
        if any(mine) or self.delegations.offered(agent.id) or self.workspace.mailbox(agent.id).unread():
            return True
        return self.contributions.has_action(agent, "chat", before_work=False)

    def is_over(self, agent: Agent, session: LiveSession, *, leaves: bool) -> bool:
        """Whether the session's next action is `exit`."""
        mine = self.conversations.of_agent(agent.id)
        return self._is_over(mine, session.record, leaves=leaves) and not self.has_more(agent, session)

    def _request(self, agent: Agent, mine: list[Conversation], waiting: set[str]) -> dict[str, Any] | None:
        """The action for a pending conversation that another agent has requested, or None."""
        for item in mine:
            if item.status == "pending" and item.target_agent_id == agent.id and item.id in waiting:
                purpose = clipped(item.purpose, PURPOSE_CHARACTERS)
                facts = {"conversation_id": item.id, "initiator_id": item.initiator_id, "purpose": purpose}
                return self._action("conversation_request", self._of_other(item, agent), **facts)
        return None

    def _of_other(self, conversation: Conversation, agent: Agent) -> str:
        return self.signatures.standing(conversation.other(agent.id), agent.id)

    def _mail(self, action: str, agent: Agent, each: list[Conversation]) -> dict[str, Any] | None:
        """The action for unread messages, or None if there are none; `each` holds the conversation of each message.
        Conversations beyond `CONVERSATIONS_SHOWN` follow when these are read."""
        ids = list(dict.fromkeys(conversation.id for conversation in each))[:CONVERSATIONS_SHOWN]
        if not ids:
            return None
        return self._action(action, self._of_other(each[0], agent), conversation_ids=ids, unread_count=len(each))

    def _other_mail(self, agent: Agent, unread: list[Message]) -> dict[str, Any] | None:
        if not unread:
            return None
        return self._action("read_messages", self.signatures.of_first(agent.id, unread), unread_count=len(unread))

    def _unanswered(self, agent: Agent, mine: list[Conversation], session: AgentSession) -> dict[str, Any] | None:
        """The action for open conversations whose last words another session of the agent has read but not answered,
        which may not be able to end them; None if there are none."""
        left = [item for item in mine if item.status == "active" and self._was_read_before(item, agent.id, session)]
        if not left:
            return None
        ids = [item.id for item in left]
        action = self._action("conversation_message", self._of_other(left[0], agent), conversation_ids=ids)
        return action | {"unread_count": 0, "instruction": self.texts("next.conversation_unanswered")}

    def _was_read_before(self, conversation: Conversation, agent_id: str, session: AgentSession) -> bool:
        """Whether the conversation's last message is to this agent, and was read before the session began."""
        last = [
            self.workspace.mailbox(agent_id).find(message.id) for message in self._last_words(conversation, agent_id)
        ]
        times = [found[1].read_at for found in last if found is not None]
        return any(read_at is not None and read_at < session.created_at for read_at in times)

    def _last_words(self, conversation: Conversation, agent_id: str) -> list[Message]:
        newest, _ = self.conversations.newest(conversation.id, 1)
        return [message for message in newest if message.receiver_id == agent_id]

    def _is_over(self, mine: list[Conversation], session: AgentSession, *, leaves: bool) -> bool:
        """Whether a conversation has ended during this session (before it, too, for one that `leaves`: hosts take
        seconds to start) and none of the agent's is open. If the clock was set back since the session began, any ended
        conversation counts."""
        set_back = session.last_activity_at < session.created_at
        ended_here = leaves or any(
            item.ended_at is not None and (set_back or item.ended_at >= session.created_at) for item in mine
        )
        return ended_here and all(item.status == "ended" for item in mine)

    def _action(self, action: str, authority: str = "system", **needed: Any) -> dict[str, Any]:
        key = f"next.chat.{action}"
        words = self.texts(key if key in self.texts else f"next.{action}")
        return {"action": action, "authority": authority, "instruction": words, **needed}
