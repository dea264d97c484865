"""Views of a whole session: dashboard, snapshot, timeline, statistics, machines, stuck agents, missing sessions."""
