"""Delegations: a task session hands a conversation to the same agent's chat session, which may change tasks
(docs/protocol.md, Delegation, Chat-session operations)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from multi_agent_mcp.domain.agent import Agent, AgentSession, is_superior
from multi_agent_mcp.domain.entity import age, entity_id, new_id
from multi_agent_mcp.domain.message import Conversation, Delegation
from multi_agent_mcp.domain.task import Change, Task
from multi_agent_mcp.domain.times import format_time
from multi_agent_mcp.errors import AlreadyExists, InvalidArguments, InvalidStatusTransition, Unauthorized
from multi_agent_mcp.services.chat.conversations import (
    PURPOSE_CHARACTERS,
    Conversations,
    is_conversational,
    require_purpose,
)
from multi_agent_mcp.services.validation import require_text
from multi_agent_mcp.texts import Texts, shortened

if TYPE_CHECKING:
    from multi_agent_mcp.services.mail import Sent
    from multi_agent_mcp.services.notifications.notifications import DerivedNotices
    from multi_agent_mcp.services.sessions.agent_sessions import Sessions
    from multi_agent_mcp.services.tasks.changes import TaskChanges
    from multi_agent_mcp.services.team.agents import Agents
    from multi_agent_mcp.store.workspace import Workspace

CONTEXT_CHARACTERS = 4_000
SHOWN_CHARACTERS = PURPOSE_CHARACTERS + CONTEXT_CHARACTERS


@dataclass(eq=False)
class Delegations:
    """The delegations of one team."""

    workspace: Workspace
    agents: Agents
    sessions: Sessions
    conversations: Conversations
    derived: DerivedNotices
    texts: Texts
    clock: Callable[[], datetime]

    def delegate(
        self, agent: Agent, session: AgentSession, target_agent_id: str, purpose: str, context: str | None
    ) -> tuple[Delegation, str]:
        """Creates a delegation for the session's task. Returns it and the instruction for awaiting it, which differs
        for AI and human targets.

        Raises `AgentNotFound`, `AgentNotAssignedToProject`, `InvalidArguments`.
        """
        target = self.agents.participant(target_agent_id)
        if target.id == agent.id:
            raise InvalidArguments("to_oneself")
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
            target_agent_id=target.id,
            purpose=purpose,
            task_id=session.task_id,
            created_at=now,
            updated_at=now,
            context=context or "",
        )
        self.workspace.delegations.add(delegation)
        self.derived.tell_delegation(delegation)
        kind = "human" if target.type == "human" else "ai"
        return delegation, self.texts(f"delegate.{kind}", name=target.name or target.id)

    def offered(self, agent_id: str) -> list[Delegation]:
        """The delegations that wait for a chat session of this agent, oldest first: not taken, or taken by a session
        that is no longer live."""
        living = {session.id for session in self.sessions.live(agent_id)}
        return [item for item in self._unheard(agent_id) if item.taken_by is None or item.taken_by not in living]

    def unstarted(self, agent_id: str) -> list[Delegation]:
        """The agent's delegations without a conversation, oldest first."""
        return [item for item in self._oldest_first(agent_id) if self._conversation(item) is None]

    def unstarted_about(self, task_id: str) -> list[Delegation]:
        """The delegations about a task, of whichever agents, without a conversation, oldest first."""
        about = [item for item in self.workspace.delegations.all() if item.task_id == task_id]
        return sorted((item for item in about if self._conversation(item) is None), key=age)

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
            self.derived.settle(session.agent_id)
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
            self.derived.settle(agent.id)
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
        was left without its first message when its starter was killed."""
        return [item for item in self._oldest_first(agent_id) if not self._is_heard(item)]

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


# Task operations from a chat session: only at a superior's request, checked in a fixed order.

Audit = Callable[..., None]


@dataclass(eq=False)
class ChatTaskOperations:
    """`start_task_from_chat` and `update_task_from_chat`. Their changes are recorded in the audit log, flagged if the
    requester has never written to the caller."""

    workspace: Workspace
    agents: Agents
    task_changes: TaskChanges
    conversations: Conversations
    audit: Audit
    clock: Callable[[], datetime]

    def start(self, caller: Agent, task_id: str, requester_id: str) -> tuple[Task, str]:
        """Moves a task of the caller to `in_progress`, unless its task session has begun it already. Returns the task
        and its previous status."""
        requester = self._require_superior(caller, requester_id)
        task = self.task_changes.get(task_id)
        if task.assignee_id != caller.id:
            key = "not_assignee_start" if task.assignee_id else "unassigned_start"
            raise Unauthorized(key, assignee_id=task.assignee_id)
        conversation_id = self._conversation_with(caller, requester)
        change = self._change(caller, requester, conversation_id)
        try:
            started, previous = self.task_changes.start(caller, task.id, change)
        except InvalidStatusTransition:
            started = self.task_changes.get(task.id)
            if started.status != "in_progress" or started.assignee_id != caller.id:
                raise
            previous = started.status
        self._record("start_task_from_chat", caller, task, requester, conversation_id)
        return started, previous

    def update(
        self, caller: Agent, task_id: str, requester_id: str, updates: Mapping[str, Any], blocked_reason: str | None
    ) -> tuple[Task, list[str]]:
        """Changes title, description, status or priority of a task that the caller is assigned to or has created.

        Returns the task and the names of the fields that have another value than before.
        """
        requester = self._require_superior(caller, requester_id)
        task = self.task_changes.get(task_id)
        if caller.id not in (task.assignee_id, task.created_by):
            raise Unauthorized("not_task_writer")
        if not updates and blocked_reason is None:
            raise InvalidArguments("nothing_to_update")
        if blocked_reason is not None and updates.get("status", task.status) != "blocked":
            raise InvalidArguments("only_with_blocked")
        conversation_id = self._conversation_with(caller, requester)
        change = self._change(caller, requester, conversation_id, blocked_reason)
        changed, fields = self.task_changes.edit(task.id, updates, change)
        self._record("update_task_from_chat", caller, task, requester, conversation_id, updated_fields=fields)
        return changed, fields

    def _require_superior(self, caller: Agent, requester_id: str) -> Agent:
        """The first three checks: the requester exists, belongs to this session, and is a strict superior."""
        requester = self.agents.participant(requester_id)
        if not is_superior(requester.id, caller.id, self.agents.all()):
            raise Unauthorized("not_requested_by_superior", requester_id=requester.id)
        return requester

    def _change(
        self, caller: Agent, requester: Agent, conversation_id: str | None, reason: str | None = None
    ) -> Change:
        return Change(
            by=caller.id,
            at=self.clock(),
            reason=reason,
            requester_id=requester.id,
            conversation_id=conversation_id,
            purpose="chat",
        )

    def _conversation_with(self, caller: Agent, requester: Agent) -> str | None:
        found = self.conversations.latest_with(caller.id, requester.id)
        return found.id if found else None

    def _record(
        self, tool: str, caller: Agent, task: Task, requester: Agent, conversation_id: str | None, **facts: object
    ) -> None:
        facts |= {"agent_id": caller.id, "task_id": task.id, "requester_id": requester.id}
        facts["conversation_id"] = conversation_id
        facts |= self._last_heard(caller)
        if not self._has_written(requester, caller):
            facts["mismatch"] = True
        self.audit(tool, **facts)

    def _last_heard(self, caller: Agent) -> dict[str, str | None]:
        """Who wrote the last message that the caller has read in any of its conversations, and in which one."""
        received = self.workspace.mailbox(caller.id).history()  # newest first
        for message in (item for item in received if item.read_at is not None and is_conversational(item)):
            if (conversation := self.conversations.of_mail(caller.id, message)) is not None:
                return {"last_sender_id": message.sender_id, "last_conversation_id": conversation.id}
        return {"last_sender_id": None, "last_conversation_id": None}

    def _has_written(self, requester: Agent, caller: Agent) -> bool:
        """Whether the caller has ever received a message signed by the requester."""
        received = self.workspace.mailbox(caller.id).history()
        verifies = self.conversations.outbox.signatures.verifies
        return any(message.sender_id == requester.id and verifies(message, caller.id) for message in received)
