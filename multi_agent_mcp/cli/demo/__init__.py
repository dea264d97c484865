"""`demo`: the product at work in real tmux panes, on a tmux server of its own."""
