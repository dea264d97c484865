"""Messages, tasks and interrupts between AI coding agents in tmux panes, through nothing but files."""

__version__ = "0.1.0"
