"""One turn of an agent: reading mail, applying reports, choosing the next action."""
