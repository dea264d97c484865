"""The Owner's console."""
