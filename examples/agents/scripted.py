"""A scripted agent: a real MCP client of its own `multi-agent-mcp serve` process that acts only when its pane rings.

It is what a coding agent does, without the model: it waits until the `[IPC]` line is typed into its terminal, reads
its mail, and calls tools.
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import yaml
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters

DOORBELL = "[IPC]"


def told(ja: str, en: str) -> str:
    """What to say, in the language of the session."""
    path = Path(os.environ["MULTI_AGENT_MCP_ROOT"], os.environ["MULTI_AGENT_MCP_SESSION"], "session.yaml")
    return en if yaml.safe_load(path.read_bytes()).get("language") == "en" else ja


class Refused(Exception):
    """A tool answered `"success": false`."""


class ScriptedAgent:
    """An agent in a pane. The environment says who it is, to its server, too."""

    def __init__(self, client: Client, name: str) -> None:
        self.name = name
        self._client = client

    def say(self, text: str) -> None:
        """Narrates in the agent's pane."""
        print(f"{self.name} ▸ {text}", flush=True)

    async def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """The tool's answer as an object; an answer that an interrupt replaced is `{"interrupted": text}`.

        Raises `Refused` with the code and the sentence.
        """
        result = await self._client.call_tool(tool, arguments)
        answer = result.structured_content
        if not isinstance(answer, dict):
            return {"interrupted": "".join(getattr(block, "text", "") for block in result.content)}
        if not answer["success"]:
            raise Refused(f"{answer['error']}: {answer['message']}")
        return answer

    async def wait_for_doorbell(self) -> str:
        """The next `[IPC]` line typed into this pane."""
        while True:
            line: str = await anyio.to_thread.run_sync(sys.stdin.readline, abandon_on_cancel=True)
            if not line:
                raise EOFError("the pane is closed")
            if DOORBELL in line:
                self.say(f"heard {line.strip()}")
                return line.strip()

    async def next_mail(self) -> list[dict[str, Any]]:
        """Waits for the doorbell, then reads everything that is unread. It may have rung for a notification: then it is
        waited for again."""
        messages: list[dict[str, Any]] = []
        while not messages:
            await self.wait_for_doorbell()
            messages = await self.unread()
        return messages

    async def next_work(self) -> dict[str, Any]:
        """Waits for the doorbell until it has rung for a task, whether a message brought it or not; begins it."""
        action: dict[str, Any] = {}
        while action.get("action") != "work":
            await self.wait_for_doorbell()
            await self.unread()
            action = await self.call("get_next_action")
        return action

    async def unread(self) -> list[dict[str, Any]]:
        """Reads all mail that is unread."""
        messages: list[dict[str, Any]] = []
        answer: dict[str, Any] = {"unread_remaining": True}
        while answer.get("unread_remaining"):
            answer = await self.call("read_messages")
            messages += answer.get("messages", [])
        return messages


@asynccontextmanager
async def scripted_agent() -> AsyncIterator[ScriptedAgent]:
    """Starts the agent's own server and logs out at the end."""
    server = StdioServerParameters(
        command=sys.executable, args=["-E", "-P", "-m", "multi_agent_mcp", "serve"], env=dict(os.environ)
    )
    async with Client(server) as client:
        agent = ScriptedAgent(client, os.environ["MULTI_AGENT_MCP_AGENT"])
        await client.list_tools()
        yield agent
        await agent.call("logout")
        agent.say("logged out")
