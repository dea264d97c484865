"""An agent's server without stdio: tool calls through the middleware, in this process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mcp_types as types

from multi_agent_mcp.server.binding import Binding
from multi_agent_mcp.server.calls import Answer, Middleware, Tool
from multi_agent_mcp.server.tools import tools_of
from multi_agent_mcp.services.sessions.confirmation import Confirmation
from multi_agent_mcp.wiring import Services


class Seat:
    """For tests of services: it calls with the test's own `Services`, whose clock, recorder and files the test holds.
    What a tool answers is tested with the fixture `agent_team`. `extra` are tools of a test beside the real ones.
    Without an agent nobody is bound yet."""

    def __init__(
        self, services: Services, agent_id: str | None, *extra: Callable[..., Answer], purpose: str = "task"
    ) -> None:
        self.binding = Binding(services, purpose=purpose)
        if agent_id is not None:
            self.binding.bind_process(agent_id, None)
        self._middleware = Middleware(
            self.binding,
            {**tools_of(services.session.features), **{fn.__name__: Tool(fn, fn.__name__) for fn in extra}},
        )

    def result(self, tool: str, confirmation: Confirmation | None = None, **arguments: Any) -> types.CallToolResult:
        """The answer as MCP sends it. With a `confirmation` the test says what becomes of it, else it is written."""
        own = confirmation or Confirmation()
        result = self._middleware.answer(tool, arguments, own)
        if confirmation is None:
            own.written()
        return result

    def call(self, tool: str, confirmation: Confirmation | None = None, **arguments: Any) -> Answer:
        """The JSON answer; {} for an interrupt in its place."""
        return self.result(tool, confirmation, **arguments).structured_content or {}
