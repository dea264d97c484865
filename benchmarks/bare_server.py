"""The floor of all calls over stdio: an MCP server with one tool that does one durable write."""

from __future__ import annotations

import sys
from pathlib import Path

from mcp.server import MCPServer

from benchmarks.durable import durable_write

directory = Path(sys.argv[1])


def write(content: str) -> str:
    """Writes a file."""
    return durable_write(directory, content.encode()).name


server = MCPServer("bare")
server.add_tool(write)
server.run("stdio")
