"""The operating system: processes, file events, other programs' files. Knows nothing of a session."""
