"""The tools, by subject. A tool's docstring is its description for models, at most five lines."""

from __future__ import annotations

from multi_agent_mcp.server.calls import Tool, by_name
from multi_agent_mcp.server.tools import chat, ipc, tasks, work

MODULES = (ipc, tasks, chat, work)
TOOLS = by_name(tool for module in MODULES for tool in module.TOOLS)

UNBOUND: tuple[Tool, ...] = (TOOLS["authenticate"],)


def tools_for(role: str, purpose: str) -> list[Tool]:
    """The tools that an agent with this role may call in a session of this purpose."""
    return [tool for tool in TOOLS.values() if role in tool.roles and purpose in tool.purposes]
