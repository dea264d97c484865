"""`demo`: plays scenes in real tmux panes, on a separate tmux server."""
