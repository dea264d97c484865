"""Typing one line into a tmux pane, only when that is safe."""
