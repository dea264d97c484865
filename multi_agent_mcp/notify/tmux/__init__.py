"""Typing one line into a pane, or not at all."""
