"""Access to the operating system: processes, file events, other programs' files. Independent of sessions."""
