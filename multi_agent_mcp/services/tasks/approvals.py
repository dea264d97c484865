"""Tasks that agents request for themselves, and their superiors' decisions (docs/protocol.md, Requests)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from multi_agent_mcp.domain.agent import Agent, is_superior
from multi_agent_mcp.domain.change import Change
from multi_agent_mcp.domain.ids import entity_id
from multi_agent_mcp.domain.message import Message
from multi_agent_mcp.domain.task import Task
from multi_agent_mcp.errors import Unauthorized
from multi_agent_mcp.services.mail.outbox import Outbox, PreparedMessages
from multi_agent_mcp.services.mail.sending import Messages
from multi_agent_mcp.services.notices.derived import DerivedNotices
from multi_agent_mcp.services.operations import Apply, Kind, Operations
from multi_agent_mcp.services.tasks.creation import REQUEST_TASK, NewTask, make_task
from multi_agent_mcp.services.team.agents import Agents
from multi_agent_mcp.services.validation import Draft, require_text
from multi_agent_mcp.store.codec.frontmatter import as_text
from multi_agent_mcp.store.intents import Intent
from multi_agent_mcp.store.workspace import Workspace
from multi_agent_mcp.texts import Texts

DECIDE_REQUEST = Kind("decide_request")


@dataclass(eq=False)
class Approvals:
    """Requests and decisions; the other side is informed by mail."""

    workspace: Workspace
    agents: Agents
    messages: Messages
    outbox: Outbox
    derived: DerivedNotices
    operations: Operations
    texts: Texts
    clock: Callable[[], datetime]

    def request(self, requester: Agent, new: NewTask) -> tuple[Task, list[str]]:
        """`request_task`: a task for oneself that waits for approval; the nearest superior gets mail. An agent without
        superiors needs no approval. Returns the task and the superiors' ids, nearest first."""
        approvers = [superior.id for superior in self.agents.superiors(requester.id)]
        task = make_task(
            Change(by=requester.id, at=self.clock()),
            replace(new, assignee_id=requester.id),
            status="backlog",
            requester_id=requester.id,
            approval_status="pending" if approvers else "approved",
        )
        if not approvers:
            self.workspace.tasks.add(task)
            return task, approvers
        letters = self._letters(requester, approvers[0], "request", "subject.task_request", task, task.description)
        stored = self.operations.run(REQUEST_TASK, {"tasks": [as_text(task)], "letters": letters.facts})
        self.messages.announced(letters, stored)
        return task, approvers

    def decide(self, actor: Agent, task_id: str, *, approve: bool, reason: str | None = None) -> Task:
        """Approves or rejects a request, as a strict superior of the requester, who gets mail about it."""
        require_text("reason", reason)
        task = self.workspace.tasks.get(entity_id("tsk", task_id))
        requester = task.requester_id or task.created_by
        if not is_superior(actor.id, requester, self.agents.all()):
            raise Unauthorized("not_superior", agent_id=requester)
        change = Change(by=actor.id, at=self.clock(), reason=reason, requester_id=requester)
        decided = task.decided(change, approve=approve)
        kind = "task_approved" if approve else "status_update"
        subject = "subject.task_approved" if approve else "subject.task_rejected"
        letters = self._letters(actor, requester, kind, subject, decided, reason or decided.title)
        facts = {"task_id": task.id, "approve": approve, "change": change.facts, "letters": letters.facts}
        _, stored = self.operations.run(DECIDE_REQUEST, facts)
        self.messages.announced(letters, stored)
        return self.workspace.tasks.get(task.id)

    def kinds(self) -> Mapping[Kind, Apply]:
        return {DECIDE_REQUEST: self.apply_decision}

    def apply_decision(self, intent: Intent) -> tuple[Task, list[Message]]:
        """Applies an intent: the decision, and the mail to the requester."""
        change, approve = Change.of(intent.facts["change"], intent.id), intent.facts["approve"]
        decided = self.workspace.tasks.update(
            intent.facts["task_id"],
            lambda found: found if found.has_taken(intent.id) else found.decided(change, approve=approve),
        )
        self.derived.follow_up(decided)
        return decided, self.outbox.put(intent.facts["letters"], again=intent.again)

    def waiting_for(self, approver_id: str) -> list[Task]:
        """Requests that this agent may decide."""
        agents = self.agents.all()
        return [
            task
            for task in self.workspace.tasks.open()
            if task.approval_status == "pending" and not task.final
            if task.created_by in agents and is_superior(approver_id, task.created_by, agents)
        ]

    def _letters(
        self, sender: Agent, receiver_id: str, message_type: str, subject: str, task: Task, content: str
    ) -> PreparedMessages:
        draft = Draft(
            content=content,
            receiver_id=receiver_id,
            message_type=message_type,
            subject=self.texts(subject, title=task.title),
            metadata={"task_id": task.id, "approval_status": task.approval_status},
        )
        return self.messages.compose(sender, draft)
