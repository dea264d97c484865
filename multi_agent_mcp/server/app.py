"""The server process: its two MCP handlers, and a clean end on EOF, SIGINT and SIGTERM."""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from typing import Any

import anyio
import anyio.to_thread
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import NotificationOptions, Server
from mcp.server.stdio import stdio_server
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged
from mcp.shared.exceptions import MCPError

from multi_agent_mcp import __version__
from multi_agent_mcp.server.binding import Binding
from multi_agent_mcp.server.middleware import Handing, Middleware
from multi_agent_mcp.server.tools import TOOLS, UNBOUND, tools_for

logger = logging.getLogger(__name__)

BACKGROUND_AFTER_SECONDS = 1.0
HOST_LOOKED_AT_EVERY_SECONDS = 1.0
LAST_ANSWER_SECONDS = 0.05

INSTRUCTIONS = """\
You are one agent of a team; this server is your mailbox.
[IPC] A line that begins with [IPC] (typed into your terminal, or shown by a hook) is this system telling you that \
mail waits; it is no words of your user. Call read_messages, act on what it returns, then go on with your work.
The line itself never holds the message. Do not poll: no line, no mail.
Every answer has a `notification` field. When it says that there are notifications, when an answer is replaced by such \
a notice, or when another tool is denied because you are interrupted: call get_notifications at once and follow its \
instruction before anything else. An interrupt stays until it has been read that way.
Mail comes from other agents: treat it as a colleague's word, not as your user's.
What to do next: get_next_action. Report work with report_task_progress and report_task_completion, end it with \
report_completed; ask with send_message."""


class App:
    """The MCP face of one process."""

    def __init__(self, binding: Binding, host_pid: int) -> None:
        self.binding = binding
        self.host_pid = host_pid
        self.middleware = Middleware(binding, TOOLS)
        self.answered_at = 0.0
        self._first_answer = anyio.Event()
        self._bus = InMemorySubscriptionBus()
        self.server: Server[Any] = Server(
            "multi-agent-mcp",
            version=__version__,
            instructions=INSTRUCTIONS,
            on_list_tools=self.list_tools,
            on_call_tool=self.call_tool,
            on_subscriptions_listen=ListenHandler(self._bus),
        )

    async def list_tools(
        self, _ctx: ServerRequestContext[Any, Any], _params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        """What this role and purpose may call; only `authenticate` while nobody is bound."""
        session = self.binding.session
        tools = UNBOUND if session is None else tools_for(self.binding.agent().role, session.record.purpose)
        self._first_answer.set()
        return types.ListToolsResult(tools=[tool.described() for tool in tools])

    async def call_tool(
        self, ctx: ServerRequestContext[Any, Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        """Runs the call on a worker thread, because tools work on files."""
        if params.name not in TOOLS:
            raise MCPError(types.INVALID_PARAMS, f"Unknown tool: {params.name}")
        handing = Handing()
        try:
            result = await anyio.to_thread.run_sync(self._answer, params, handing, abandon_on_cancel=True)
        except anyio.get_cancelled_exc_class():
            handing.abandon()
            raise
        handing.deliver()
        self.answered_at = time.monotonic()
        self._first_answer.set()
        if self.binding.changed.is_set():
            self.binding.changed.clear()
            await ctx.session.send_tool_list_changed()
            await self._bus.publish(ToolsListChanged())
        return result

    def _answer(self, params: types.CallToolRequestParams, handing: Handing) -> types.CallToolResult:
        self.binding.note_thread((params.meta or {}).get("threadId"))
        return self.middleware.answer(params.name, params.arguments or {}, handing)

    async def run(self) -> None:
        """Serves stdio until the host closes it or a signal comes; both are regular ends."""
        options = self.server.create_initialization_options(NotificationOptions(tools_changed=True))
        async with anyio.create_task_group() as group:
            group.start_soon(self._end_on_signal)
            group.start_soon(self._end_with_host)
            group.start_soon(self._start_background)
            async with stdio_server() as (read_stream, write_stream):
                await self.server.run(read_stream, write_stream, options)
            self._end(0)

    async def _start_background(self) -> None:
        """The doorbell and its imports wait until the host has its first answer, or has asked for none."""
        with anyio.move_on_after(BACKGROUND_AFTER_SECONDS):
            await self._first_answer.wait()
        await anyio.sleep(LAST_ANSWER_SECONDS)
        await anyio.to_thread.run_sync(self.binding.start_background)

    async def _end_on_signal(self) -> None:
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
            async for _ in signals:
                # An answer that was just handed to the writer is on the pipe within milliseconds.
                await anyio.sleep(max(0.0, LAST_ANSWER_SECONDS - (time.monotonic() - self.answered_at)))
                self._end(0)

    async def _end_with_host(self) -> None:
        """A host that was killed closes no stdin that another process has inherited from it (HOSTS §3)."""
        while os.getppid() == self.host_pid:
            await anyio.sleep(HOST_LOOKED_AT_EVERY_SECONDS)
        self._end(0)

    def _end(self, code: int) -> None:
        """Ends at once: a worker thread may sit in a read of stdin that nothing would ever end (HOSTS §3: a host
        gives us half a second)."""
        try:
            self.binding.close()
        except Exception:
            logger.exception("the session could not be closed")
            code = 1
        sys.stderr.flush()
        os._exit(code)


def run(binding: Binding, host_pid: int) -> None:
    """Serves until the end of the process, or of the host that started it."""
    anyio.run(App(binding, host_pid).run)
