"""Task operations from a chat session: only at a superior's request, checked in a fixed order
(docs/protocol.md, Chat-session operations)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from multi_agent_mcp.domain.agent import Agent, is_superior
from multi_agent_mcp.domain.history import Change
from multi_agent_mcp.errors import InvalidArguments, InvalidStatusTransition, Unauthorized
from multi_agent_mcp.services.chat.conversations import Conversations, is_conversational
from multi_agent_mcp.session import Service

if TYPE_CHECKING:
    from multi_agent_mcp.domain.task import Task
    from multi_agent_mcp.services.tasks.changes import TaskChanges
    from multi_agent_mcp.services.team.agents import Agents


@dataclass(eq=False)
class ChatTaskOperations(Service):
    """`start_task_from_chat` and `update_task_from_chat`. Their changes are recorded in the audit log, flagged if the
    requester has never written to the caller."""

    agents: Agents
    task_changes: TaskChanges
    conversations: Conversations

    def start(self, caller: Agent, task_id: str, requester_id: str) -> tuple[Task, str]:
        """Moves a task of the caller to `in_progress`, unless its task session has begun it already; one that is held
        in the backlog only if the requester has really written to the caller. Returns the task and its previous
        status."""
        requester = self._require_superior(caller, requester_id)
        task = self.task_changes.get(task_id)
        if task.assignee_id != caller.id:
            key = "not_assignee_start" if task.assignee_id else "unassigned_start"
            raise Unauthorized(key, assignee_id=task.assignee_id)
        conversation_id = self._conversation_with(caller, requester)
        change = self._change(caller, requester, conversation_id)
        is_held = task.status == "backlog"
        if is_held and not self._has_written(requester, caller):
            raise InvalidStatusTransition("held_in_backlog", task_title=task.quoted_title, requester_id=requester.id)
        try:
            started, previous = self.task_changes.start(caller, task.id, change, from_backlog=is_held)
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
        self.session.audit(tool, **facts)

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
