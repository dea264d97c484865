"""A model that does exactly what our sentences say, and nothing else. As a program it is a host in a window with such a
model; with the word `leaves` it also logs out whenever its work is over, though nobody told it to."""

from __future__ import annotations

import os
import re
import sys

import anyio
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters
from mcp_types import TextContent

from multi_agent_mcp.server.tools import TOOLS
from multi_agent_mcp.texts import catalogue

TEXTS = catalogue("en")
ON_A_LINE = re.compile(r"for new messages call (\w+), for new notifications (\w+)")
LINE = re.compile(r"\[IPC\] New (message|notification)")
SENTENCE = re.compile(r'"(?:instruction|message)": ?"((?:[^"\\]|\\.)*)"')
TOLD = re.compile(r"[Cc]all (\w+)")
FIRST = re.compile(r"First call (\w+)")
"""The briefing's words: they go before whatever else is said at the same time."""


def told_to_call(said: str) -> str | None:
    """The tool that our sentences, in an answer, a line or a prompt, tell a model to call next; None: its turn ends. A
    line that comes with an answer is about something that the next answers mention, too."""
    if (first := FIRST.search(said)) is not None and first[1] in TOOLS:
        return first[1]
    mail, notices = ON_A_LINE.findall(TEXTS("server.instructions"))[0]
    if TEXTS("notification.some") in said:
        return str(notices)
    for sentence in SENTENCE.findall(said) or [said]:
        if (tool := next((tool for tool in TOLD.findall(sentence) if tool in TOOLS), None)) is not None:
            return str(tool)
    lines = LINE.findall(said)
    return str(notices if "notification" in lines else mail) if lines else None


def arguments_of(tool: str) -> dict[str, str]:
    return {"result": "success", "summary": "done"} if tool == "report_completed" else {}


async def turn(client: Client, said: str, *, leaves: bool) -> None:
    """One turn, from what was said to the model until nothing tells it to call another tool."""
    tool = told_to_call(said)
    while tool is not None:
        result = await client.call_tool(tool, arguments_of(tool))
        said = "".join(block.text for block in result.content if isinstance(block, TextContent))
        tool = "logout" if leaves and '"action": "exit"' in said else told_to_call(said)


async def main(*words: str) -> None:
    server = StdioServerParameters(
        command=sys.executable, args=["-m", "multi_agent_mcp", "serve"], env=dict(os.environ)
    )
    async with Client(server) as client:
        await turn(client, words[-1], leaves="leaves" in words)
        while line := await anyio.to_thread.run_sync(sys.stdin.readline):
            await turn(client, line, leaves="leaves" in words)


if __name__ == "__main__":
    anyio.run(main, *sys.argv[1:])
