"""`demo`: plays scenes in real tmux panes, on a separate tmux server. An optional folder: no import leads into it from
outside."""
