"""Looking at a whole session: dashboard, snapshot, timeline, missing agent sessions."""
