"""One tool call: the first argument of every tool, and the call's two lines in the execution's log."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from multi_agent_mcp.errors import Refusal

if TYPE_CHECKING:
    from multi_agent_mcp.domain.agent import Agent
    from multi_agent_mcp.domain.session import Execution
    from multi_agent_mcp.server.binding import Binding
    from multi_agent_mcp.server.toolbox import Answer
    from multi_agent_mcp.services.sessions.agent_sessions import LiveSession
    from multi_agent_mcp.services.sessions.receipts import Receipt
    from multi_agent_mcp.wiring import Services

logger = logging.getLogger(__name__)


@dataclass
class Call:
    """One tool call of a bound process. A tool that counts the unread mail stores the number in `unread`, and one whose
    answer has the briefing sets `carries_briefing`."""

    binding: Binding
    session: LiveSession
    me: Agent
    receipt: Receipt
    unread: int | None = None
    carries_briefing: bool = False

    @property
    def services(self) -> Services:
        return self.binding.services

    @property
    def purpose(self) -> str:
        return self.session.record.purpose

    @property
    def closes_after_logout(self) -> bool:
        """Whether the supervisor opened this window for this session only, and closes it after the logout."""
        return self.binding.closes_after_logout(self.session)

    def interrupted(self) -> bool:
        """Whether an interrupt waits, which ends a waiting call."""
        return self.services.notifications.refresh(self.me.id, self.purpose).interrupts

    def fitting(self, answer: Answer, key: str, items: list[Any], how_to_continue: str | None = None) -> Answer:
        """See `AnswerBudget.fitting`."""
        return self.services.answer_budget.fitting(answer, key, items, how_to_continue)


class CallLog:
    """Logs a tool's name, its outcome and duration to the session's running execution; a call that opens an execution
    is logged as its first (docs/protocol.md, Executions). Arguments and answers, which may be long or secret, are never
    logged. Never raises: a log that cannot be written must not fail the call."""

    def __init__(self, call: Call, tool_name: str) -> None:
        self._call = call
        self._tool_name = tool_name
        self._began = time.monotonic()
        self._execution = self._running()
        self._write(f"Calling tool: {tool_name}")

    def close(self, outcome: str) -> None:
        """Writes the line with the outcome; to an execution that the call has opened, first that with the name."""
        if self._execution is None:
            self._execution = self._running()
            self._write(f"Calling tool: {self._tool_name}")
        milliseconds = (time.monotonic() - self._began) * 1000
        self._write(f"Tool result: {outcome} ({self._tool_name}, {milliseconds:.0f} ms)")

    def _running(self) -> Execution | None:
        if self._call.purpose != "task":
            return None
        try:
            return self._call.services.executions.running(self._call.session.record)
        except Refusal as refusal:
            logger.warning("the execution could not be found: %s", refusal)
            return None

    def _write(self, line: str) -> None:
        if self._execution is None:
            return
        try:
            self._call.services.executions.log(self._execution, line)
        except Refusal as refusal:
            logger.warning("the execution log could not be written: %s", refusal)
