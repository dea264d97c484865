"""Tasks: creating, changing, approving, handing over."""
