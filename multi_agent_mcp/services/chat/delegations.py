"""Delegations: a task session hands a conversation to the same agent's chat session (docs/protocol.md, Delegation)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from multi_agent_mcp.domain.agent import WHOEVER
from multi_agent_mcp.domain.entity import age, entity_id, new_id
from multi_agent_mcp.domain.message import Conversation, Delegation
from multi_agent_mcp.domain.times import format_time
from multi_agent_mcp.errors import AlreadyExists, ConversationNotFound, InvalidArguments, Unauthorized
from multi_agent_mcp.services.chat.conversations import ENDED, PURPOSE_CHARACTERS, Conversations, require_purpose
from multi_agent_mcp.services.validation import require_text
from multi_agent_mcp.session import Service
from multi_agent_mcp.texts import shortened

if TYPE_CHECKING:
    from multi_agent_mcp.domain.agent import Agent, AgentSession
    from multi_agent_mcp.services.mail import Sent
    from multi_agent_mcp.services.notifications.derived import DerivedNotices
    from multi_agent_mcp.services.sessions.agent_sessions import Sessions
    from multi_agent_mcp.services.team.agents import Agents


CONTEXT_CHARACTERS = 4_000
SHOWN_CHARACTERS = PURPOSE_CHARACTERS + CONTEXT_CHARACTERS


@dataclass(eq=False)
class Delegations(Service):
    """The delegations of one team."""

    agents: Agents
    sessions: Sessions
    conversations: Conversations
    derived: DerivedNotices

    def delegate(
        self, agent: Agent, session: AgentSession, target_agent_id: str, purpose: str, context: str | None
    ) -> tuple[Delegation, str]:
        """Creates a delegation for the session's task. Returns it and the instruction for awaiting it, which differs
        for AI and human targets.

        Raises `AgentNotFound`, `AgentNotAssignedToProject`, `InvalidArguments`.
        """
        target = self._target(agent, target_agent_id)
        require_purpose(purpose)
        require_text("context", context)
        if not purpose.strip():
            raise InvalidArguments("empty", name="purpose")
        if len(context or "") > CONTEXT_CHARACTERS:
            raise InvalidArguments("too_long", name="context", limit=CONTEXT_CHARACTERS)
        now = self.clock()
        delegation = Delegation(
            id=new_id("dlg"),
            agent_id=agent.id,
            target_agent_id=target_agent_id if target is None else target.id,
            purpose=purpose,
            task_id=session.task_id,
            created_at=now,
            updated_at=now,
            context=context or "",
        )
        if target is None:
            self.contributions.ask("offer_item", agent, target_agent_id, delegation.id)
        self.workspace.delegations.add(delegation)
        if target is None:
            self.contributions.tell("waiting")
            delegation = self.workspace.delegations.get(delegation.id)
            target = self.agents.all().get(delegation.target_agent_id)
        self.derived.tell_delegation(delegation)
        kind = "human" if target is not None and target.type == "human" else "ai"
        name = target_agent_id if target is None else target.name or target.id
        return delegation, self.texts(f"delegate.{kind}", name=name)

    def _target(self, agent: Agent, target_agent_id: str) -> Agent | None:
        """Whom the conversation is to be with; None for whoever is free."""
        if target_agent_id.startswith(WHOEVER) and self.contributions.ask("meant", agent, target_agent_id) is not None:
            return None
        target = self.agents.participant(target_agent_id)
        if target.id == agent.id:
            raise InvalidArguments("to_oneself")
        return target

    def offered(self, agent_id: str) -> list[Delegation]:
        """The delegations that wait for a chat session of this agent, oldest first: not taken, or taken by a session
        that is no longer live."""
        living = {session.id for session in self.sessions.live(agent_id)}
        return [item for item in self._unheard(agent_id) if item.taken_by is None or item.taken_by not in living]

    def unstarted(self, agent_id: str) -> list[Delegation]:
        """The agent's delegations without a conversation, oldest first."""
        return self._unstarted(self.workspace.delegations.all(agent_id))

    def talks_about(self, task_id: str) -> list[Delegation | Conversation]:
        """The delegations about a task, of whichever agents, without a conversation, oldest first; then the task's
        conversations, newest first."""
        about = [item for item in self.workspace.delegations.all() if item.task_id == task_id]
        return [*self._unstarted(about), *reversed(self.conversations.of_task(task_id))]

    def talks_without_task(self, session: AgentSession) -> list[Delegation | Conversation]:
        """As `talks_about`, for the agent's delegations without a task; beside those of the session's own task, only
        what is not over, or has begun since the session."""
        mine = [item for item in self.workspace.delegations.all(session.agent_id) if item.task_id is None]
        begun = [
            item
            for item in self.conversations.without_task(session.agent_id)
            if session.task_id is None or item.status != ENDED or item.started_at >= session.created_at
        ]
        return [*self._unstarted(mine), *reversed(begun)]

    def _unstarted(self, delegations: Iterable[Delegation]) -> list[Delegation]:
        return sorted((item for item in delegations if self._conversation(item) is None), key=age)

    def of(self, conversation: Conversation) -> Delegation | None:
        """The delegation that a conversation carries out, or None."""
        return self.workspace.delegations.find(conversation.delegation_id) if conversation.delegation_id else None

    def take(self, session: AgentSession) -> list[Delegation]:
        """Takes all delegations that this chat session can take, and returns them with those it took before. If two
        sessions take the same one at once, one gets it."""
        taken = []
        for item in self._unheard(session.agent_id):
            current = self.workspace.delegations.update(item.id, lambda found: self._taken(found, session))
            if current.taken_by == session.id:
                taken.append(current)
        if taken:
            self.derived.end(session.agent_id)
        return taken

    def start_conversation(
        self,
        agent: Agent,
        session: AgentSession,
        target_agent_id: str,
        first_words: str,
        purpose: str | None = None,
        delegation_id: str | None = None,
    ) -> tuple[Conversation, Sent]:
        """Starts a conversation; if a delegation to that target is pending, with its task and purpose.

        Raises `DelegationNotFound`, `Unauthorized`, `AlreadyExists` (the delegation has a conversation, or another
        live session is carrying it out), and as `Conversations.begin`.
        """
        target = self.agents.participant(target_agent_id)
        delegation = self._requested(agent, session, target, delegation_id)
        if delegation is None:
            return self.conversations.begin(agent, target, first_words, purpose=purpose)
        with self.workspace.locks.held(f"starting-{agent.id}"):  # a host may call twice at once
            started = self.workspace.delegations.update(
                delegation.id, lambda found: self._started(found, session, new_id("cnv"))
            )
            self.derived.end(agent.id)
            return self.conversations.begin(
                agent,
                target,
                first_words,
                purpose=purpose or started.purpose,
                task_id=started.task_id,
                delegation_id=started.id,
                conversation_id=started.conversation_id,
            )

    def _oldest_first(self, agent_id: str) -> list[Delegation]:
        return sorted(self.workspace.delegations.all(agent_id), key=age)

    def _unheard(self, agent_id: str) -> list[Delegation]:
        """The delegations whose target has received no message yet: those without a conversation, or whose conversation
        was left without its first message when its starter was killed; not those that wait for whoever is free."""
        known = (item for item in self._oldest_first(agent_id) if not item.target_agent_id.startswith(WHOEVER))
        return [item for item in known if not self._is_heard(item)]

    def _is_heard(self, delegation: Delegation) -> bool:
        conversation = self._conversation(delegation)
        return conversation is not None and self.conversations.is_heard(conversation)

    def _requested(
        self, agent: Agent, session: AgentSession, target: Agent, delegation_id: str | None
    ) -> Delegation | None:
        if delegation_id is None:
            mine = [item for item in self.take(session) if item.target_agent_id == target.id]
            return mine[0] if mine else None
        delegation = self.workspace.delegations.get(entity_id("dlg", delegation_id))
        if delegation.agent_id != agent.id:
            raise Unauthorized("not_own_delegation", delegation_id=delegation.id)
        if delegation.target_agent_id != target.id:
            raise InvalidArguments("delegation_to", delegation_id=delegation.id, agent_id=delegation.target_agent_id)
        return delegation

    def _taken(self, found: Delegation, session: AgentSession) -> Delegation:
        if found.taken_by not in (None, session.id) and self._is_living(found):
            return found
        return found if self._is_heard(found) else found.take(session.id, self.clock())

    def _started(self, found: Delegation, session: AgentSession, fresh_id: str) -> Delegation:
        if self._is_heard(found):
            raise AlreadyExists("delegation_started", conversation_id=found.conversation_id)
        if found.taken_by not in (None, session.id) and self._is_living(found):
            raise AlreadyExists("delegation_taken", delegation_id=found.id)
        return found.start(session.id, found.reserved_id or fresh_id, self.clock())

    def _conversation(self, delegation: Delegation) -> Conversation | None:
        """The delegation's conversation; None, too, if its starter was killed after reserving only the id."""
        reserved = delegation.reserved_id
        return self.workspace.conversations.find(reserved) if reserved is not None else None

    def _is_living(self, delegation: Delegation) -> bool:
        return any(session.id == delegation.taken_by for session in self.sessions.live(delegation.agent_id))


def as_answer(delegation: Delegation, characters: int = SHOWN_CHARACTERS) -> dict[str, Any]:
    """The delegation for its chat session, with its texts cut to about this many characters of JSON."""
    for_purpose = characters * PURPOSE_CHARACTERS // SHOWN_CHARACTERS
    return {
        "delegation_id": delegation.id,
        "target_agent_id": delegation.target_agent_id,
        "purpose": shortened(delegation.purpose, for_purpose),
        "context": shortened(delegation.context, characters - for_purpose),
        "task_id": delegation.task_id,
        "created_at": format_time(delegation.created_at),
    }


def place_of(talk_id: str, talks: Sequence[Delegation | Conversation]) -> int:
    """The place behind the one with this id. Raises `ConversationNotFound`."""
    for index, talk in enumerate(talks):
        if talk.id == talk_id:
            return index + 1
    raise ConversationNotFound(conversation_id=f"{talk_id:.60}")
