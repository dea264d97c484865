"""The next action of a task session, and the end of its work (docs/protocol.md, Next action, Completion)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from multi_agent_mcp.domain.agent import ANY_TASK, Agent
from multi_agent_mcp.domain.history import Change
from multi_agent_mcp.domain.message import Message, is_report
from multi_agent_mcp.domain.notification import words_with
from multi_agent_mcp.domain.question import parked_by
from multi_agent_mcp.domain.task import INTERRUPT_ACTIONS, UNASSIGNED, WITH_ASSIGNEE, Task
from multi_agent_mcp.domain.task_reports import completed
from multi_agent_mcp.domain.times import format_time
from multi_agent_mcp.errors import HubUnreachable, InvalidStatusTransition, TaskNotFound
from multi_agent_mcp.services.answer_budget import clipped, first_fitting
from multi_agent_mcp.services.chat.conversations import is_conversational
from multi_agent_mcp.services.tasks.board import summary_of
from multi_agent_mcp.services.tasks.changes import TaskChange, TaskChanges, require_startable
from multi_agent_mcp.services.validation import require_text
from multi_agent_mcp.session import Service

if TYPE_CHECKING:
    from multi_agent_mcp.domain.agent import Execution
    from multi_agent_mcp.domain.question import Question
    from multi_agent_mcp.services.operations import Apply, Operation, Operations, Run
    from multi_agent_mcp.services.overview.snapshot import Dashboard
    from multi_agent_mcp.services.questions import Asking
    from multi_agent_mcp.services.sessions.agent_sessions import LiveSession
    from multi_agent_mcp.services.sessions.session_records import Executions, HandOffs, Kept
    from multi_agent_mcp.services.tasks.deliveries import Deliveries
    from multi_agent_mcp.services.tasks.reports import TaskReports
    from multi_agent_mcp.services.tasks.shown_states import ShownStates
    from multi_agent_mcp.services.team.agents import Signatures
    from multi_agent_mcp.services.turn.answering import AnswerAction

DESCRIPTION_CHARACTERS = 1_500
CHECKLIST_CHARACTERS = 1_200
DEPENDENCIES_SHOWN = 50
REVIEWS_SHOWN = 10
REVIEWS_CHARACTERS = 5_000


@dataclass(frozen=True, kw_only=True)
class ReportCompleted(TaskChange):
    """The end of the work on a task, with its execution and the superior's mail."""

    KIND = "report_completed"

    result: str
    summary: str | None
    next_steps: str | None
    execution_id: str | None


@dataclass(frozen=True, kw_only=True)
class ReportEnd(TaskChange):
    """The end of the work on a task, as its superior will read it: until then the task keeps its status."""

    KIND = "report_end"

    status: str
    message: str
    summary: str | None


class Reported(NamedTuple):
    """The task that a report is about; None if an agent without a task obeys an interrupt that names none. With
    `only_obeys` the report changes nothing of the task: the agent just stops."""

    task: Task | None
    only_obeys: bool = False


@dataclass(eq=False)
class NextAction(Service):
    """Chooses a task session's next action, and begins and ends its work."""

    task_changes: TaskChanges
    task_reports: TaskReports
    answering: AnswerAction
    deliveries: Deliveries
    shown_states: ShownStates
    executions: Executions
    dashboard: Dashboard
    operations: Operations
    hand_offs: HandOffs
    signatures: Signatures

    def next_action(self, agent: Agent, session: LiveSession) -> dict[str, Any]:
        """What a feature puts before work (`answer_question`), else the most urgent of `work`, `review` and
        `read_messages`, else what a feature has for an agent with nothing to do (`claim`), else `exit` for a session
        whose task is over, else `wait`, as always for an agent that is paused. Returning `work` starts the task. A task
        that only waits for those of others comes last. `authority` is that of who gave the task, wrote the first
        message or asks; `system` where only we say so."""
        if (pause := self.task_changes.derived.pause_of(agent.id)) is not None:
            return self._action("wait", words=self.texts("next.paused", by=pause.sender_id or "system"))
        if (first := self.contributions.next_action(agent, "task", before_work=True)) is not None:
            return first
        unread, task = self._unread(agent, session), self.task_changes.in_hand(agent.id, session.record.task_id)
        if task is None:
            task = self._start_next(agent)
        elif task.is_examined:
            return self._aside(agent, unread) or self._action(
                "wait", words=self.texts("next.examined"), task_id=task.id
            )
        elif self._is_others_turn(agent, unread):
            return self._aside(agent, unread) or self._work(session, task)
        if task is not None:
            return self._work(session, task)
        last = self._aside(agent, unread) or self.contributions.next_action(agent, "task", before_work=False)
        return last or self._waiting(agent, session)

    def has_more(self, agent: Agent, session: LiveSession) -> bool:
        """Whether `next_action` would hand out anything that is this agent's turn. Changes nothing."""
        if self.task_changes.derived.pause_of(agent.id) is not None:
            return False
        unread = self._unread(agent, session)
        if self.contributions.has_action(agent, "task", before_work=True):
            return True
        if unread or self.task_changes.startable(agent.id) or self._requests(agent) or self._reviews(agent):
            return True
        task = self.task_changes.in_hand(agent.id, session.record.task_id)
        if task is None:
            return self.contributions.has_action(agent, "task", before_work=False)
        return not task.is_examined and not self._is_others_turn(agent, unread)

    def begin(self, session: LiveSession, task: Task, *, handed_out: bool = False) -> None:
        """Binds the session to a task that is in progress, opens the execution, and ends the notifications that
        announced the task, with their reasons if these are `handed_out` with it."""
        session.bind_task(task.id)
        self.executions.begin(session.record, task.id)
        self.task_changes.derived.end(session.record.agent_id, taken_up=task, handed_out=handed_out)

    def status_changed(self, session: LiveSession, task: Task, reason: str | None) -> None:
        """Called when an agent has changed the status of its own task: this begins or ends its work; a block also
        updates the dashboard, where superiors look."""
        if task.status == "in_progress":
            self.begin(session, task)
        if task.status == "blocked":
            self._stopped(session, task, reason)

    def ask(self, agent: Agent, session: LiveSession, asking: Asking) -> tuple[Question, str]:
        """Asks a question about the task in hand of a task session; one that parks it ends the work on it. Returns the
        question and the instruction for going on. Raises as `Questions.ask`."""
        task = self.task_changes.in_hand(agent.id, session.record.task_id) if session.record.purpose == "task" else None
        question = self.answering.questions.ask(agent, asking, task)
        self.answering.asked(question)
        if task is not None and question.park:
            self._stopped(session, task, self.texts("execution.parked", question_id=question.id))
        return question, self.texts("asked.parked" if question.park else "asked", question_id=question.id)

    def _stopped(self, session: LiveSession, task: Task, reason: str | None) -> None:
        """Ends the work on a task that is blocked now, and updates the dashboard, where superiors look."""
        self._end_execution(session, task.id, reason or task.status)
        self.dashboard.update()

    def report_completed(
        self,
        agent: Agent,
        session: LiveSession,
        result: str,
        summary: str | None,
        next_steps: str | None,
        task: Task | None = None,
    ) -> Task:
        """Ends the work on a task of the agent, by default the one in hand: sets the task's result, closes the
        execution of it, notifies the superior once (even if `report_task_completion` was used, too)."""
        self.task_reports.require_sendable(summary)  # before anything is changed
        require_text("next_steps", next_steps)
        task = task or self._task_of(agent, session)
        if task.status in ("backlog", "todo") and result == "success":
            require_startable(self.workspace, task)
        if task.assignee_id == agent.id:
            task.require_same_end("completed" if result == "success" else "failed")
            self.task_reports.delivered(task, summary, failed=result != "success")
        change = Change(by=agent.id, at=self.clock(), reason=summary if result != "success" else None)
        execution = self._execution_of(session, task.id)
        operation = ReportCompleted(
            task_id=task.id,
            change=change,
            result=result,
            summary=summary,
            next_steps=next_steps,
            execution_id=execution.id if execution is not None else None,
        )
        done: Task = self.operations.run(operation)
        session.has_stopped(done.id)
        if done.status == "blocked":
            self.dashboard.update()
        return done

    def obey(self, session: LiveSession, task: Task | None) -> None:
        """Notes that the agent has stopped work on a task that is not its own any more, over, or taken up again since
        it was interrupted; None for an interrupt of an agent that had no task."""
        if task is not None:
            self._end_execution(session, task.id, task.status)
        session.has_stopped(task.id if task is not None else ANY_TASK)

    def _end_execution(self, session: LiveSession, task_id: str, error_message: str) -> None:
        if (execution := self._execution_of(session, task_id)) is not None:
            self.executions.finish(execution, error_message=error_message)

    def _execution_of(self, session: LiveSession, task_id: str) -> Execution | None:
        running = self.executions.running(session.record)
        return running if running is not None and running.task_id == task_id else None

    def applied(self) -> Mapping[type[Operation], Apply]:
        return {ReportCompleted: self.apply_completion, ReportEnd: self.apply_end}

    def report_end(
        self, agent: Agent, task_id: str, status: str, message: str, summary: str | None
    ) -> tuple[Task, str | None]:
        """Reports to the agent's superior that a task of its is `completed` or `failed`, and ends the work on it: the
        task is not handed out again, and moves when the report is read. Returns the task and the message's id. While
        the hub is away the report is sent, and the rest follows when it is read."""
        task = self.task_reports.require_reportable(agent, task_id, message, summary)
        task.require_same_end(status)
        change = Change(by=agent.id, at=self.clock())
        operation = ReportEnd(task_id=task.id, change=change, status=status, message=message, summary=summary)
        try:
            ended: tuple[Task, str | None] = self.operations.run(operation)
        except HubUnreachable:
            task, sent = self.task_reports.report_completion(agent, task.id, status, message, summary)
            return task, sent.message_id
        return ended

    # The mail comes last: once a superior can read it, nobody begins the task again. Killed before it is sent, the next
    # reader of the session finishes the intent; a report that was sent has a key, and is not sent a second time.
    def apply_end(self, operation: ReportEnd, run: Run) -> tuple[Task, str | None]:
        """Notes that the end is reported, closes the executions, and sends the report."""
        change = operation.change.within(run.intent_id)

        def end(task: Task) -> Task:
            if task.has_taken(run.intent_id):
                return task
            task.require_assignee(change.by)
            task.require_open()
            return task.end_reported(change, operation.status)

        task = self.workspace.tasks.update(operation.task_id, end)
        failed = operation.status != "completed"
        self.executions.finish_task(task, change.by, error_message=operation.message if failed else None)
        self.task_changes.derived.end(change.by, about={task.id})
        if task.final:  # the report was read, and another process finishes what its sender left
            return task, None
        reporter, said = self.task_changes.agents.get(change.by), (operation.status, operation.message)
        before = task.history_at(run.intent_id)
        task, sent = self.task_reports.report_completion(reporter, task.id, *said, operation.summary, before=before)
        return task, sent.message_id

    def apply_completion(self, operation: ReportCompleted, run: Run) -> Task:
        """Completes the task and its execution, and sends the superior's mail."""
        change, result, summary = operation.change.within(run.intent_id), operation.result, operation.summary

        def complete(task: Task) -> Task:
            if task.has_taken(run.intent_id):
                return task
            task.require_assignee(change.by)
            return completed(task, change, result, summary, operation.next_steps)

        done = self.workspace.tasks.update(operation.task_id, complete)
        self.task_changes.derived.follow_up(done)
        if operation.execution_id is not None:
            execution = self.workspace.executions.get(operation.execution_id)
            self.executions.finish(execution, error_message=None if result == "success" else (summary or result))
        self.task_reports.announce_completion(self.task_changes.agents.get(change.by), done, result, summary)
        return done

    def _work(self, session: LiveSession, task: Task) -> dict[str, Any]:
        self.begin(session, task, handed_out=True)
        standing = self.signatures.standing(task.given_by, session.record.agent_id)
        work = self._action("work", standing, task=full(task), task_file=self._file(task)) | words_with(task)
        kept = self.hand_offs.about(task.id, without=session.record.agent_id)
        return work if kept is None else self._with_hand_off(work, kept)

    def _with_hand_off(self, work: dict[str, Any], kept: Kept) -> dict[str, Any]:
        """The action with the place of the last hand-off of another agent, who had the task before."""
        item, path = kept
        words = self.texts("handoff.work", agent_id=item.agent_id)
        shown = {"handoff_id": item.id, "agent_id": item.agent_id, "created_at": format_time(item.created_at)}
        return work | {
            "instruction": f"{work['instruction']} {words}",
            "hand_off": shown | {"path": str(path.absolute())},
        }

    def _aside(self, agent: Agent, unread: Sequence[Message]) -> dict[str, Any] | None:
        """The action beside work, or None: tasks to review first, then requests to decide; or mail."""
        if waiting := [*self._reviews(agent), *self._requests(agent)]:
            shown = first_fitting(map(_to_decide, waiting[:REVIEWS_SHOWN]), REVIEWS_CHARACTERS)
            self.shown_states.note(agent.id, waiting[: len(shown)])
            return self._action("review", tasks=shown)
        if not unread:
            return None
        return self._action("read_messages", self.signatures.of_first(agent.id, unread), unread_count=len(unread))

    def _waiting(self, agent: Agent, session: LiveSession) -> dict[str, Any]:
        """`exit`, or `wait` for a session that began no task or whose agent has parked one."""
        if any(parked_by(task) is not None for task in self.workspace.tasks.open(agent.id)):
            return self._action("wait", words=self.texts("next.wait.parked"))
        return self._action("wait" if session.record.task_id is None else "exit")

    def _reviews(self, agent: Agent) -> list[Task]:
        return self.deliveries.waiting_for(agent.id) if agent.role != "worker" else []

    def _requests(self, agent: Agent) -> list[Task]:
        return self.task_changes.requests_for(agent.id) if agent.role != "worker" else []

    def _is_others_turn(self, agent: Agent, unread: Sequence[Message]) -> bool:
        """Whether the agent's own task waits for tasks that it has given to others: they are open, or their reports are
        not read yet."""
        if any(map(is_report, unread)):
            return True
        given = (task for task in self.workspace.tasks.open() if task.given_away_by(agent.id))
        return any(task.status in WITH_ASSIGNEE for task in given)

    def _unread(self, agent: Agent, session: LiveSession) -> list[Message]:
        """The unread messages for this session. While a chat session of the agent lives, messages in
        conversations are for that session, as are their doorbells."""
        unread = [message for _, message in self.workspace.mailbox(agent.id).unread()]
        if session.has_sibling("chat"):
            unread = [message for message in unread if not is_conversational(message)]
        return unread

    def _start_next(self, agent: Agent) -> Task | None:
        """Starts the first startable task and returns it; None without one."""
        for task in self.task_changes.startable(agent.id):
            try:
                return self.task_changes.start(agent, task.id)[0]
            except InvalidStatusTransition:
                continue  # another session of this agent was faster, or it was blocked meanwhile
        return None

    def reported_task(self, agent: Agent, session: LiveSession, result: str, task_id: str | None = None) -> Reported:
        """The task that a completion report is about: the one with this id, else the session's, but for a `blocked`
        after an interrupt about another one, which is that one. A `blocked` after an interrupt that names none is about
        the task that the agent works on, if it does. Raises `InvalidId`, `TaskNotFound`, `Unauthorized`."""
        stopped = (session.record.stopped or ()) if result == "blocked" else ()
        if task_id is not None:
            task = self.task_changes.get(task_id)
            if task.id in stopped:
                return self._as_stopped(agent, task, is_meant=True)
            task.require_assignee(agent.id)
            return Reported(task)
        if session.record.task_id in stopped:
            return self._as_stopped(agent, self.task_changes.get(str(session.record.task_id)), is_meant=True)
        if others := [item for item in stopped if item != ANY_TASK]:
            return self._as_stopped(agent, self.task_changes.get(others[-1]), is_meant=False)
        if stopped:
            task_in_hand = self.task_changes.in_hand(agent.id, session.record.task_id)
            return Reported(task_in_hand, only_obeys=task_in_hand is None)
        return Reported(self._task_of(agent, session))

    def _as_stopped(self, agent: Agent, task: Task, *, is_meant: bool) -> Reported:
        """A report about a task whose interrupt the agent has read: it concerns one of its own that is stopped still,
        or, if it is the one that the agent must mean, that it works on again. Nothing else of it is changed."""
        is_stopped = task.status in INTERRUPT_ACTIONS and parked_by(task) is None
        concerned = task.assignee_id == agent.id and (is_stopped or (is_meant and task.is_worked_on))
        return Reported(task, only_obeys=not concerned)

    def still_to_stop(self, agent: Agent, session: LiveSession) -> str | None:
        """The id of a task whose interrupt the agent has read, and whose end it has still to report; None without."""
        found = (self.workspace.tasks.find(item) for item in session.record.stopped or () if item != ANY_TASK)
        reports = (self._as_stopped(agent, task, is_meant=False) for task in found if task is not None)
        return next((said.task.id for said in reports if said.task is not None and not said.only_obeys), None)

    def _task_of(self, agent: Agent, session: LiveSession) -> Task:
        """The task in hand: the session's; for a session that was given none, the task in progress, else the one last
        interrupted. Raises `TaskNotFound`."""
        if session.record.task_id is not None:
            return self.task_changes.get(session.record.task_id)
        current = self.task_changes.current(agent.id)
        if current is not None:
            return current
        stopped = [task for task in self.workspace.tasks.open(agent.id) if task.interrupt_id is not None]
        if not stopped:
            raise TaskNotFound("no_task_in_session")
        return max(stopped, key=lambda task: task.status_changed_at or task.updated_at)

    def _file(self, task: Task) -> str:
        return str(self.workspace.tasks.directory(task.assignee_id or UNASSIGNED).path / f"{task.id}.md")

    def _action(
        self, action: str, authority: str = "system", *, words: str | None = None, **needed: Any
    ) -> dict[str, Any]:
        words = words or self.texts(f"next.{action}")
        return {"action": action, "authority": authority, "instruction": words, **needed}


def _to_decide(task: Task) -> dict[str, Any]:
    """A task in the list of those that wait for a decision: one in review with what its assignee says of it."""
    shown = summary_of(task)
    if task.status != "review":
        return shown
    said = {key: value and str(value) for key, value in (task.delivery or {}).items()}
    words = {key: clipped(said.get(key)) for key in ("summary", "next_steps")}
    gate = {key: (task.delivery or {})[key] for key in ("protected", "checks_changed") if key in (task.delivery or {})}
    return {
        **shown,
        "assignee_id": task.assignee_id,
        **words,
        "head": said.get("head"),
        "receipts": task.receipts,
    } | gate


def full(task: Task) -> dict[str, Any]:
    """A task's fields for its worker, cut to fit into an answer; the task's file has them whole."""
    answer = summary_of(task) | {
        "description": clipped(task.description, DESCRIPTION_CHARACTERS),
        "created_by": task.created_by,
        "assignee_id": task.assignee_id,
        "parent_task_id": task.parent_task_id,
        "dependencies": list(task.dependencies[:DEPENDENCIES_SHOWN]),
        "progress": task.progress,
        "checklist": first_fitting([dict(item) for item in task.checklist], CHECKLIST_CHARACTERS),
        "blocked_reason": clipped(task.blocked_reason),
        "completion_result": task.completion_result,
        "completion_summary": clipped(task.completion_summary),
        "next_steps": clipped(task.next_steps),
        **({"done_when": list(task.done_when)} if task.done_when else {}),
    }
    cut = len(answer["checklist"]) < len(task.checklist)
    return answer | ({"checklist_length": len(task.checklist)} if cut else {})
