"""The tests. They use the real thing: files, processes, stdio, a tmux server of their own."""
