"""Several agents in one repository: reservations of files, who edits what, worktrees."""
