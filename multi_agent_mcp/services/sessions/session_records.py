"""What a session leaves beside itself: executions, opened when work on a task starts, closed with its report or with
the session; hand-offs; the Owner's wait-lock (docs/protocol.md, Executions, Hand-offs, Owner wait)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from multi_agent_mcp.domain.agent import (
    HAND_OFF_CHARACTERS,
    Agent,
    AgentSession,
    Execution,
    HandOff,
    OwnerWait,
    is_known_superior,
)
from multi_agent_mcp.domain.entity import age, entity_id, id8, is_name, new_id
from multi_agent_mcp.domain.text import one_line
from multi_agent_mcp.domain.times import format_time, stamp
from multi_agent_mcp.errors import (
    ContentTooLarge,
    InvalidArguments,
    InvalidId,
    OwnerWaiting,
    PollingBlocked,
    Refusal,
    StorageError,
    Unauthorized,
)
from multi_agent_mcp.services.answer_budget import clipped
from multi_agent_mcp.services.validation import require_text, require_words
from multi_agent_mcp.session import Service, Session
from multi_agent_mcp.store.records import LineFile
from multi_agent_mcp.trace import current

if TYPE_CHECKING:
    from multi_agent_mcp.domain.message import Message
    from multi_agent_mcp.domain.task import Task
    from multi_agent_mcp.services.mail_search import MailSearch
    from multi_agent_mcp.services.team.agents import Signatures


@dataclass(frozen=True)
class LogPage:
    execution: Execution
    lines: list[str]
    total: int


@dataclass(eq=False)
class Executions(Service):
    """The executions of one team and their logs."""

    def begin(self, session: AgentSession, task_id: str) -> Execution:
        """Returns the session's running execution of this task, opening it if there is none."""
        running = self.running(session)
        if running is not None and running.task_id == task_id:
            return running
        if running is not None:
            self._end(running, "left")
        execution_id = new_id("exec")
        execution = Execution(
            id=execution_id,
            agent_id=session.agent_id,
            task_id=task_id,
            session_id=session.id,
            started_at=self.clock(),
            traceparent=current(),
            log_file_path=f"executions/{session.agent_id}/logs/{execution_id}.log",
        )
        self.workspace.executions.add(execution)
        self.log(execution, "Starting task execution...")
        return execution

    def running(self, session: AgentSession) -> Execution | None:
        """The session's open execution, or None."""
        mine = [item for item in self.workspace.executions.open(session.agent_id) if item.session_id == session.id]
        return mine[0] if mine else None

    def finish(self, execution: Execution, *, error_message: str | None = None) -> Execution:
        """Closes an execution; closing it twice changes nothing."""
        before: list[Execution] = []

        def finish(found: Execution) -> Execution:
            before.append(found)
            return found.finish(self.clock(), error_message=error_message)

        finished = self.workspace.executions.update(execution.id, finish)
        if before[-1].running:
            self.log(finished, f"Execution {finished.status}")
            self.contributions.tell("execution_ended", finished)
        return finished

    def finish_task(self, task: Task, agent_id: str | None = None, *, error_message: str | None = None) -> None:
        """Closes what its assignee, or another agent, has open of a task that is over, whoever has ended it. One that a
        killed process leaves open is closed so with its session (`_end`)."""
        worker = agent_id or task.assignee_id
        for execution in self.workspace.executions.open(worker) if worker is not None else ():
            if execution.task_id == task.id:
                self.finish(execution, error_message=error_message)

    def _end(self, execution: Execution, why: str) -> None:
        """Closes an execution that nobody has reported, as failed with the text `execution.{why}`, but as completed if
        its task is done."""
        with suppress(StorageError):  # an id that is no file name, in a hand-written file
            task = self.workspace.tasks.find(execution.task_id)
            if task is not None and task.status == "done":
                self.finish(execution)
                return
        self.finish(execution, error_message=self.texts(f"execution.{why}"))

    def finish_session(self, session: AgentSession, why: str) -> None:
        """Closes the open executions of a session that is over."""
        for execution in self.workspace.executions.open(session.agent_id):
            if execution.session_id == session.id:
                self._end(execution, why)

    def orphans(self, agent_id: str) -> list[Execution]:
        """Open executions whose session has ended or whose session's file was lost in a power cut."""
        running = self.workspace.executions.open(agent_id)
        return [item for item in running if item.session_id and not self._has_session(item.session_id)]

    def finish_orphans(self, agent_id: str) -> None:
        for execution in self.orphans(agent_id):
            self._end(execution, "session_lost")

    def _has_session(self, session_id: str) -> bool:
        try:
            session = self.workspace.sessions.find(entity_id("ses", session_id))
        except InvalidId:
            return False
        return session is not None and session.ended_at is None

    def log(self, execution: Execution, line: str) -> None:
        """Appends one line with the time to the execution's log; line breaks become blanks."""
        text = one_line(line)[:500]
        self.workspace.files.append(self.workspace.execution_log(execution), f"[{format_time(self.clock())}] {text}")

    def all(self, agent_id: str | None = None) -> list[Execution]:
        """Every execution (of one agent), oldest first."""
        return sorted(self.workspace.executions.all(agent_id), key=age)

    def history(
        self,
        agent_id: str,
        *,
        task_id: str | None = None,
        status: str | None = None,
        limit: int = 10,
        before: Execution | None = None,
    ) -> tuple[list[Execution], int]:
        """An agent's executions, running ones first, then the one that ended last, and the number of all; with
        `before`, only those behind this one."""
        group = None if task_id is None else entity_id("tsk", task_id)
        executions = self.workspace.executions
        running = [
            execution
            for execution in executions.open(agent_id)
            if group in (None, execution.task_id) and status in (None, execution.status)
        ]
        total = len(running) + executions.count(agent_id, label=status, group=group)
        closed_before = before.id if before is not None and not before.running else None
        if before is not None:
            running = [] if closed_before else [item for item in running if age(item) < age(before)]
        closed = executions.closed(agent_id, label=status, group=group, limit=limit, before=closed_before)
        return (sorted(running, key=age, reverse=True) + closed)[:limit], total

    def page(self, agent_id: str | None, *, offset: int, limit: int) -> tuple[list[Execution], int]:
        """A page of the executions of one agent or of all, running ones first, then newest first, and the total."""
        executions, end = self.workspace.executions, offset + limit
        running = sorted(executions.open(agent_id), key=age, reverse=True)
        found = running + executions.closed(agent_id, limit=end)
        return found[offset:end], len(running) + executions.closed_counts(agent_id).total()

    def of_task(self, task_id: str, limit: int) -> list[Execution]:
        """The newest executions of a task."""
        executions = self.workspace.executions
        found = [item for item in executions.open() if item.task_id == task_id]
        found += executions.closed(group=task_id, limit=limit)
        return sorted(found, key=age, reverse=True)[:limit]

    def get(self, agent_id: str | None, execution_id: object) -> Execution:
        """The execution with this id. Raises `InvalidId`, `ExecutionNotFound`, and `Unauthorized` for another agent's
        execution unless `agent_id` is None."""
        execution = self.workspace.executions.get(entity_id("exec", execution_id))
        if agent_id is not None and execution.agent_id != agent_id:
            raise Unauthorized("not_own_execution", execution_id=execution.id)
        return execution

    def read_log(self, execution: Execution, *, tail: int | None = None, offset: int | None = None) -> LogPage:
        """The last `tail` lines (default 100) or those from line `offset` on; raises `InvalidArguments` for both."""
        if tail is not None and offset is not None:
            raise InvalidArguments("tail_and_offset")
        log = LineFile(self.workspace.files, self.workspace.execution_log(execution))
        lines = log.last(100 if tail is None else tail) if offset is None else log.since(offset)
        return LogPage(execution, lines, log.count())

    def has_log(self, execution: Execution) -> bool:
        return self.log_path(execution).is_file()

    def log_path(self, execution: Execution) -> Path:
        return self.workspace.execution_log(execution).absolute()


# Hand-offs: what an agent leaves for whoever goes on with its work, above all for itself.

REPORT_CHARACTERS = 1_000
DESCRIPTION_CHARACTERS = 500
REPORTS_LOOKED_AT = 20
LOG_LINES = 10


class Kept(NamedTuple):
    """A hand-off and its file."""

    hand_off: HandOff
    path: Path


@dataclass(eq=False)
class HandOffs(Service):
    """The hand-offs of one team. The directory of an agent holds those that count: its last one about each open task,
    and its last one about none; the others are in the archive."""

    executions: Executions
    mail_search: MailSearch
    signatures: Signatures

    def write(self, agent: Agent, content: str, task_id: str | None, session_task_id: str | None) -> Kept:
        """Writes a hand-off about a task that the agent may change, else about the one in hand, if any: the session's
        while it is in progress, else the first one in progress. Raises `ContentTooLarge`, `InvalidArguments`,
        `TaskNotFound`, `Unauthorized`."""
        require_text("content", content)
        require_words("content", content)
        if len(content) > HAND_OFF_CHARACTERS:
            raise ContentTooLarge("hand_off_too_large", size=len(content), limit=HAND_OFF_CHARACTERS)
        if task_id is not None:
            task = self.workspace.tasks.get(entity_id("tsk", task_id))
            task.require_writer(agent.id, self.workspace.registry.all())
            return self._add(agent.id, task.id, "written", content)
        running = [task.id for task in self.workspace.tasks.in_progress(agent.id)]
        in_hand = session_task_id if session_task_id in running else next(iter(running), None)
        return self._add(agent.id, in_hand, "written", content)

    def derive(self, agent_id: str) -> Kept | None:
        """Writes a hand-off from what the files say about the agent's task in progress, before its host forgets how it
        got there; None without a task, or if one was written since the last progress."""
        task = next(iter(self.workspace.tasks.in_progress(agent_id)), None)
        if task is None:
            return None
        task, report = self.as_reported(agent_id, task), self._last_report(agent_id, task)
        progressed_at = max(task.updated_at, report.created_at) if report is not None else task.updated_at
        known = self._last(agent_id, lambda item: item.task_id == task.id)
        if known is not None and known.hand_off.created_at >= progressed_at:
            return None
        return self._add(agent_id, task.id, "derived", self._derived(agent_id, task, report))

    def as_reported(self, agent_id: str, task: Task) -> Task:
        """The agent's task with the progress and the checklist of its reports that nobody has read yet."""
        told = [item.metadata for item in self._reports(agent_id, task) if not task.has_applied(item.id)]
        for name, kind in (("progress", int), ("checklist", list)):
            value = next((data[name] for data in reversed(told) if isinstance(data.get(name), kind)), None)
            if value is not None:
                task = replace(task, **{name: value})
        return task

    def current(self, agent_id: str, task: Task | None) -> Kept | None:
        """The hand-off with which the agent goes on: its own last one that still matters, else the last one of another
        agent about `task`."""
        mine = self._last(agent_id, lambda item: self._matters(agent_id, item))
        return mine or (self.about(task.id) if task is not None else None)

    def about(self, task_id: str, *, without: str | None = None) -> Kept | None:
        """The last hand-off about an open task, of whichever agent, except those of the agent `without`."""
        agents = (agent_id for agent_id in self.workspace.registry.all() if is_name(agent_id) and agent_id != without)
        found = (self._last(agent_id, lambda item: item.task_id == task_id) for agent_id in agents)
        return max((item for item in found if item is not None), key=lambda item: age(item.hand_off), default=None)

    def find(self, hand_off_id: str) -> Kept | None:
        """The hand-off with this id, from the archive, too."""
        return next((kept for kept in self.all() if kept.hand_off.id == hand_off_id), None)

    def all(self, agent_id: str | None = None, task_id: str | None = None) -> list[Kept]:
        """Every hand-off (of an agent, about a task), newest first, with those in the archive."""
        agents = [agent_id] if agent_id is not None else filter(is_name, self.workspace.registry.all())
        found: dict[str, Kept] = {}
        for partition in map(self.workspace.hand_offs, agents):
            for directory in (*partition.archive.months(), partition.home):
                found |= {name: Kept(item, directory.path / name) for name, item in directory.entities()}
        chosen = (kept for kept in found.values() if task_id in (None, kept.hand_off.task_id))
        return sorted(chosen, key=lambda kept: age(kept.hand_off), reverse=True)

    def archive_older(self, agent_id: str) -> None:
        """Moves the hand-offs that no longer count to the archive: those before the last one about the same task, and
        those about a task that is over."""
        partition = self.workspace.hand_offs(agent_id)
        if not partition.home.names():
            return
        with self.workspace.locks.held(f"handoffs-{agent_id}"):
            later: set[str | None] = set()
            for name, item in reversed(partition.home.entities()):
                if item.task_id in later or (item.task_id is not None and self._is_over(item.task_id)):
                    partition.put_away(name, item)
                later.add(item.task_id)

    def _add(self, agent_id: str, task_id: str | None, kind: str, content: str) -> Kept:
        hand_off = HandOff(
            id=new_id("hnd"), agent_id=agent_id, task_id=task_id, kind=kind, created_at=self.clock(), content=content
        )
        home, name = self.workspace.hand_offs(agent_id).home, f"{stamp(hand_off.created_at)}_{id8(hand_off.id)}.md"
        home.create(name, hand_off)
        self.archive_older(agent_id)
        return Kept(hand_off, home.path / name)

    def _last(self, agent_id: str, wanted: Callable[[HandOff], bool]) -> Kept | None:
        home = self.workspace.hand_offs(agent_id).home
        found = (Kept(item, home.path / name) for name, item in reversed(home.entities()) if wanted(item))
        return next(found, None)

    def _matters(self, agent_id: str, item: HandOff) -> bool:
        """Whether the work that a hand-off is about is still this agent's."""
        if item.task_id is None:
            return True
        task = self.workspace.tasks.find(item.task_id)
        return task is not None and not task.final and agent_id in (task.assignee_id, task.created_by)

    def _is_over(self, task_id: str) -> bool:
        task = self.workspace.tasks.find(task_id)
        return task is None or task.final

    def _last_report(self, agent_id: str, task: Task) -> Message | None:
        return next(reversed(self._reports(agent_id, task)), None)

    def _reports(self, agent_id: str, task: Task) -> list[Message]:
        """The agent's last reports of progress, oldest first."""
        since = task.started_at or task.created_at
        found = self.mail_search.about_task(task.id, since, REPORTS_LOOKED_AT)
        mine = [item for item in found if item.sender_id == agent_id and item.message_type == "task_progress"]
        return [item for item in mine if self.signatures.verifies(item)]

    def _derived(self, agent_id: str, task: Task, report: Message | None) -> str:
        """The text of a derived hand-off: what a reader needs first comes first, as it is cut at the end."""
        items = [item for item in task.checklist if isinstance(item, Mapping)]
        facts = {"task_id": task.id, "title": clipped(task.title, 200), "status": task.status}
        parts = [self.texts("handoff.derived", **facts, progress=task.progress)]
        parts += [f"- [{'x' if item.get('completed') else ' '}] {item.get('text', '')}" for item in items]
        if report is not None:
            said = clipped(report.content, REPORT_CHARACTERS)
            parts.append(self.texts("handoff.report", at=format_time(report.created_at), content=said))
        if task.description.strip():
            parts.append(self.texts("handoff.description", content=clipped(task.description, DESCRIPTION_CHARACTERS)))
        if lines := self._log_lines(agent_id, task):
            parts.append("\n".join([self.texts("handoff.log"), *lines]))
        text = "\n".join(parts)
        return text if len(text) <= HAND_OFF_CHARACTERS else f"{text[: HAND_OFF_CHARACTERS - 1]}…"

    def _log_lines(self, agent_id: str, task: Task) -> list[str]:
        running = [item for item in self.workspace.executions.open(agent_id) if item.task_id == task.id]
        try:
            return self.executions.read_log(running[0], tail=LOG_LINES).lines if running else []
        except Refusal:
            return []


# The Owner's wait-lock: a file that names the Admin whose answer the Owner awaits.

EMPTY_CHECKS_ALLOWED = 1
WITHOUT_WORK = frozenset({"authenticate", "logout"})
"""What a waiting Owner may call, and is not told to."""


class OwnerWaits(Service):
    """The wait-locks of a session's owners. Released locks are kept in the archive."""

    def __init__(self, session: Session, signatures: Signatures) -> None:
        super().__init__(session)
        self._signatures = signatures
        self.standing = session.workspace.owner_waits
        self._archive = session.workspace.released_waits
        allowed = [*session.features.each("while_waiting")]
        self._allowed_while_waiting = frozenset(allowed)
        self._tools = " / ".join(name for name in allowed if name not in WITHOUT_WORK)

    def of(self, owner_id: str) -> OwnerWait | None:
        """The Owner's lock, or None when the Owner does not wait."""
        wait = self.standing.load(_name(owner_id))
        # The file's name decides whose lock it is, whatever the header says.
        return None if wait is None else replace(wait, owner_id=owner_id)

    def begin(self, wait: OwnerWait, *, again: bool = False) -> None:
        """Sets the lock. Raises `OwnerWaiting` if another one is set. With `again`, after a crash, does nothing if the
        lock is set already or has been released since."""
        with self._locked(wait.owner_id):
            standing = self.of(wait.owner_id)
            if again and (_is_same(standing, wait) or self._released(wait.owner_id, wait.message_id)):
                return
            if standing is not None:
                raise OwnerWaiting(admin_id=standing.admin_id, tools=self._tools)
            self.standing.replace(_name(wait.owner_id), wait)

    def take_back(self, wait: OwnerWait) -> None:
        """Removes a lock that was just set for a message that could not be stored."""
        with self._locked(wait.owner_id):
            if _is_same(self.of(wait.owner_id), wait):
                self.standing.remove(_name(wait.owner_id), sync=True)

    def require_allowed(self, agent: Agent, tool: str) -> None:
        """Raises `OwnerWaiting` if the agent is a waiting Owner and may not call this tool meanwhile."""
        if agent.role != "owner" or tool in self._allowed_while_waiting:
            return
        wait = self.of(agent.id)
        if wait is not None:
            raise OwnerWaiting(admin_id=wait.admin_id, tools=self._tools)

    def checked(self, agent: Agent, unread: int) -> None:
        """Records that the Owner checked its mail and found `unread` messages. Raises `PollingBlocked` from the second
        empty check in a row on."""
        if agent.role != "owner" or self.of(agent.id) is None:
            return
        with self._locked(agent.id):
            wait = self.of(agent.id)
            if wait is None:
                return
            if not unread and wait.empty_checks >= EMPTY_CHECKS_ALLOWED:
                raise PollingBlocked
            if (changed := wait.checked(unread)) != wait:
                self.standing.replace(_name(agent.id), changed)

    def release_by(self, reader: Agent, messages: Iterable[Message], agents: Mapping[str, Agent]) -> bool:
        """Releases the lock if one of these messages, verified and about to be marked read, comes from the awaited
        Admin or any Admin below the Owner. Returns whether it did."""
        wait = self.of(reader.id) if reader.role == "owner" else None
        if wait is None:
            return False
        answers = [message.id for message in messages if self._answers(wait, message.sender_id, agents)]
        return bool(answers) and self.release(reader.id, by=answers[0])

    def unlock(self, actor: Agent, owner: Agent, reason: str | None = None) -> dict[str, Any]:
        """Releases the lock for a person, in emergencies, with a line in the audit log. Returns the answer, which says
        whether there was a lock."""
        require_text("reason", reason)
        if owner.role != "owner":
            raise InvalidArguments("waits_for_nobody", agent_id=owner.id)
        released = self.release(owner.id)
        self.session.audit("unlock_owner_wait", agent_id=actor.id, owner_id=owner.id, reason=reason, released=released)
        return {"owner_id": owner.id, "waiting_before": released, "waiting_after": False}

    def release(self, owner_id: str, by: str | None = None) -> bool:
        """Moves the lock to the archive, naming the message that released it. Returns whether there was one."""
        with self._locked(owner_id):
            wait = self.of(owner_id)
            if wait is None:
                return False
            name = f"{stamp(self.clock())}_{id8(wait.message_id)}_{_name(owner_id)}"
            self._archive.replace(name, replace(wait, released_by=by))
            self.standing.remove(_name(owner_id), sync=True)
            return True

    def restore(self, owner_id: str, message_ids: Iterable[str]) -> None:
        """Sets the lock again if it was released by one of these messages, which were not delivered after all, unless
        another session has read an answer meanwhile. The caller holds the mailbox's lock."""
        given_back = set(message_ids)
        with self._locked(owner_id):
            if not given_back or self.of(owner_id) is not None:
                return
            # All of them, not only the latest by name: the clock may have been set back.
            for name in sorted(self._archived(owner_id), reverse=True):
                wait = self._archive.load(name)
                if wait is not None and wait.released_by in given_back:
                    if self._is_answered(replace(wait, owner_id=owner_id)):
                        return
                    self.standing.replace(_name(owner_id), replace(wait, released_by=None))
                    self._archive.remove(name)
                    return

    def _released(self, owner_id: str, message_id: str) -> bool:
        waits = (self._archive.load(name) for name in self._archived(owner_id))
        return any(wait is not None and wait.message_id == message_id for wait in waits)

    def _archived(self, owner_id: str) -> list[str]:
        return [name for name in self._archive.entries() if name.endswith(f"_{_name(owner_id)}")]

    def _is_answered(self, wait: OwnerWait) -> bool:
        """Whether an answer that was read since the wait began stays read."""
        agents = self.workspace.registry.all()
        return any(
            self._answers(wait, message.sender_id, agents) and self._signatures.verifies(message, wait.owner_id)
            for message in self.workspace.mailbox(wait.owner_id).read_since(wait.since)
        )

    def _answers(self, wait: OwnerWait, sender_id: str, agents: Mapping[str, Agent]) -> bool:
        if sender_id == wait.admin_id:
            return True
        # a broken hierarchy releases nothing; unlock_owner_wait still does
        is_admin = sender_id in agents and agents[sender_id].role == "admin"
        return is_admin and is_known_superior(wait.owner_id, sender_id, agents)

    def _locked(self, owner_id: str) -> AbstractContextManager[None]:
        return self.workspace.locks.held(f"owner-wait-{owner_id}")


def _is_same(standing: OwnerWait | None, wait: OwnerWait) -> bool:
    return standing is not None and standing.message_id == wait.message_id


def _name(owner_id: str) -> str:
    return f"{owner_id}.md"
