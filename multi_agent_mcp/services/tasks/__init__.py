"""Tasks: creating, changing, approving, handing over, reporting, interrupting."""
