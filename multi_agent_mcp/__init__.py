"""Messages, tasks and interrupts between AI coding agents in tmux panes, exchanged through files only."""

__version__ = "1.0.0"
