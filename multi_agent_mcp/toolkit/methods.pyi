# Written by scripts/stub from the tools in server/tools/: edit them, and run it again.
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from multi_agent_mcp.server.calls import Tool

class ToolMethods:
    """An object that has a method for every tool that a bound agent may have."""

    @property
    def _tools(self) -> Mapping[str, Tool]: ...
    def _call(self, tool: Tool, arguments: Mapping[str, Any]) -> dict[str, Any]: ...
    def logout(self) -> dict[str, Any]:
        """End this session; only where an instruction says so."""

    def register_agent_to_ipc(
        self,
        agent_id: str,
        role: Literal["owner", "admin", "worker"] = "worker",
        type: Literal["ai", "human"] = "ai",
        parent_id: str | None = None,
        name: str | None = None,
    ) -> dict[str, Any]:
        """Let an agent get mail before it starts."""

    def list_agents(self, after: str | None = None) -> dict[str, Any]:
        """The agents you can write to, and whether they run."""

    def send_message(
        self,
        content: str,
        receiver_id: str | None = None,
        message_type: Literal[
            "task_assign",
            "task_complete",
            "task_approved",
            "task_failed",
            "task_progress",
            "status_update",
            "request",
            "response",
            "broadcast",
            "system",
            "error",
            "conversation",
        ]
        | None = None,
        subject: str | None = None,
        priority: Literal["low", "normal", "high", "urgent"] = "normal",
        metadata: Mapping[str, Any] | None = None,
        conversation_id: str | None = None,
        idempotency_key: str | None = None,
    ) -> dict[str, Any]:
        """Send a message to an agent, to everybody (no receiver_id), or into a conversation.
        An idempotency_key sends nothing twice."""

    def read_messages(
        self,
        agent_id: str | None = None,
        unread_only: bool = True,
        mark_as_read: bool = True,
        message_type: Literal[
            "task_assign",
            "task_complete",
            "task_approved",
            "task_failed",
            "task_progress",
            "status_update",
            "request",
            "response",
            "broadcast",
            "system",
            "error",
            "conversation",
        ]
        | None = None,
        limit: int = 50,
        before: str | None = None,
        message_id: str | None = None,
        offset: int = 0,
    ) -> dict[str, Any]:
        """Read your unread mail, urgent first, then oldest. Call it when an [IPC] line appears.
        unread_only=false: history, newest first; before=<message id> continues.
        message_id and offset (characters) continue a long message."""

    def get_unread_count(self, agent_id: str | None = None) -> dict[str, Any]:
        """Count your unread messages."""

    def get_message_status(self, message_id: str) -> dict[str, Any]:
        """What became of a message you sent or a notification you caused."""

    def unlock_owner_wait(self, reason: str | None = None) -> dict[str, Any]:
        """Emergency only: stop waiting for the Admin's answer."""

    def get_notifications(self, mark_as_read: bool = True) -> dict[str, Any]:
        """Read your notifications, newest first, and do what their instructions say."""

    def delegate_to_chat_session(
        self, target_agent_id: str, purpose: str, context: str | None = None
    ) -> dict[str, Any]:
        """Have your chat session talk to an agent while your task goes on."""

    def get_task_conversations(self, task_id: str | None = None, before: str | None = None) -> dict[str, Any]:
        """The conversations of a task (default: this session's), with their newest messages."""

    def get_conversation_messages(
        self, conversation_id: str, limit: int = 50, before: str | None = None
    ) -> dict[str, Any]:
        """The newest messages of a conversation of yours, oldest first."""

    def get_pending_delegations(self) -> dict[str, Any]:
        """Take over what your task session delegated; call start_conversation for each."""

    def start_conversation(
        self, target_agent_id: str, initial_message: str, purpose: str | None = None, delegation_id: str | None = None
    ) -> dict[str, Any]:
        """Start a conversation; it carries out a pending delegation to that agent."""

    def end_conversation(self, conversation_id: str, final_message: str | None = None) -> dict[str, Any]:
        """End a conversation; the other participant is notified."""

    def start_task_from_chat(self, task_id: str, requester_id: str) -> dict[str, Any]:
        """Start a task of yours, as a superior (requester_id) asked."""

    def update_task_from_chat(
        self,
        task_id: str,
        requester_id: str,
        title: str | None = None,
        description: str | None = None,
        status: Literal["backlog", "todo", "in_progress", "blocked", "review", "done", "cancelled"] | None = None,
        priority: Literal["low", "medium", "high", "urgent"] | None = None,
        blocked_reason: str | None = None,
    ) -> dict[str, Any]:
        """Change a task assigned to or created by you, as a superior (requester_id) asked."""

    def notify_task_session(
        self,
        conversation_id: str,
        message: str | None = None,
        related_task_id: str | None = None,
        priority: Literal["normal", "high"] = "normal",
    ) -> dict[str, Any]:
        """Ask your own task session to look at a conversation; priority high interrupts it."""

    def send_task(
        self,
        agent_id: str,
        title: str,
        content: str,
        priority: Literal["low", "normal", "medium", "high", "urgent"] = "medium",
        done_when: Sequence[str] | None = None,
    ) -> dict[str, Any]:
        """Give a task to an agent below you. An Owner then waits for an [IPC] line: do not poll.
        done_when: checks' names, review, review:AGENT; it is done only when these are met."""

    def report_task_progress(
        self,
        task_id: str,
        progress: int | None = None,
        message: str | None = None,
        checklist: Sequence[Mapping[str, Any]] | None = None,
    ) -> dict[str, Any]:
        """Tell your Admin the progress (0-100) of a task; send no message."""

    def report_task_completion(
        self, task_id: str, status: Literal["completed", "failed"], message: str, summary: str | None = None
    ) -> dict[str, Any]:
        """Tell your Admin that a task is completed or failed; send no message."""

    def get_dashboard(self, after: str | None = None) -> dict[str, Any]:
        """Counts, agents and tasks of this session."""

    def get_next_action(self, timeout_seconds: float = 0) -> dict[str, Any]:
        """What to do next, with its data: answer_question, work, review, read_messages, wait, exit …
        timeout_seconds (at most 600) waits until there is something."""

    def report_completed(
        self,
        result: Literal["success", "failed", "blocked"],
        summary: str | None = None,
        next_steps: str | None = None,
        task_id: str | None = None,
    ) -> dict[str, Any]:
        """End your work on the task in hand; blocked also after an interrupt."""

    def create_tasks_batch(
        self, tasks: Sequence[Mapping[str, Any]], parent_task_id: str | None = None
    ) -> dict[str, Any]:
        """Create tasks, all or none. dependencies: local_ids of this batch, or task ids.
        status: backlog holds an assigned one back; assignee_id: or @any."""

    def assign_task(self, task_id: str, assignee_id: str | None) -> dict[str, Any]:
        """Assign a task to an agent below you, or to nobody (null). In the backlog it waits for todo."""

    def update_task_status(
        self,
        task_id: str,
        status: Literal["backlog", "todo", "in_progress", "blocked", "review", "done", "cancelled"],
        blocked_reason: str | None = None,
    ) -> dict[str, Any]:
        """Move a task. blocked stops its assignee and blocks its open subtasks."""

    def request_task(
        self, title: str, description: str = "", priority: Literal["low", "medium", "high", "urgent"] = "medium"
    ) -> dict[str, Any]:
        """Propose a task for yourself; a superior approves it."""

    def approve_task_request(
        self, task_id: str, approve: bool, reason: str | None = None, state: str | None = None
    ) -> dict[str, Any]:
        """Approve or reject a task requested below you, or the result of one in review (state: its head)."""

    def ask(
        self,
        question: str,
        to_id: str | None = None,
        choices: Sequence[str] | None = None,
        default: str | None = None,
        deadline_minutes: float | None = None,
        park: bool = False,
    ) -> dict[str, Any]:
        """Ask your superior (or to_id) for a decision. park: your task waits, you get other work.
        default, one of the choices, is taken at the deadline."""

    def answer_question(
        self, question_id: str, answer: str | None = None, note: str | None = None, withdraw: bool = False
    ) -> dict[str, Any]:
        """Answer a question to you or an agent below you, or withdraw your own."""

    def reserve_files(
        self, paths: Sequence[str], reason: str | None = None, minutes: float | None = None
    ) -> dict[str, Any]:
        """Reserve files before you edit them (patterns as in .gitignore), until released or your task ends."""

    def release_files(self, reservation_id: str | None = None) -> dict[str, Any]:
        """Release a reservation, or all of yours."""

    def get_my_tasks(
        self,
        status: Literal["backlog", "todo", "in_progress", "blocked", "review", "done", "cancelled"] | None = None,
        limit: int = 20,
        before: str | None = None,
    ) -> dict[str, Any]:
        """Your tasks, open ones first."""

    def hand_off(self, content: str, task_id: str | None = None) -> dict[str, Any]:
        """Write down what whoever goes on with your task must know: done, open, decisions, files
        (4000 characters). It is shown after a restart or compaction. task_id: the task in hand."""

    def get_my_execution_history(
        self,
        task_id: str | None = None,
        status: Literal["running", "completed", "failed"] | None = None,
        limit: int = 10,
        before: str | None = None,
    ) -> dict[str, Any]:
        """Your executions (stretches of work), newest first."""

    def get_execution_log(
        self, execution_id: str, tail: int | None = None, offset: int | None = None
    ) -> dict[str, Any]:
        """The log of an execution of yours: the last lines (tail, 100), or those from line offset on."""

    def claim_task(self, task_id: str | None = None) -> dict[str, Any]:
        """Take an unassigned task of a superior's (null: the most urgent)."""

    def notify_when(self, target: str, state: str) -> dict[str, Any]:
        """Notify me once: an agent idle, available; a task done, blocked, merged; a watch_id never."""
