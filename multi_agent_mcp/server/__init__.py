"""The stdio MCP server: one process, one agent. The only code that knows `mcp`."""
