"""The loop of a session: its next action, the end of its work, and the briefing
(docs/protocol.md, Next action, Completion, Briefing)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from multi_agent_mcp.domain.agent import ANY_TASK, ROLES, Agent, AgentSession, superiors
from multi_agent_mcp.domain.entity import age, plain_value
from multi_agent_mcp.domain.message import Conversation, Delegation, Message, is_report
from multi_agent_mcp.domain.notification import words_with
from multi_agent_mcp.domain.question import parked_by
from multi_agent_mcp.domain.task import INTERRUPT_ACTIONS, UNASSIGNED, WITH_ASSIGNEE, Change, Task, completed
from multi_agent_mcp.domain.text import quoted, quoted_lines
from multi_agent_mcp.domain.times import format_time
from multi_agent_mcp.errors import HubUnreachable, InvalidStatusTransition, Refusal, TaskNotFound
from multi_agent_mcp.services.answer_budget import AnswerBudget, clipped, first_fitting
from multi_agent_mcp.services.chat import PURPOSE_CHARACTERS, Conversations, Delegations, as_answer, is_conversational
from multi_agent_mcp.services.tasks.board import summary_of
from multi_agent_mcp.services.tasks.changes import TaskChange, TaskChanges, TaskReports, require_startable
from multi_agent_mcp.services.validation import require_text
from multi_agent_mcp.session import Service
from multi_agent_mcp.texts import json_size, shortened

if TYPE_CHECKING:
    from multi_agent_mcp.contributions import Contributions
    from multi_agent_mcp.domain.agent import Execution
    from multi_agent_mcp.domain.question import Question
    from multi_agent_mcp.services.operations import Apply, Operation, Operations, Run
    from multi_agent_mcp.services.overview.snapshot import AgentRow, Dashboard, Snapshots
    from multi_agent_mcp.services.questions import Asking, Questions
    from multi_agent_mcp.services.sessions.agent_sessions import LiveSession
    from multi_agent_mcp.services.sessions.session_records import Executions, HandOffs, Kept
    from multi_agent_mcp.services.tasks.deliveries import Deliveries
    from multi_agent_mcp.services.team.agents import Signatures

DESCRIPTION_CHARACTERS = 1_500
CHECKLIST_CHARACTERS = 1_200
DEPENDENCIES_SHOWN = 50
REVIEWS_SHOWN = 10
REVIEWS_CHARACTERS = 5_000
CONVERSATIONS_SHOWN = 50
INSTRUCTION_CHARACTERS = 400


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
    """The task that a report is about; None for an interrupt that names none, of an agent without one. With
    `only_obeys` the report changes nothing of it: the agent just stops."""

    task: Task | None
    only_obeys: bool = False


@dataclass(eq=False)
class AnswerAction(Service):
    """Chooses the question that an agent is to answer next, in a session of either purpose."""

    questions: Questions
    answer_budget: AnswerBudget
    signatures: Signatures
    _handed_out: dict[str, datetime] = field(default_factory=dict, init=False)
    """When this process first handed a question out."""
    _asked_at: dict[str, datetime] = field(default_factory=dict, init=False)
    """When a question was last asked in this process, be it one that was open already."""

    def next_action(self, agent: Agent) -> dict[str, Any] | None:
        """The question with the earliest deadline, else the oldest; None without one. One that the agent cannot answer
        yet, as it has asked somebody itself since it was handed out, waits for that answer."""
        question = self._next(agent)
        if question is None:
            return None
        self._handed_out.setdefault(question.id, self.clock())
        about = {
            "question_id": question.id,
            "choices": list(question.choices),
            "asker_id": question.asker_id,
            "authority": self.signatures.standing(question.asker_id, agent.id),
            "deadline": plain_value(question.deadline),
            "default": question.default,
            "task_id": question.task_id,
        }
        shown = shortened(question.question, self.answer_budget.characters - json_size(about) - INSTRUCTION_CHARACTERS)
        whole = {} if shown == question.question else {"question_file": self._file(question)}
        key = "next.answer_question.choose" if question.choices else "next.answer_question"
        instruction = self.texts(key, question_id=question.id)
        return {"action": "answer_question", "instruction": instruction, **about, "question": shown, **whole}

    def asked(self, question: Question) -> None:
        """Notes that a question was asked: what was handed out to its asker waits for the answer."""
        self._asked_at[question.id] = self.clock()

    def has_more(self, agent: Agent) -> bool:
        return self._next(agent) is not None

    def section(self, agent: Agent, _task: Task | None) -> str | None:
        """The section of the briefing about open questions: those to the agent, then its own."""
        owed, asked = self.questions.owed_by(agent.id), self.questions.asked_by(agent.id)
        lines = [self._line("owed", question) for question in owed] + [self._line("asked", item) for item in asked]
        if len(lines) > LINES_SHOWN:
            lines[LINES_SHOWN:] = [self.texts("briefing.more", count=len(lines) - LINES_SHOWN)]
        return "\n".join(lines) or None

    def _line(self, side: str, question: Question) -> str:
        facts = {"question_id": question.id, "question": quoted(question.question, ITEM_CHARACTERS)}
        if side == "asked":
            return self.texts("briefing.asked", agent_id=question.to_id, **facts)
        standing = self.signatures.standing(question.asker_id, question.to_id)
        by = self.texts(f"authority.{standing}", agent_id=question.asker_id)
        return self.texts("briefing.owed", by=by, **facts)

    def _next(self, agent: Agent) -> Question | None:
        owed = self.questions.owed_by(agent.id)
        asked = self.questions.asked_by(agent.id)
        asked_at = max((self._asked_at.get(question.id, question.created_at) for question in asked), default=None)
        return next((question for question in owed if not self._is_passed_on(question, asked_at)), None)

    def _is_passed_on(self, question: Question, asked_at: datetime | None) -> bool:
        handed_out = self._handed_out.get(question.id)
        return handed_out is not None and asked_at is not None and asked_at >= handed_out

    def _file(self, question: Question) -> str:
        return str(self.workspace.questions.base / f"{question.id}.md")


@dataclass(eq=False)
class NextAction(Service):
    """Chooses a task session's next action, and begins and ends its work."""

    task_changes: TaskChanges
    task_reports: TaskReports
    answering: AnswerAction
    deliveries: Deliveries
    executions: Executions
    dashboard: Dashboard
    operations: Operations
    hand_offs: HandOffs
    signatures: Signatures
    contributions: Contributions

    def next_action(self, agent: Agent, session: LiveSession) -> dict[str, Any]:
        """The most urgent of `answer_question`, `work`, `review` and `read_messages`, else `exit` for a session whose
        task is over, else `wait`, as always for an agent that is paused. Returning `work` starts the task. A task that
        only waits for those of others comes last. `authority` is that of who gave the task, wrote the first message or
        asks; `system` where only we say so. A worker with nothing to do gets `claim` where the session has a pool."""
        if (pause := self.task_changes.derived.pause_of(agent.id)) is not None:
            return self._action("wait", words=self.texts("next.paused", by=pause.sender_id or "system"))
        if (question := self.answering.next_action(agent)) is not None:
            return question
        unread, task = self._unread(agent, session), self._in_hand(agent, session)
        if task is None:
            task = self._taken_up(agent)
        elif task.is_examined:
            return self._aside(agent, unread) or self._action(
                "wait", words=self.texts("next.examined"), task_id=task.id
            )
        elif self._is_others_turn(agent, unread):
            return self._aside(agent, unread) or self._work(session, task)
        if task is not None:
            return self._work(session, task)
        return self._aside(agent, unread) or self._claim(agent) or self._waiting(agent, session)

    def has_more(self, agent: Agent, session: LiveSession) -> bool:
        """Whether `next_action` would hand out anything that is this agent's turn. Changes nothing."""
        if self.task_changes.derived.pause_of(agent.id) is not None:
            return False
        unread = self._unread(agent, session)
        if self.answering.has_more(agent):
            return True
        if unread or self.task_changes.startable(agent.id) or self._requests(agent) or self._reviews(agent):
            return True
        task = self._in_hand(agent, session)
        if task is None:
            return self._claim(agent) is not None
        return not task.is_examined and not self._is_others_turn(agent, unread)

    def begin(self, session: LiveSession, task: Task, *, handed_out: bool = False) -> None:
        """Binds the session to a task that is in progress, opens the execution, and settles the notifications that
        announced the task, with their reasons if these are `handed_out` with it."""
        session.bind_task(task.id)
        self.executions.begin(session.record, task.id)
        self.task_changes.derived.settle(session.record.agent_id, taken_up=task, handed_out=handed_out)

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
        task = self._in_hand(agent, session) if session.record.purpose == "task" else None
        question = self.answering.questions.ask(agent, asking, task)
        self.answering.asked(question)
        if task is not None and question.park:
            self._stopped(session, task, self.texts("execution.parked", question_id=question.id))
        return question, self.texts("asked.parked" if question.park else "asked", question_id=question.id)

    def _stopped(self, session: LiveSession, task: Task, reason: str | None) -> None:
        """Ends the work on a task that is blocked now, and updates the dashboard, where superiors look."""
        execution = self.executions.running(session.record)
        if execution is not None and execution.task_id == task.id:
            self.executions.finish(execution, error_message=reason or task.status)
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
        if task is not None and (execution := self._execution_of(session, task.id)) is not None:
            self.executions.finish(execution, error_message=task.status)
        session.has_stopped(task.id if task is not None else ANY_TASK)

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
            return task.end_reported(change)

        task = self.workspace.tasks.update(operation.task_id, end)
        failed = operation.status != "completed"
        for execution in self.workspace.executions.open(change.by):
            if execution.task_id == task.id:
                self.executions.finish(execution, error_message=operation.message if failed else None)
        self.task_changes.derived.settle(change.by, about={task.id})
        if task.final:  # the report was read, and another process finishes what its sender left
            return task, None
        reporter = self.task_changes.agents.get(change.by)
        task, sent = self.task_reports.report_completion(
            reporter, task.id, operation.status, operation.message, operation.summary
        )
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
            self.deliveries.show(agent.id, waiting[: len(shown)])
            return self._action("review", tasks=shown)
        if not unread:
            return None
        return self._action("read_messages", self.signatures.of_first(agent.id, unread), unread_count=len(unread))

    def _claim(self, agent: Agent) -> dict[str, Any] | None:
        """The action for a worker that has nothing to do while there is a task that it could claim, or None."""
        offered = self.contributions.ask("claimable", agent) if agent.role == "worker" else None
        if offered is None:
            return None
        return self._action("claim", words=self.texts("next.claim", task_id=offered["task_id"]), **offered)

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

    def _in_hand(self, agent: Agent, session: LiveSession) -> Task | None:
        """The task in progress: the session's own, else the first one, or None."""
        running = self.workspace.tasks.in_progress(agent.id)
        own = [task for task in running if task.id == session.record.task_id]
        return next(iter([*own, *running]), None)

    def _taken_up(self, agent: Agent) -> Task | None:
        """The first startable task, now started, or None."""
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


# The next action of a chat session (docs/protocol.md, Next action).


@dataclass(eq=False)
class ChatAction(Service):
    """Chooses a chat session's next action: questions, delegations, requests, ends of conversations, messages."""

    delegations: Delegations
    conversations: Conversations
    answering: AnswerAction
    signatures: Signatures

    def next_action(self, agent: Agent, session: AgentSession, *, leaves: bool = False) -> dict[str, Any]:
        """The most urgent action; `exit` once the conversations of this session are over, else `wait`. One that
        `leaves`, as its window was opened for it only, has nothing to wait for without an open conversation."""
        if (question := self.answering.next_action(agent)) is not None:
            return question
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
            or self._action("exit" if self._is_over(mine, session, leaves=leaves) else "wait")
        )

    def has_more(self, agent: Agent, session: LiveSession) -> bool:
        """As `NextAction.has_more`."""
        if self.answering.has_more(agent):
            return True
        mine = (item.taken_by == session.record.id for item in self.delegations.unstarted(agent.id))
        return any(mine) or bool(self.delegations.offered(agent.id) or self.workspace.mailbox(agent.id).unread())

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


# The briefing: what an agent has to know to go on after its host has forgotten it, by a compaction, `/clear` or a
# restart. It is one view of the snapshot that `watch` and the dashboard show. Features add sections to it.

T = TypeVar("T")

BRIEFING_CHARACTERS = 1_500
HAND_OFF_SHOWN, HAND_OFF_MOST = 600, 700
"""The characters of a hand-off that are shown; and with the mark before each of its lines, which may be many."""
PATH_SHOWN = 250
"""The longest absolute path of a hand-off; a longer one is shown from the root's directory on."""
TITLE_CHARACTERS, ITEM_CHARACTERS, REASON_CHARACTERS = 100, 60, 80
_BRACKETS = str.maketrans("()（）", "[][]")
LINES_SHOWN = 4
"""The items of a checklist, the conversations and so on that a section names; of more it gives the number."""


@dataclass(frozen=True, kw_only=True)
class Holds:
    """What one agent holds at a moment: its `row` of the snapshot (its task in progress, its pause, its unread mail),
    what else of its work is open, and the hand-off with which it goes on."""

    row: AgentRow
    purpose: str
    superior_id: str | None
    notices: int
    blocked: Sequence[Task]
    waiting: Sequence[Task]
    given: Sequence[Task]
    conversations: Sequence[Conversation]
    delegations: Sequence[Delegation]
    hand_off: Kept | None

    @property
    def has_work(self) -> bool:
        """Whether there is anything to go on with."""
        return bool(
            self.row.task
            or self.row.pause
            or self.blocked
            or self.conversations
            or self.delegations
            or self.given
            or self.hand_off
        )

    @property
    def has_to_act(self) -> bool:
        """Whether it is this agent's turn, so that it is to be woken."""
        waits = (self.row.unread, self.notices, self.waiting, self.conversations, self.delegations)
        return self.row.task is not None or any(waits)


Section = Callable[[Agent, Task | None], str | None]
"""A part of the briefing of an agent with this task in hand, of a few lines; None if it has nothing to say. It is cut
if the whole is too long."""


@dataclass(eq=False)
class Briefings(Service):
    """Briefs the agents of one team. The sections of the features stand between the task and the mail."""

    snapshots: Snapshots
    delegations: Delegations
    hand_offs: HandOffs
    signatures: Signatures
    contributions: Contributions

    def holds(self, agent_id: str, purpose: str = "task") -> Holds:
        """What the agent holds now. Raises `AgentNotFound`."""
        row = self._with_task_in_hand(self.snapshots.agent(agent_id))
        mine = sorted(self.workspace.tasks.open(agent_id), key=age)
        talks = sorted((item for item in self.workspace.conversations.open() if item.has(agent_id)), key=age)
        unread = (notice for _, notice in self.workspace.notices(agent_id).unread())
        return Holds(
            row=row,
            purpose=purpose,
            superior_id=self._superior(agent_id),
            notices=sum(1 for notice in unread if notice.meant_for(purpose)),
            blocked=[task for task in mine if task.status == "blocked"],
            waiting=[task for task in mine if task.status == "todo"],
            given=[task for task in self.workspace.tasks.open() if _is_under_way(task, agent_id)],
            conversations=talks,
            delegations=self.delegations.unstarted(agent_id),
            hand_off=self.hand_offs.current(agent_id, row.task),
        )

    def text(self, holds: Holds, *, go_on: str = "hook") -> str:
        """The briefing, at most `BRIEFING_CHARACTERS`. `go_on` says by what it reaches the agent: a `hook`, or the
        `answer` of `get_next_action`, which says what to do next. Who it is, its hand-off and how to go on are whole;
        the other sections are cut, the longest first, where there is no room for all."""
        first, hand_off = self._identity(holds), self._hand_off(holds)
        nothing = go_on == "hook" and not holds.has_work
        last = self.texts("briefing.nothing_begun" if nothing else f"briefing.go_on.{go_on}")
        kept = [part for part in (first, hand_off, last) if part]
        room = BRIEFING_CHARACTERS - sum(len(part) + 1 for part in kept)
        middle = _fitted([part for part in self._between(holds) if part], room)
        return "\n".join(part for part in (first, *middle, hand_off, last) if part)

    def of(self, agent_id: str, purpose: str = "task", *, go_on: str = "hook") -> str:
        """The briefing of an agent. Raises `AgentNotFound`."""
        return self.text(self.holds(agent_id, purpose), go_on=go_on)

    def _between(self, holds: Holds) -> Iterator[str | None]:
        yield from (self._task(holds), self._stopped(holds), self._given(holds))
        yield from self.contributions.each("briefing", holds.row.agent, holds.row.task)
        yield from (self._talks(holds), self._unread(holds))

    # The sections

    def _identity(self, holds: Holds) -> str:
        agent = holds.row.agent
        superior = holds.superior_id or self.texts("prompt.nobody")
        role = agent.role if agent.role in ROLES else "worker"
        who = self.texts("prompt.who", agent_id=agent.id, session=self.workspace.session, role=role, superior=superior)
        return self.texts("briefing.chat", who=who) if holds.purpose == "chat" else who

    def _task(self, holds: Holds) -> str | None:
        if (task := holds.row.task) is None:
            count = len(holds.waiting)
            return self.texts("briefing.waiting", count=count) if count else self.texts("briefing.no_task")
        task = self.hand_offs.as_reported(holds.row.agent.id, task)
        facts = {"task_id": task.id, "title": quoted(task.title, TITLE_CHARACTERS), "status": task.status}
        by = self._with_authority(task.given_by, holds)
        lines = [self.texts("briefing.task", **facts, progress=task.progress, by=by)]
        items = [item for item in task.checklist if isinstance(item, Mapping)]
        still_open = [item for item in items if not item.get("completed")]
        lines += self._listed(still_open, self._item_line)
        return "\n".join(lines)

    def _item_line(self, item: Mapping[str, Any]) -> str:
        return f"- [ ] {quoted(str(item.get('text', '')), ITEM_CHARACTERS)}"

    def _stopped(self, holds: Holds) -> str | None:
        lines = []
        if (pause := holds.row.pause) is not None:
            reason = _because(pause.reason)
            lines.append(self.texts("briefing.paused", by=pause.sender_id or "system", reason=reason))
        lines += self._listed(holds.blocked, self._blocked_line)
        return "\n".join(lines) or None

    def _blocked_line(self, task: Task) -> str:
        reason = _because(task.blocked_reason)
        title = quoted(task.title, ITEM_CHARACTERS)
        return self.texts("briefing.blocked", task_id=task.id, title=title, reason=reason)

    def _given(self, holds: Holds) -> str | None:
        return "\n".join(self._listed(holds.given, self._given_line)) or None

    def _given_line(self, task: Task) -> str:
        facts = {"assignee_id": task.assignee_id, "status": task.status, "title": quoted(task.title, ITEM_CHARACTERS)}
        return self.texts("briefing.given", task_id=task.id, **facts)

    def _talks(self, holds: Holds) -> str | None:
        lines = [*self._listed(holds.conversations, lambda item: self._conversation_line(holds, item))]
        lines += self._listed(holds.delegations, self._delegation_line)
        return "\n".join(lines) or None

    def _conversation_line(self, holds: Holds, item: Conversation) -> str:
        other = item.target_agent_id if item.initiator_id == holds.row.agent.id else item.initiator_id
        facts = {"conversation_id": item.id, "by": self._with_authority(other, holds), "status": item.status}
        return self.texts("briefing.conversation", **facts, purpose=quoted(item.purpose or "-", ITEM_CHARACTERS))

    def _delegation_line(self, item: Delegation) -> str:
        purpose = quoted(item.purpose, ITEM_CHARACTERS)
        return self.texts("briefing.delegation", agent_id=item.target_agent_id, purpose=purpose)

    def _unread(self, holds: Holds) -> str | None:
        if not (holds.row.unread or holds.notices):
            return None
        return self.texts("briefing.unread", messages=holds.row.unread, notifications=holds.notices)

    def _hand_off(self, holds: Holds) -> str | None:
        if holds.hand_off is None:
            return None
        item, path = holds.hand_off
        place = str(path.absolute())
        if len(place) > PATH_SHOWN:
            place = str(path.relative_to(self.workspace.root.parent))
        shown = item.content[:HAND_OFF_SHOWN].rstrip()
        content = quoted_lines(shown if len(item.content) <= HAND_OFF_SHOWN else f"{shown}…", HAND_OFF_MOST)
        by = "own" if item.agent_id == holds.row.agent.id else "other"
        author = self._with_authority(item.agent_id, holds)
        return self.texts(f"briefing.hand_off.{by}", by=author, path=place, content=content)

    def _with_authority(self, agent_id: str, holds: Holds) -> str:
        """An agent, and what it is to the one that is briefed."""
        standing = self.signatures.standing(agent_id, holds.row.agent.id)
        return self.texts(f"authority.{standing}", agent_id=agent_id)

    def _listed(self, items: Sequence[T], line: Callable[[T], str]) -> Iterator[str]:
        """The first items, one line each, and how many more there are."""
        yield from map(line, items[:LINES_SHOWN])
        if len(items) > LINES_SHOWN:
            yield self.texts("briefing.more", count=len(items) - LINES_SHOWN)

    def _with_task_in_hand(self, row: AgentRow) -> AgentRow:
        """The row with the task that a running session of the agent works on, rather than another one in progress."""
        bound = {session.task_id for session in row.running}
        in_progress = self.workspace.tasks.in_progress(row.agent.id)
        return replace(row, task=next((task for task in in_progress if task.id in bound), row.task))

    def _superior(self, agent_id: str) -> str | None:
        try:
            return next((superior.id for superior in superiors(agent_id, self.workspace.registry.all())), None)
        except Refusal:  # a broken hierarchy
            return None


def _is_under_way(task: Task, agent_id: str) -> bool:
    return task.given_away_by(agent_id) and task.status in ("todo", "in_progress", "blocked")


def _because(reason: str | None) -> str:
    """Another's reason in the brackets that follow a sentence of ours, which no bracket of its own can close."""
    return f" ({quoted(reason.translate(_BRACKETS), REASON_CHARACTERS)})" if reason else ""


def _fitted(parts: Sequence[str], room: int) -> list[str]:
    """The parts, of which the longest are cut to one length so that all fit into so many characters."""
    wanted = sorted(len(part) + 1 for part in parts)
    longest = room
    for place, length in enumerate(wanted):
        longest = room // (len(wanted) - place)
        if length > longest:
            break
        room -= length
    else:
        return list(parts)
    return [part if len(part) < longest else f"{part[: max(longest - 2, 0)].rstrip()}…" for part in parts]
