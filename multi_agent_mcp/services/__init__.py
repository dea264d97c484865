"""Use cases: what agents and the human do. They raise refusals and know nothing of MCP, tmux or the terminal."""
