"""Executions: opened when work on a task starts, closed with its report or with the session
(docs/protocol.md, Executions)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from multi_agent_mcp.domain.entity import age
from multi_agent_mcp.domain.ids import entity_id, new_id
from multi_agent_mcp.domain.session import AgentSession, Execution
from multi_agent_mcp.domain.text import one_line
from multi_agent_mcp.domain.times import format_time
from multi_agent_mcp.errors import InvalidArguments, InvalidId, Unauthorized
from multi_agent_mcp.store.journal import LineFile
from multi_agent_mcp.trace import current

if TYPE_CHECKING:
    from multi_agent_mcp.store.workspace import Workspace
    from multi_agent_mcp.texts import Texts


@dataclass(frozen=True)
class LogPage:
    execution: Execution
    lines: list[str]
    total: int


@dataclass(eq=False)
class Executions:
    """The executions of one team and their logs."""

    workspace: Workspace
    texts: Texts
    clock: Callable[[], datetime]
    finished: Callable[[Execution], None] = lambda _: None
    """Called for each execution that has just ended. Never raises."""

    def begin(self, session: AgentSession, task_id: str) -> Execution:
        """Returns the session's running execution of this task, opening it if there is none."""
        running = self.running(session)
        if running is not None and running.task_id == task_id:
            return running
        if running is not None:
            self.finish(running, error_message=self.texts("execution.left"))
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
        finished = self.workspace.executions.update(
            execution.id, lambda found: found.finish(self.clock(), error_message=error_message)
        )
        self.log(finished, f"Execution {finished.status}")
        if execution.running:
            self.finished(finished)
        return finished

    def finish_session(self, session: AgentSession, why: str) -> None:
        """Closes the open executions of a session that is over as failed, with the text `execution.{why}`."""
        for execution in self.workspace.executions.open(session.agent_id):
            if execution.session_id == session.id:
                self.finish(execution, error_message=self.texts(f"execution.{why}"))

    def orphans(self, agent_id: str) -> list[Execution]:
        """Open executions whose session has ended or whose session's file was lost in a power cut."""
        running = self.workspace.executions.open(agent_id)
        return [item for item in running if item.session_id and not self._has_session(item.session_id)]

    def finish_orphans(self, agent_id: str) -> None:
        for execution in self.orphans(agent_id):
            self.finish(execution, error_message=self.texts("execution.session_lost"))

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
        self, agent_id: str, *, task_id: str | None = None, status: str | None = None, limit: int = 10
    ) -> tuple[list[Execution], int]:
        """An agent's executions, newest first, and their total number."""
        group = None if task_id is None else entity_id("tsk", task_id)
        executions = self.workspace.executions
        running = [
            execution
            for execution in executions.open(agent_id)
            if group in (None, execution.task_id) and status in (None, execution.status)
        ]
        closed = executions.closed(agent_id, label=status, group=group, limit=limit)
        total = len(running) + executions.count(agent_id, label=status, group=group)
        return sorted(running + closed, key=age, reverse=True)[:limit], total

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
