"""The stdio MCP server: one process for one agent. Only this package uses `mcp`."""
