"""Executions: one stretch of work of a task session on a task, with a log of its tool calls
(docs/protocol.md, Executions)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime
from typing import ClassVar, Literal

from multi_agent_mcp.domain.entity import EPOCH, Identified

ExecutionStatus = Literal["running", "completed", "failed"]


@dataclass(frozen=True, kw_only=True)
class Execution(Identified):
    """An execution. `log_file_path` is relative to the session directory; `duration_seconds` is set at the end."""

    BEGAN: ClassVar[str] = "started_at"

    id: str
    agent_id: str = ""
    task_id: str = ""
    session_id: str = ""
    status: str = "running"
    started_at: datetime = EPOCH
    completed_at: datetime | None = None
    exit_code: int | None = None
    duration_seconds: float | None = None
    log_file_path: str = ""
    error_message: str | None = None

    @property
    def running(self) -> bool:
        return self.completed_at is None

    def finish(self, at: datetime, *, error_message: str | None = None) -> Execution:
        """The finished execution: `completed` with exit code 0, or `failed` with 1 and the reason. Finishing twice
        changes nothing."""
        if not self.running:
            return self
        return replace(
            self,
            status="completed" if error_message is None else "failed",
            completed_at=at,
            exit_code=0 if error_message is None else 1,
            duration_seconds=round(max((at - self.started_at).total_seconds(), 0.0), 3),
            error_message=error_message,
        )
