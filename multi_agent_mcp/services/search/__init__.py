"""Search: words in mail, tasks, conversations and logs, by a derived index."""
