"""The commands that hosts run or need: their server, their hooks, their configuration."""
