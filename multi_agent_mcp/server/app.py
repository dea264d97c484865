"""The server process: its two MCP handlers, and a clean end on EOF, SIGINT and SIGTERM."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged
from mcp.shared.exceptions import MCPError

from multi_agent_mcp import __version__
from multi_agent_mcp.domain.text import one_line
from multi_agent_mcp.errors import InvalidArguments, Refusal, system_error
from multi_agent_mcp.server.binding import Binding
from multi_agent_mcp.server.calls import Middleware, refused
from multi_agent_mcp.server.stdio import Stdio, current_confirmation
from multi_agent_mcp.server.tools import UNBOUND, tools_for, tools_of
from multi_agent_mcp.services.sessions.confirmation import Confirmation
from multi_agent_mcp.system.process import end_of
from multi_agent_mcp.texts import Texts

logger = logging.getLogger(__name__)


TRACEPARENT = "traceparent"
"""Where a call's `_meta` has its trace (MCP 2026-07-28, `_meta`; older clients that send it mean the same)."""
BACKGROUND_AFTER_SECONDS = 1.0
HOST_LOOKED_AT_EVERY_SECONDS = 1.0
"""The interval of polling, where the kernel does not report the end of the host."""
FIRST_ANSWER_SECONDS = 0.05
LAST_CALLS_SECONDS = 0.5
LAST_ANSWERS_SECONDS = 0.2
LAST_WRITES_SECONDS = 5.0
CLOSING_SECONDS = 1.0


class App:
    """The MCP server of one process."""

    def __init__(self, binding: Binding, host_pid: int) -> None:
        self.binding = binding
        self.host_pid = host_pid
        self.tools = tools_of(binding.services.session.features)
        self.middleware = Middleware(binding, self.tools)
        self.stdio = Stdio()
        self._confirmations: list[Confirmation] = []
        self._first_answer = anyio.Event()
        self._disowned = anyio.Event()
        self._bus = InMemorySubscriptionBus()
        self.server: Server[Any] = Server(
            "multi-agent-mcp",
            version=__version__,
            instructions=binding.services.statements.instructions(binding.told),
            on_list_tools=self.list_tools,
            on_call_tool=self.call_tool,
            on_subscriptions_listen=ListenHandler(self._bus),
        )

    async def list_tools(
        self, _ctx: ServerRequestContext[Any, Any], _params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        """The tools that this role and purpose may call; only `authenticate` while the process is not bound."""
        session = self.binding.session
        tools = UNBOUND if session is None else tools_for(self.tools, self.binding.agent().role, session.record.purpose)
        self._first_answer.set()
        return types.ListToolsResult(tools=[tool.described() for tool in tools])

    async def call_tool(
        self, ctx: ServerRequestContext[Any, Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        """Runs the call on a worker thread, because tools work on files."""
        if params.name not in self.tools:
            unknown = InvalidArguments("unknown_tool", name=params.name)
            raise MCPError(types.INVALID_PARAMS, one_line(self.binding.services.texts.sentence(unknown)))
        earlier = [item for item in self._confirmations if not item.is_settled]
        confirmation = Confirmation(earlier, writes=not self.tools[params.name].read_only)
        self._confirmations = [*earlier, confirmation]
        current_confirmation.set(confirmation)
        result = await anyio.to_thread.run_sync(self._answer, params, confirmation, abandon_on_cancel=True)
        self._first_answer.set()
        if self.binding.disowned.is_set():
            self._disowned.set()
        if self.binding.changed.is_set():
            self.binding.changed.clear()
            await ctx.session.send_tool_list_changed()
            await self._bus.publish(ToolsListChanged())
        return result

    def _answer(self, params: types.CallToolRequestParams, confirmation: Confirmation) -> types.CallToolResult:
        try:
            if not confirmation.begin():
                return types.CallToolResult(content=[])  # the call was cancelled
            confirmation.wait_for_cancelled(LAST_CALLS_SECONDS)
            meta = params.meta or {}
            self.binding.note_thread(meta.get("threadId"))
            return self.middleware.call(params.name, params.arguments or {}, confirmation, meta.get(TRACEPARENT))
        finally:
            confirmation.give_turn()

    async def run(self) -> None:
        """Serves stdio until the host closes it or a signal arrives; both are regular ends."""
        options = self.server.create_initialization_options(NotificationOptions(tools_changed=True))
        async with anyio.create_task_group() as group:
            for watch in (
                *(self._end_on_signal, self._end_with_host, self._end_with_output, self._end_with_input),
                self._end_when_disowned,
            ):
                group.start_soon(watch)
            group.start_soon(self._start_background)
            await serve(self.server, self.stdio, options)
            await self._end_regularly()

    async def _start_background(self) -> None:
        """Starts the doorbell and its imports once the host has its first answer, or has asked for none in time."""
        with anyio.move_on_after(BACKGROUND_AFTER_SECONDS):
            await self._first_answer.wait()
        await anyio.sleep(FIRST_ANSWER_SECONDS)
        await anyio.to_thread.run_sync(self.binding.start_background)

    async def _end_on_signal(self) -> None:
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
            async for _ in signals:
                await self._end_regularly()

    async def _end_with_input(self) -> None:
        await self.stdio.input.read()
        await self._end_answered()

    async def _end_when_disowned(self) -> None:
        """Ends after a call that was refused because the agent's key was replaced."""
        await self._disowned.wait()
        await self._end_answered()

    async def _end_answered(self) -> None:
        """Ends once the running calls are answered, for which they get `LAST_WRITES_SECONDS` while any of them is still
        writing, else `LAST_ANSWERS_SECONDS`: one that waits for mail would go on for a minute."""
        with anyio.move_on_after(LAST_WRITES_SECONDS):
            await self._last_answers()
        await self._end_regularly()

    async def _last_answers(self) -> None:
        was_writing = is_writing = True  # a call may not have begun yet, or be about to answer
        while was_writing or is_writing:
            with anyio.move_on_after(LAST_ANSWERS_SECONDS):
                await self.stdio.output.answered()
                return
            was_writing, is_writing = is_writing, any(confirmation.is_writing for confirmation in self._confirmations)

    async def _end_with_output(self) -> None:
        try:
            await self.stdio.output.write()
        except OSError:
            self._end(confirm=False)

    async def _end_with_host(self) -> None:
        """Ends when the host does: stdin stays open after a killed host if another process has inherited it. Answers
        are not confirmed, because the host may not have read them."""
        await ended(self.host_pid)
        self._end(confirm=False)

    async def _end_regularly(self) -> None:
        """Writes pending answers, for `LAST_ANSWERS_SECONDS` at most, and ends."""
        with anyio.move_on_after(LAST_ANSWERS_SECONDS):
            await self.stdio.output.flush()
        self._end(confirm=True)

    def _end(self, *, confirm: bool) -> None:
        """Closes the session and exits, within `CLOSING_SECONDS` even if closing hangs: then the next server requeues
        unconfirmed mail, as after a crash (docs/reliability.md, Standard input and output)."""
        threading.Timer(CLOSING_SECONDS, os._exit, (1,)).start()
        code = 0
        try:
            self.binding.close(confirm=confirm)
            self.binding.services.contributions.tell("process_ends")
        except (Refusal, OSError) as error:  # a full disk is no bug: no traceback
            refusal = system_error(error) if isinstance(error, OSError) else error
            logger.error("the session could not be closed: %s", self.binding.services.texts.sentence(refusal))
            code = 1
        except Exception:
            logger.exception("the session could not be closed")
            code = 1
        sys.stderr.flush()
        os._exit(code)


async def serve(server: Server[Any], stdio: Stdio, options: InitializationOptions) -> None:
    """Serves the input until it ends, also one that begins again (`Input`)."""
    served = None
    while served is not (served := stdio.input.messages):
        await server.run(served, stdio.output, options)


async def ended(host_pid: int) -> None:
    """Waits until the host that started this process has ended."""
    end = end_of(host_pid)
    while os.getppid() == host_pid:
        if end is not None:
            await anyio.wait_readable(end)
            break
        await anyio.sleep(HOST_LOOKED_AT_EVERY_SECONDS)


def run(binding: Binding, host_pid: int) -> None:
    """Serves until the end of the process, or of the host that started it."""
    anyio.run(App(binding, host_pid).run)


# The server of a host that is no agent's: a plugin starts it wherever its user works (docs/hosts.md, Plugins). It says
# in one sentence why it cannot be used, as its instructions and by its only tool, because not every host shows
# instructions, and a server that ends at once is shown as failed.

HELP_TOOL = "how_to_make_a_team"


def run_without_agent(refusal: Refusal | None, texts: Texts, host_pid: int) -> None:
    """Serves until the host closes standard input, or ends. None: the host has our server from elsewhere, and needs
    nothing."""
    anyio.run(_serve_help, _help_server(refusal, texts), host_pid)


async def _serve_help(server: Server[Any], host_pid: int) -> None:
    stdio = Stdio()
    async with anyio.create_task_group() as group:
        group.start_soon(_cancel_with, group.cancel_scope, ended, host_pid)
        group.start_soon(_cancel_with, group.cancel_scope, stdio.output.write)
        options = server.create_initialization_options(NotificationOptions())
        group.start_soon(serve, server, stdio, options)
        await stdio.input.read()
        with anyio.move_on_after(LAST_ANSWERS_SECONDS):
            await stdio.output.answered()
        group.cancel_scope.cancel()


async def _cancel_with(scope: anyio.CancelScope, end: Callable[..., Awaitable[None]], *arguments: Any) -> None:
    with suppress(OSError):
        await end(*arguments)
    scope.cancel()


def _help_server(refusal: Refusal | None, texts: Texts) -> Server[Any]:
    answer = None if refusal is None else refused(refusal, texts)
    listed = [] if refusal is None else [_help_tool(texts)]

    async def list_tools(*_: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=listed)

    async def call_tool(*_: Any) -> types.CallToolResult:
        return answer or types.CallToolResult(content=[])

    instructions = None if refusal is None else texts.sentence(refusal)
    return Server(
        "multi-agent-mcp",
        version=__version__,
        instructions=instructions,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


def _help_tool(texts: Texts) -> types.Tool:
    schema = {"type": "object", "properties": {}, "additionalProperties": False}
    annotations = types.ToolAnnotations(read_only_hint=True, open_world_hint=False)
    return types.Tool(name=HELP_TOOL, description=texts("plugin.help"), input_schema=schema, annotations=annotations)
