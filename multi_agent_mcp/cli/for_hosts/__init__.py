"""The commands that hosts run: their server and their hooks."""
