"""A host in a window whose model does exactly what our sentences say, and nothing else: the server's instructions tell
it what a line of the doorbell means, and each answer's instruction what to do next. With the word `leaves` it also logs
out whenever its task is over, though nobody told it to."""

from __future__ import annotations

import os
import re
import sys
from typing import Any

import anyio
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters

ON_A_LINE = re.compile(r"for new messages call (\w+), for new notifications (\w+)")
LEAVES = "leaves" in sys.argv


class Model:
    """`rules` are the tools for a line about messages and for one about notifications."""

    def __init__(self, client: Client) -> None:
        self.client = client
        found = ON_A_LINE.search(client.instructions or "")
        assert found is not None
        self.rules = found.groups()

    async def turn(self, said: str) -> None:
        """One turn, from what was said to it until a sentence tells it to end its turn, or none tells it anything."""
        print("turn:", said, flush=True)
        for tool in ("get_next_action",) if "get_next_action" in said else self.tools_for(said):
            await self.follow(await self.call(tool))

    def tools_for(self, line: str) -> list[str]:
        words = ("new message", "new notification")
        return [tool for word, tool in zip(words, self.rules, strict=True) if word in line.lower()]

    async def follow(self, answer: dict[str, Any]) -> None:
        items = answer.get("notifications") or [answer]
        for instruction in (str(item.get("instruction", "")) for item in items):
            if "report_completed" in instruction:
                await self.follow(await self.call("report_completed", result="success", summary="done"))
            elif "logout()" in instruction or (LEAVES and answer.get("action") == "exit"):
                print(await self.call("logout"), flush=True)
            elif "End your turn" not in instruction and (tool := re.search(r"[Cc]all (\w+)", instruction)):
                await self.follow(await self.call(tool[1]))

    async def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        result = await self.client.call_tool(tool, arguments)
        answer = result.structured_content or {}
        print(tool, answer.get("action"), answer.get("error"), flush=True)
        return answer


async def main() -> None:
    server = StdioServerParameters(
        command=sys.executable, args=["-m", "multi_agent_mcp", "serve"], env=dict(os.environ)
    )
    async with Client(server) as client:
        model = Model(client)
        await model.turn(sys.argv[-1])
        while line := await anyio.to_thread.run_sync(sys.stdin.readline):
            if "[IPC]" in line:
                await model.turn(line.strip())


anyio.run(main)
