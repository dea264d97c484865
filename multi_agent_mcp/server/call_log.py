"""The execution log's two lines per tool call: what was called, what came of it, how long it took
(docs/protocol.md, Executions).

Never arguments or answers: they may be long, and they may be secret.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from multi_agent_mcp.domain.execution import Execution
from multi_agent_mcp.errors import Refusal

if TYPE_CHECKING:
    from multi_agent_mcp.server.middleware import Call

logger = logging.getLogger(__name__)


class CallLog:
    """Logs one call into the session's running execution; a call that opens an execution is its first."""

    def __init__(self, call: Call, tool_name: str) -> None:
        self._call = call
        self._tool_name = tool_name
        self._began = time.monotonic()
        self._execution = self._running()
        self._write(f"Calling tool: {tool_name}")

    def close(self, outcome: str) -> None:
        """Writes the result; never raises, because a log that cannot be written must not fail the call."""
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
