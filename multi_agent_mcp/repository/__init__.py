"""Several agents in one repository: who edits what, reservations of files, worktrees (`repository/feature.py`). An
optional folder: nothing outside imports it, and a session works without it."""
