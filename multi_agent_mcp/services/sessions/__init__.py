"""Running server processes, what they work on, and the Owner's wait-lock."""
