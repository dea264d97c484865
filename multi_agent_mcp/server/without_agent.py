"""The server of a host that is no agent's: a plugin starts it wherever its user works (docs/hosts.md, Plugins).

It says in one sentence why it cannot be used, as its instructions and by its only tool, because not every host shows
instructions, and a server that ends at once is shown as failed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import anyio
import mcp_types as types
from mcp.server.lowlevel.server import NotificationOptions, Server

from multi_agent_mcp import __version__
from multi_agent_mcp.server.app import LAST_ANSWERS_SECONDS, ended
from multi_agent_mcp.server.middleware import refused
from multi_agent_mcp.server.stdio import Stdio

if TYPE_CHECKING:
    from multi_agent_mcp.errors import Refusal
    from multi_agent_mcp.texts import Texts

HELP_TOOL = "how_to_make_a_team"


def run(refusal: Refusal | None, texts: Texts, host_pid: int) -> None:
    """Serves until the host closes standard input, or ends. None: the host has our server from elsewhere, and needs
    nothing."""
    anyio.run(_serve, _server(refusal, texts), host_pid)


async def _serve(server: Server[Any], host_pid: int) -> None:
    stdio = Stdio()
    async with anyio.create_task_group() as group:
        group.start_soon(_cancel_with, group.cancel_scope, ended, host_pid)
        group.start_soon(_cancel_with, group.cancel_scope, stdio.output.write)
        options = server.create_initialization_options(NotificationOptions())
        group.start_soon(server.run, stdio.input.messages, stdio.output, options)
        await stdio.input.read()
        with anyio.move_on_after(LAST_ANSWERS_SECONDS):
            await stdio.output.answered()
        group.cancel_scope.cancel()


async def _cancel_with(scope: anyio.CancelScope, end: Callable[..., Awaitable[None]], *arguments: Any) -> None:
    with suppress(OSError):
        await end(*arguments)
    scope.cancel()


def _server(refusal: Refusal | None, texts: Texts) -> Server[Any]:
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
