"""Doorbells: how the one `[IPC]` line reaches somebody. A hint only; the message is always the file."""
