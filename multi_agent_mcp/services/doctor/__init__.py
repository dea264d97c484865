"""Care: what is wrong with a session directory, what mends it, what may go."""
