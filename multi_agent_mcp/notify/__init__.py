"""Doorbells: delivery of the one `[IPC]` line, which is only a hint; the message is always the file."""
