"""A model that does exactly what our sentences say, and nothing else. As a program it is a host in a window with such a
model; with the word `leaves` it also logs out whenever its work is over, though nobody told it to."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Container
from typing import Any

from multi_agent_mcp.texts import catalogue

HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "literal", "version": "1"}}
TEXTS = catalogue("en")
ON_A_LINE = re.compile(r"for new messages call (\w+), for new notifications (\w+)")
LINE = re.compile(r"\[IPC\] New (message|notification)")
SENTENCE = re.compile(r'"(?:instruction|message)": ?"((?:[^"\\]|\\.)*)"')
TOLD = re.compile(r"[Cc]all (\w+)")
FIRST = re.compile(r"First call (\w+)")
"""The briefing's words: they go before whatever else is said at the same time."""


def told_to_call(said: str, tools: Container[str]) -> str | None:
    """The one of the tools that our sentences, in an answer, a line or a prompt, tell a model to call next; None: its
    turn ends. A line that comes with an answer is about something that the next answers mention, too."""
    if (first := FIRST.search(said)) is not None and first[1] in tools:
        return first[1]
    mail, notices = ON_A_LINE.findall(TEXTS("server.instructions"))[0]
    if TEXTS("notification.some") in said:
        return str(notices)
    for sentence in SENTENCE.findall(said) or [said]:
        if (tool := next((tool for tool in TOLD.findall(sentence) if tool in tools), None)) is not None:
            return str(tool)
    lines = LINE.findall(said)
    return str(notices if "notification" in lines else mail) if lines else None


def arguments_of(tool: str) -> dict[str, str]:
    return {"result": "success", "summary": "done"} if tool == "report_completed" else {}


class Server:
    """Our server, asked with raw lines: to import a client takes longer than all that this model does."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "multi_agent_mcp", "serve"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8")
        self._count = 0
        self._ask("initialize", **HELLO)
        self._tell("notifications/initialized")
        self.tools = {tool["name"] for tool in self._ask("tools/list")["tools"]}

    def call(self, tool: str) -> str:
        """The words of the answer."""
        answer = self._ask("tools/call", name=tool, arguments=arguments_of(tool))
        return "".join(block.get("text", "") for block in answer["content"])

    def _ask(self, method: str, **params: Any) -> dict[str, Any]:
        self._count += 1
        self._tell(method, id=self._count, params=params)
        assert self._process.stdout is not None
        answers = map(json.loads, self._process.stdout)
        result: dict[str, Any] = next(found["result"] for found in answers if found.get("id") == self._count)
        return result

    def _tell(self, method: str, **facts: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"jsonrpc": "2.0", "method": method, **facts}) + "\n")
        self._process.stdin.flush()


def turn(server: Server, said: str, *, leaves: bool) -> None:
    """One turn, from what was said to the model until nothing tells it to call another tool."""
    tool = told_to_call(said, server.tools)
    while tool is not None:
        said = server.call(tool)
        tool = "logout" if leaves and '"action": "exit"' in said else told_to_call(said, server.tools)


def main(*words: str) -> None:
    server = Server()
    turn(server, words[-1], leaves="leaves" in words)
    for line in sys.stdin:
        turn(server, line, leaves="leaves" in words)


if __name__ == "__main__":
    main(*sys.argv[1:])
